"""Files that are costly to make: made once, shared by all test processes, never left half written."""

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from impl.errors import FellOver, InputError


@contextmanager
def written_beside(output: Path) -> Iterator[Path]:
    """A path to write to, on the disk of ``output`` and with its name; renamed to it on success.

    On any error nothing is left, and what stood at ``output`` before still stands there.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        unfinished = Path(folder) / output.name
        yield unfinished
        unfinished.replace(output)


@dataclass(frozen=True)
class ArtifactStore:
    """A folder of files named by a digest of all that they were made from."""

    folder: Path

    def build(self, label: str, parts: Mapping[str, str], builder: Callable[[Path], None], suffix: str = "") -> Path:
        """The file made from ``parts``; ``builder`` writes it to the path it is given, on first use only.

        ``label`` says what the file is and is part of its name; together with ``parts`` it must name all
        that decides the content and is not the same throughout the store (checkpoint digest, recipe ...).
        Whoever else asks waits for the first. An error of the builder reaches the asker as it is and
        nothing stays behind, so the next asker runs the builder again; one that fell over is not asked again,
        since it may take its time limit every time.
        """
        readable = re.sub(r"[^\w.-]+", "-", label)
        path = self.folder / f"{readable}-{_digest(label, parts)}{suffix}"
        self.folder.mkdir(parents=True, exist_ok=True)
        fallen = path.with_name(f".{path.name}.fell-over")
        with FileLock(path.with_name(f".{path.name}.lock")):
            if fallen.exists():
                raise FellOver(fallen.read_text())
            if not path.exists():
                try:
                    _build(path, label, builder)
                except FellOver as error:
                    fallen.write_text(str(error))
                    raise
        return path


def _build(path: Path, label: str, builder: Callable[[Path], None]) -> None:
    with written_beside(path) as unfinished:
        builder(unfinished)
        if not unfinished.exists():
            raise InputError(f"artifact {label}: nothing was written")


def _digest(label: str, parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps([label, parts], sort_keys=True).encode()).hexdigest()[:16]
