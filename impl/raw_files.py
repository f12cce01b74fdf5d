"""Matrices as raw files, which programs in any language read and write: rows one after the other, little-endian."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError

FLOAT32 = np.dtype("<f4")
UINT8 = np.dtype(np.uint8)
INT32 = np.dtype("<i4")


def write_raw(array: NDArray, path: Path, dtype: np.dtype) -> None:
    """Write the values of ``array`` as ``dtype``, in rows."""
    path.write_bytes(np.ascontiguousarray(array, dtype=dtype).data)


def read_raw(path: Path, rows: int, dtype: np.dtype) -> NDArray:
    """The file as ``dtype``[rows, columns]; raises ``InputError`` where it does not hold whole, equal rows."""
    try:
        size = path.stat().st_size
        if rows < 1 or size % (rows * dtype.itemsize):
            raise InputError(f"{path}: holds {size} bytes, expected {rows} rows of {dtype.name}")
        return np.fromfile(path, dtype).reshape(rows, -1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
