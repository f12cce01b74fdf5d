"""A checkpoint small enough to write in every test, with the traps a converter falls into.

8 heads over 2 key-value heads, a head size that is not hidden / heads, biases, mixed dtypes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 40,
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 3e-6,
    "rope_theta": 31000.0,
    "tie_word_embeddings": False,
    "attention_bias": True,
}


def added_token(id: int, content: str, *, special: bool) -> dict[str, Any]:
    """One of tokenizer.json's ``added_tokens``."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": content, "special": special, **flags}


TOKENIZER: Mapping[str, Any] = {
    "version": "1.0",
    "added_tokens": [
        added_token(0, "<end>", special=True),
        added_token(1, "<start>", special=True),
        added_token(5, "<tool>", special=False),
    ],
    "normalizer": None,
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        ],
    },
    "post_processor": None,
    "model": {
        "type": "BPE",
        "byte_fallback": False,
        "vocab": {"<end>": 0, "<start>": 1, "a": 2, "b": 3, "ab": 4},
        "merges": [["a", "b"]],
    },
}

TOKENIZER_CONFIG: Mapping[str, Any] = {
    "bos_token": "<start>",
    "eos_token": {"content": "<end>"},
    "chat_template": "{{ messages }}",
}


def tensors(config: Mapping[str, Any], seed: int = 0) -> dict[str, NDArray]:
    """Every tensor of the model of ``config``: norms float32, biases float16, matrices bfloat16."""
    random = np.random.default_rng(seed)

    def values(*shape: int) -> NDArray[np.float32]:
        return random.standard_normal(shape, dtype=np.float32)

    hidden, wide = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    head = config.get("head_dim", hidden // heads)
    q, kv = heads * head, config.get("num_key_value_heads", heads) * head
    matrices = {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
    }
    made: dict[str, NDArray] = {
        "model.embed_tokens.weight": values(config["vocab_size"], hidden).astype(ml_dtypes.bfloat16),
        "model.norm.weight": values(hidden),
    }
    if not config["tie_word_embeddings"]:
        made["lm_head.weight"] = values(config["vocab_size"], hidden).astype(ml_dtypes.bfloat16)
    for layer in range(config["num_hidden_layers"]):
        block = f"model.layers.{layer}."
        made[f"{block}input_layernorm.weight"] = values(hidden)
        made[f"{block}post_attention_layernorm.weight"] = values(hidden)
        for module, shape in matrices.items():
            made[f"{block}{module}.weight"] = values(*shape).astype(ml_dtypes.bfloat16)
            if config.get("attention_bias") and module.startswith("self_attn"):
                made[f"{block}{module}.bias"] = values(shape[0]).astype(np.float16)
    return made


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    *,
    edits: Mapping[str, NDArray | None] | None = None,
    tokenizer: Mapping[str, Any] | None = TOKENIZER,
    shards: int = 1,
) -> Path:
    """Write the checkpoint ``folder`` and return it.

    ``config`` overrides keys of ``CONFIG`` (None drops the key), ``edits`` replaces tensors or, with None,
    drops them; ``tokenizer`` None leaves the tokenizer out.
    """
    folder.mkdir()
    merged = {key: value for key, value in {**CONFIG, **(config or {})}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(merged))
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    edited = {**tensors(merged), **(edits or {})}
    _write_weights({name: tensor for name, tensor in edited.items() if tensor is not None}, folder, shards)
    return folder


def _write_weights(weights: dict[str, NDArray], folder: Path, shards: int) -> None:
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
        return
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: weights[name] for name in sorted(weights)[shard::shards]}
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
