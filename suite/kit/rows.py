"""The suite's own statement of the q and k row order, independent of any implementation.

Hugging Face's Llama rotates dimension i of a head with dimension i + d/2; a GGUF of architecture
``llama`` rotates 2i with 2i + 1. The rows of q and k are therefore reordered, head by head: GGUF row 2i
is Hugging Face row i, and GGUF row 2i + 1 is Hugging Face row i + d/2.
"""

import numpy as np
from numpy.typing import NDArray


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
