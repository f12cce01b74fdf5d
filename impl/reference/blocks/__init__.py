"""Block formats: how GGUF stores weights, quantized and back.

``FORMATS`` holds every format by GGML's name in lower case, and ``READ_ONLY`` those that are not written;
``quantize`` and ``dequantize`` apply one to a matrix, row by row. Each row is worked on by one thread, so the
bytes do not depend on how many threads there are.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError
from impl.reference.blocks import binary, floats, fp4, iq4, k_quants, lattice, legacy, ternary
from impl.reference.blocks.arithmetic import largest_magnitudes
from impl.reference.blocks.block_format import BlockFormat

FORMATS: Mapping[str, BlockFormat] = MappingProxyType(
    {
        block_format.name: block_format()
        for block_format in (
            floats.F32,
            floats.F16,
            floats.BF16,
            legacy.Q4_0,
            legacy.Q4_1,
            legacy.Q5_0,
            legacy.Q5_1,
            legacy.Q8_0,
            legacy.Q8_1,
            k_quants.Q2_K,
            k_quants.Q3_K,
            k_quants.Q4_K,
            k_quants.Q5_K,
            k_quants.Q6_K,
            k_quants.Q8_K,
            iq4.IQ4_NL,
            iq4.IQ4_XS,
            ternary.TQ1_0,
            ternary.TQ2_0,
            fp4.MXFP4,
            fp4.NVFP4,
            binary.Q1_0,
            binary.Q2_0,
        )
    }
)
"""Every format that is written and read, by GGML's name in lower case."""

READ_ONLY: Mapping[str, BlockFormat] = MappingProxyType(
    {
        block_format.name: block_format()
        for block_format in (
            lattice.IQ1_S,
            lattice.IQ1_M,
            lattice.IQ2_XXS,
            lattice.IQ2_XS,
            lattice.IQ2_S,
            lattice.IQ3_XXS,
            lattice.IQ3_S,
        )
    }
)
"""The formats that are only read: ``dequantize`` takes them too."""

FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
PIECE = 1 << 20
"""About how many weights a thread takes at a time: so many that threads seldom wait for each other in Python."""
WORTH_A_THREAD = 1 << 18
"""How many weights another thread must find to do, or starting it would take longer."""


def bytes_per_row(type: str, columns: int) -> int:
    """How many bytes a row of ``columns`` weights takes.

    Raises ``InputError`` for an unknown type and for a row that is not a multiple of the block.
    """
    return _bytes_per_row(type, (columns,))


