"""Hugging Face tensor name <-> GGUF tensor name, for the Llama architecture.

The Hugging Face names are those of transformers' ``LlamaForCausalLM``; the GGUF names those that
llama.cpp's llama architecture loads.
"""

import re
from collections.abc import Mapping

from impl.errors import InputError

MODEL: Mapping[str, str] = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
"""Modules that stand once in a model: Hugging Face name to GGUF name."""

LAYER: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Modules of every layer, under ``model.layers.N.`` there and ``blk.N.`` here."""

RECOMPUTED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Rotary frequencies that old checkpoints store; they follow from the config and have no GGUF tensor."""

_GGUF_MODEL = {gguf: hugging_face for hugging_face, gguf in MODEL.items()}
_GGUF_LAYER = {gguf: hugging_face for hugging_face, gguf in LAYER.items()}


def gguf_name(name: str) -> str:
    """The GGUF name of a Hugging Face tensor; raises ``InputError`` for one that a Llama model lacks."""
    return _renamed(name, "model.layers.", LAYER, "blk.", MODEL)


def hugging_face_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; raises ``InputError`` for one that has none."""
    return _renamed(name, "blk.", _GGUF_LAYER, "model.layers.", _GGUF_MODEL)


def _renamed(
    name: str, prefix: str, layer_modules: Mapping[str, str], new_prefix: str, modules: Mapping[str, str]
) -> str:
    module, _, parameter = name.rpartition(".")
    if parameter in ("weight", "bias"):
        if module in modules:
            return f"{modules[module]}.{parameter}"
        layer, _, part = module.removeprefix(prefix).partition(".")
        if module.startswith(prefix) and layer.isdecimal() and part in layer_modules:
            return f"{new_prefix}{layer}.{layer_modules[part]}.{parameter}"
    raise InputError(f"tensor {name}: unknown, expected a tensor of a Llama model")
