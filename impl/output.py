"""Output files appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from impl.errors import InputError


@contextmanager
def written_whole(output: Path) -> Iterator[Path]:
    """A path beside ``output`` to write to; it becomes ``output`` when the block ends without an error.

    On any error it is removed and what was at ``output`` stays. Raises ``InputError`` when ``output`` cannot
    be written.
    """
    if output.is_dir():
        raise InputError(f"{output}: is a folder, expected a path for the output file")
    unfinished = output.with_name(f".{output.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        unfinished.replace(output)
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
