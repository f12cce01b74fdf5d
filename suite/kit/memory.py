"""Giving memory back: a transformers model is a web of reference cycles that holds up to a gigabyte."""

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def given_back() -> Iterator[None]:
    """When the block ends, collect the models that were loaded in it and return their memory to the system."""
    try:
        yield
    finally:
        gc.collect()
        _trim_heap()


def _trim_heap() -> None:
    # glibc keeps what was freed between two tensors; other C libraries have no such call and no such habit.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
