"""The generated checkpoint: milliseconds to convert and run, and every structural trap in it.

8 heads over 2 key-value heads tell n_head_kv from n_head and from their quotient; heads × head size is
not the hidden size; no matrix is square; rows of ``ffn_down`` are a multiple of 256 and all others are
not; the head is its own tensor; rope_theta and eps equal no default; norms are float32 among bfloat16
matrices; and the tensors lie in two shards.
"""

import json
import shutil
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SEED = 20261
LAYERS = 2
HIDDEN = 96
HEADS = 8
KEY_VALUE_HEADS = 2
HEAD_SIZE = 16
FEED_FORWARD = 512
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (("t", "h"), ("th", "e"), ("i", "n"), ("Ġ", "a"), ("Ġ", "the"))
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build(folder: Path, *, tied: bool = False) -> None:
    """Write the checkpoint ``folder``, the same bytes every time.

    Where ``tied``, the configuration ties the head to the embedding and the head is shipped all the same, equal
    to it: it must be written once.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "checkpoint"
        made.mkdir()
        vocabulary = _write_tokenizer(made)
        _write_config(vocabulary, tied, made)
        _write_shards(_tensors(vocabulary, tied), made)
        shutil.move(made, folder)


def _write_tokenizer(folder: Path) -> int:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL, *alphabet, *("".join(merge) for merge in MERGES)]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "unk_token": SPECIAL[0],
        "pad_token": SPECIAL[2],
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    return len(tokens)


def _write_config(vocabulary: int, tied: bool, folder: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "head_dim": HEAD_SIZE,
        "max_position_embeddings": 1024,
        "rope_theta": 31000.0,
        "rms_norm_eps": 3e-06,
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def _tensors(vocabulary: int, tied: bool) -> dict[str, NDArray]:
    random = np.random.default_rng(SEED)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> NDArray:
        values = random.standard_normal((rows, columns), dtype=np.float32)
        return (values * np.float32(gain / np.sqrt(columns))).astype(ml_dtypes.bfloat16)

    def norm() -> NDArray[np.float32]:
        return np.float32(1.0) + np.float32(0.2) * random.standard_normal(HIDDEN, dtype=np.float32)

    tensors = {
        # Rows of length about 1 per value, so that the head's logits have a trained model's size.
        "model.embed_tokens.weight": matrix(vocabulary, HIDDEN, gain=np.sqrt(HIDDEN)),
        "model.norm.weight": norm(),
        "lm_head.weight": matrix(vocabulary, HIDDEN, gain=4.0),
    }
    if tied:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    for layer in range(LAYERS):
        block = f"model.layers.{layer}."
        tensors |= {
            f"{block}input_layernorm.weight": norm(),
            f"{block}post_attention_layernorm.weight": norm(),
            # Sharp attention, so that a wrong rotation shows in the logits.
            f"{block}self_attn.q_proj.weight": matrix(HEADS * HEAD_SIZE, HIDDEN, gain=2.0),
            f"{block}self_attn.k_proj.weight": matrix(KEY_VALUE_HEADS * HEAD_SIZE, HIDDEN, gain=2.0),
            f"{block}self_attn.v_proj.weight": matrix(KEY_VALUE_HEADS * HEAD_SIZE, HIDDEN),
            f"{block}self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_SIZE),
            f"{block}mlp.gate_proj.weight": matrix(FEED_FORWARD, HIDDEN),
            f"{block}mlp.up_proj.weight": matrix(FEED_FORWARD, HIDDEN),
            f"{block}mlp.down_proj.weight": matrix(HIDDEN, FEED_FORWARD),
        }
    return tensors


def _write_shards(tensors: dict[str, NDArray], folder: Path) -> None:
    # Every other tensor, so that each layer needs both files.
    names = sorted(tensors)
    shards = {
        f"model-0000{number}-of-00002.safetensors": {name: tensors[name] for name in names[number - 1 :: 2]}
        for number in (1, 2)
    }
    for file, content in shards.items():
        save_file(content, folder / file, metadata={"format": "pt"})
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": {name: file for file, content in shards.items() for name in sorted(content)},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