def quantize(
    weight: NDArray[np.float32],
    type: str,
    importance: NDArray[np.float32] | None = None,
    *,
    threads: int | None = None,
) -> NDArray[np.uint8]:
    """Quantize ``weight`` (float32[rows, cols]) to uint8[rows, bytes per row].

    ``weight`` may have any memory layout and byte order, and may be float16 or bfloat16, which float32
    holds exactly. ``importance`` is float32[cols], one weight per column; formats whose quantization does
    not search ignore it, as ggml does. ``threads`` is by default one per available CPU.

    Raises ``InputError`` for an unknown type, a row that is not a multiple of the block, another shape or
    dtype, NaN or Inf in either argument, and weights whose block has no finite scale in the format,
    such as those too large for float16.
    """
    if weight.ndim != 2:
        raise InputError(f"weight of shape {list(weight.shape)}: expected two dimensions, rows and columns")
    row_bytes = _bytes_per_row(type, weight.shape)
    _refuse_other_dtypes("weight", weight)
    if importance is not None:
        _refuse_other_dtypes("importance", importance)
        if importance.shape != weight.shape[1:]:
            raise InputError(f"importance of shape {list(importance.shape)}: expected {list(weight.shape[1:])}")
        importance = _native(importance)
        _refuse_non_finite("importance", importance[None], 0)
    blocks = np.empty((len(weight), row_bytes), np.uint8)

    block_format = _format(type)

    def work(piece: slice) -> None:
        rows = _native(weight[piece])
        if not block_format.shows_non_finite or importance is not None:
            _refuse_non_finite("weight", rows, piece.start)
        records = blocks[piece].reshape(-1).view(block_format.layout)
        # What overflows on the way ends in a scale that is not finite, and is refused by name there.
        with np.errstate(all="ignore"):
            finite = block_format.quantize_finite(rows, importance, records)
        if not finite:
            _refuse_non_finite("weight", rows, piece.start)
            first = int(np.argmin(block_format.finite(records)))
            row, block = divmod(first, weight.shape[1] // block_format.values)
            raise InputError(f"weight: row {piece.start + row}, block {block} has no finite scale in {type}")

    _in_pieces(work, weight.shape, threads)
    return blocks


def dequantize(blocks: NDArray[np.uint8], type: str, *, threads: int | None = None) -> NDArray[np.float32]:
    """Dequantize uint8[rows, bytes per row] to float32[rows, cols].

    Raises ``InputError`` for an unknown type, another shape or dtype, and a row that is not a whole number
    of blocks. A NaN or Inf scale is decoded as it stands.
    """
    block_format = _format(type)
    if blocks.ndim != 2 or blocks.dtype != np.uint8:
        raise InputError(f"blocks of {blocks.dtype}{list(blocks.shape)}: expected uint8[rows, bytes per row]")
    if blocks.shape[1] % block_format.bytes:
        raise InputError(
            f"{type} blocks of shape {list(blocks.shape)}: a row must be a multiple of {block_format.bytes} bytes"
        )
    columns = blocks.shape[1] // block_format.bytes * block_format.values
    weight = np.empty((len(blocks), columns), np.float32)

    def work(piece: slice) -> None:
        records = np.ascontiguousarray(blocks[piece]).reshape(-1, block_format.bytes).view(block_format.layout)
        with np.errstate(all="ignore"):
            weight[piece] = block_format.dequantize(records[:, 0]).reshape(-1, columns)

    _in_pieces(work, weight.shape, threads)
    return weight


def _format(type: str) -> BlockFormat:
    block_format = FORMATS.get(type) or READ_ONLY.get(type)
    if block_format is None:
        raise InputError(f"type {type!r}: expected one of {', '.join([*FORMATS, *READ_ONLY])}")
    return block_format


def _bytes_per_row(type: str, shape: tuple[int, ...]) -> int:
    block_format = _format(type)
    if shape[-1] % block_format.values:
        raise InputError(
            f"{type} of shape {list(shape)}: a row must be a multiple of the block of {block_format.values} values"
        )
    return shape[-1] // block_format.values * block_format.bytes


def _refuse_other_dtypes(name: str, array: NDArray) -> None:
    if array.dtype.newbyteorder("=") not in FLOATS:
        raise InputError(f"{name} of {array.dtype}: expected float32, float16 or bfloat16")


def _native(array: NDArray) -> NDArray[np.float32]:
    # Kernels are compiled once per kind of array; read-only is the kind every array can be seen as.
    view = np.ascontiguousarray(array, dtype=np.float32).view()
    view.flags.writeable = False
    return view


def _refuse_non_finite(name: str, rows: NDArray[np.float32], first_row: int) -> None:
    if rows.size and not np.isfinite(largest_magnitudes(rows)).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise InputError(
            f"{name}: {rows[row, column]} in row {first_row + row}, column {column}; expected finite values"
        )


def _in_pieces(work: Callable[[slice], None], shape: tuple[int, int], threads: int | None) -> None:
    """Call ``work`` with pieces of the rows, one run of them to each thread and the first run to this one.

    Raises what the first piece that fails raises, however many threads there are.
    """
    rows, columns = shape
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = max(1, min(threads or available, rows, rows * columns // WORTH_A_THREAD))

    def work_on(run: int) -> None:
        start, stop = rows * run // workers, rows * (run + 1) // workers
        size = max(1, PIECE // max(1, columns))
        for first in range(start, stop if columns else start, size):
            work(slice(first, min(first + size, stop)))

    with ThreadPoolExecutor(workers) as pool:
        others = [pool.submit(work_on, run) for run in range(1, workers)]
        work_on(0)
        for other in others:
            other.result()
