"""Messages between two processes: pickles through a pipe, large arrays in them through files beside it.

A pipe takes 64 KiB at a time, so that 60 MB of logits would be a thousand turns of both processes.
"""

import pickle
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO, Any

import numpy as np

THROUGH_THE_PIPE = 1 << 15
"""Bytes; a larger array goes into a file."""

SHARED_MEMORY = Path("/dev/shm")
"""A folder in memory, where the system has one and containers do not keep it small."""

ROOM = 1 << 30
"""Bytes that it must have free."""


def folder_for_arrays() -> Path:
    """A new folder for one conversation; whoever made it removes it."""
    in_memory = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > ROOM
    return Path(tempfile.mkdtemp(prefix="gguf-conformance-", dir=SHARED_MEMORY if in_memory else None))


@dataclass(frozen=True)
class Conversation:
    """One side of it. ``folder`` is the same for both, ``side`` is not."""

    incoming: IO[bytes]
    outgoing: IO[bytes]
    folder: Path
    side: str
    _numbers: count = field(default_factory=count)

    def send(self, message: object) -> None:
        """Send any object; one that does not pickle raises before anything is sent."""
        arrays: list[Path] = []

        def beside(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes <= THROUGH_THE_PIPE:
                return True
            arrays.append(self.folder / f"{self.side}-{next(self._numbers)}")
            arrays[-1].write_bytes(raw)
            return False

        head = pickle.dumps(message, protocol=5, buffer_callback=beside)
        pickle.dump((head, arrays), self.outgoing)
        self.outgoing.flush()

    def receive(self) -> Any:  # noqa: ANN401
        """The next message; ``EOFError`` where the other side is gone."""
        head, arrays = pickle.load(self.incoming)
        # Copy-on-write: what the receiver does to an array is its own affair.
        buffers = [np.memmap(path, np.uint8, mode="c") for path in arrays]
        message = pickle.loads(head, buffers=buffers)
        for path in arrays:
            # The mapping outlives the name; where a name in use cannot go, the folder's owner removes it.
            with suppress(PermissionError):
                path.unlink()
        return message
