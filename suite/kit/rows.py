"""The suite's own statement of names and of the q and k row order, independent of any implementation.

Hugging Face's Llama rotates dimension i of a head with dimension i + d/2; a GGUF of architecture
``llama`` rotates 2i with 2i + 1. The rows of q and k are therefore reordered, head by head: GGUF row 2i
is Hugging Face row i, and GGUF row 2i + 1 is Hugging Face row i + d/2.
"""

import gguf
import numpy as np
from numpy.typing import NDArray

HUGGING_FACE_PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
HUGGING_FACE_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def hugging_face_name(name: str) -> str:
    """The checkpoint's name of the GGUF tensor ``name``, e.g. ``blk.0.attn_q.weight``."""
    *block, part, suffix = name.split(".")
    if not block:
        return f"{HUGGING_FACE_TOP[part]}.{suffix}"
    return f"model.layers.{block[1]}.{HUGGING_FACE_PARTS[part]}.{suffix}"


def gguf_name(name: str, layers: int) -> str:
    """llama.cpp's name of the checkpoint tensor ``name``, from the table in its own gguf package."""
    stem, suffix = name.rsplit(".", 1)
    return f"{gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers).get_name(stem)}.{suffix}"


def layer_of(name: str) -> int:
    """The layer of the GGUF tensor ``name``; -1 for those outside the layers."""
    top, _, rest = name.partition(".")
    return int(rest.partition(".")[0]) if top == "blk" else -1


def gguf_row_order(rows: int, heads: int) -> NDArray[np.intp]:
    """For each GGUF row of q or k, the Hugging Face row that stands there: intp[rows].

    ``heads`` is the number of query heads for q and of key-value heads for k.
    """
    size = rows // heads
    within_head = np.empty(size, dtype=np.intp)
    within_head[0::2] = np.arange(size // 2)
    within_head[1::2] = np.arange(size // 2) + size // 2
    return (np.arange(heads)[:, None] * size + within_head).reshape(rows)


def in_hugging_face_order(weight: NDArray, heads: int) -> NDArray:
    """Rows in GGUF order back in Hugging Face order; works on float rows and on rows of blocks alike."""
    back = np.empty_like(weight)
    back[gguf_row_order(len(weight), heads)] = weight
    return back


def in_gguf_order(weight: NDArray, heads: int) -> NDArray:
    """Rows in Hugging Face order put in GGUF order."""
    return weight[gguf_row_order(len(weight), heads)]
