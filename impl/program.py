"""A program in any language as an implementation: run anew for each call, as its manifest says.

Matrices go in and come back as raw files in a temporary folder: float32 little-endian, blocks as bytes. An
exit code other than 0 is how a program refuses its input, its last lines are the message. A program that a
signal or a limit ends, or that reports success without having written what it should, has fallen over.
"""

import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from impl.commands import filled, named
from impl.errors import FellOver, InputError
from impl.manifest import Manifest
from impl.output import written_whole
from impl.process import Process
from impl.protocol import Metadata
from impl.raw_files import FLOAT32, INT32, UINT8, read_raw, write_raw
from impl.reference.blocks import FORMATS, READ_ONLY
from impl.reference.convert import convert

METHODS: Mapping[str, str] = {
    "quantize": "quantize",
    "dequantize": "dequantize",
    "convert": "convert",
    "logits": "load",
}
"""Each command of a manifest, and the method of the contract that it makes an offer of."""

FIRST_TOKEN = 0
"""Every vocabulary has it."""

GGUF_MAGIC = b"GGUF"


class RunAs(Exception):
    """The command line of a call that failed, as its cause: in a note it would be taken for the message."""


class Program:
    """The implementation that a manifest describes; it has the methods whose commands are given."""

    def __init__(self, manifest: Manifest) -> None:
        self.name, self.version, self.deviations = manifest.name, manifest.version, manifest.deviations
        self.types, self.readable_types = tuple(manifest.types), tuple(manifest.readable_types)
        self.recipes, self.backends, self.metadata = tuple(manifest.recipes), manifest.backends, manifest.metadata
        self._runner = Runner(manifest)
        for command in METHODS.keys() & manifest.commands.keys():
            method = getattr(self, f"_{METHODS[command]}")
            takes_importance = "importance" in self._runner.mentioned(command)
            setattr(self, METHODS[command], method if takes_importance else _without_importance(method))

    def _quantize(
        self, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None = None
    ) -> NDArray[np.uint8]:
        """See ``impl.protocol.Quantizer``."""
        rows, columns = weight.shape
        with self._runner.folder() as folder:
            files = {"input": folder / "input.f32", "output": folder / "output.blocks"}
            write_raw(weight, files["input"], FLOAT32)
            if importance is not None:
                files["importance"] = folder / "importance.f32"
                write_raw(importance, files["importance"], FLOAT32)
            values = {"type": self._runner.own_name("types", type), "rows": rows, "columns": columns, **files}
            return self._runner.array("quantize", values, rows, UINT8, _row_bytes(type, columns))

    def _dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """See ``impl.protocol.Dequantizer``."""
        rows, columns = len(blocks), _columns(type, blocks)
        with self._runner.folder() as folder:
            files = {"input": folder / "input.blocks", "output": folder / "output.f32"}
            write_raw(blocks, files["input"], UINT8)
            values = {"type": self._runner.own_name("readable_types", type), "rows": rows, "columns": columns, **files}
            return self._runner.array("dequantize", values, rows, FLOAT32, columns)

    def _convert(
        self,
        checkpoint: Path,
        output: Path,
        recipe: str,
        metadata: Metadata = "full",
        importance: Path | None = None,
    ) -> None:
        """See ``impl.protocol.Converter``. ``{f32}`` is an F32 file with full metadata, made by the reference."""
        values = {"recipe": self._runner.own_name("recipes", recipe), "metadata": metadata}
        with written_whole(output) as unfinished, self._runner.folder() as folder:
            files = {"checkpoint": checkpoint.resolve(), "f32": folder / "f32.gguf", "output": folder / "output.gguf"}
            if importance is not None:
                files["importance"] = importance.resolve()
            if "f32" in self._runner.mentioned("convert"):
                convert(checkpoint, files["f32"], "f32")
            ending = self._runner.run("convert", {**values, **files})
            if not _is_gguf(files["output"]):
                raise FellOver(f"{self.name}: convert: wrote no GGUF file; {ending}")
            shutil.move(files["output"], unfinished)

    def _load(self, path: Path, backend: str) -> "ProgramModel":
        """See ``impl.protocol.Engine``. Runs one token: a refusal shows, and the size of the vocabulary."""
        if backend not in self.backends:
            raise InputError(f"backend {backend!r}: unknown to {self.name}, expected {', '.join(self.backends)}")
        untried = ProgramModel(self._runner, path.resolve(), backend, vocabulary=None)
        vocabulary = untried.logits([FIRST_TOKEN]).shape[1]
        return ProgramModel(self._runner, path.resolve(), backend, vocabulary)


class ProgramModel:
    """A GGUF file that a program reads anew for every call; it generates where the manifest says how."""

    def __init__(self, runner: "Runner", file: Path, backend: str, vocabulary: int | None) -> None:
        self._runner, self._vocabulary = runner, vocabulary
        self._values = {"file": file, "backend": backend}
        if "generate" in runner.manifest.commands:
            self.generate = self._generate

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """See ``impl.protocol.Model``."""
        with self._runner.folder() as folder:
            values = {**self._values, "tokens": _listed(tokens), "output": folder / "output.f32"}
            return self._runner.array("logits", values, len(tokens), FLOAT32, self._vocabulary)

    def _generate(self, prompt: Sequence[int], n: int) -> list[int]:
        """See ``impl.protocol.Model``."""
        with self._runner.folder() as folder:
            values = {**self._values, "tokens": _listed(prompt), "count": n, "output": folder / "output.i32"}
            return self._runner.array("generate", values, 1, INT32, n)[0].tolist()


@dataclass(frozen=True)
class Runner:
    """Runs the commands of a manifest, in the folder that the manifest lies in."""

    manifest: Manifest

    def own_name(self, attribute: str, ours: str) -> str:
        """What the program calls a type or recipe; ``InputError`` for one that it does not offer."""
        names: Mapping[str, str] = getattr(self.manifest, attribute)
        if ours not in names:
            raise InputError(f"{self.manifest.name}: {ours!r} is not among its {attribute}: {', '.join(names)}")
        return names[ours]

    def mentioned(self, command: str) -> set[str]:
        """The placeholders in the template of a command."""
        return set().union(
            *(named([part] if isinstance(part, str) else part) for part in self.manifest.commands[command])
        )

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for one call's files."""
        with tempfile.TemporaryDirectory(prefix="gguf-conformance-") as folder:
            yield Path(folder)

    def run(self, command: str, values: Mapping[str, object]) -> str:
        """Run one command; how it ended and its last lines. Raises ``InputError`` where it refuses, or ``FellOver``."""
        line = filled(self.manifest.commands[command], values)
        try:
            process = Process(line, folder=self.manifest.path.parent.resolve())
        except FellOver as error:
            raise FellOver(f"{self.manifest.name}: {command}: {error}") from error
        try:
            with process.within(self.manifest.limits):
                code = process.wait()
        finally:
            process.end()
        if code != 0:
            error = FellOver if code is None else InputError
            raise error(f"{self.manifest.name}: {command}: {process.ending()}") from RunAs(shlex.join(line))
        return process.ending()

    def array(
        self, command: str, values: Mapping[str, object], rows: int, dtype: np.dtype, columns: int | None
    ) -> NDArray:
        """Run one command and read its output, ``dtype``[rows, columns]; None is for any number of columns."""
        ending = self.run(command, values)
        output = Path(str(values["output"]))
        found = output.stat().st_size if output.is_file() else 0
        whole_rows = found > 0 and found % (rows * dtype.itemsize) == 0
        if not whole_rows or (columns is not None and found != rows * columns * dtype.itemsize):
            size = "a multiple of" if columns is None else f"{columns * dtype.itemsize} bytes for each of"
            raise FellOver(
                f"{self.manifest.name}: {command}: wrote {found} bytes, expected {size} {rows} rows; {ending}"
            )
        return read_raw(output, rows, dtype)


def _without_importance(method: Callable[..., object]) -> Callable[..., object]:
    """The method without its parameter ``importance``, as the contract asks of whoever takes none."""
    whole = signature(method)
    without = partial(method)
    without.__signature__ = whole.replace(
        parameters=[each for name, each in whole.parameters.items() if name != "importance"]
    )
    return without


def _row_bytes(type: str, columns: int) -> int | None:
    """The bytes of a row; None where the row is not a multiple of the block, which is the program's to refuse."""
    block_format = {**FORMATS, **READ_ONLY}[type]
    return None if columns % block_format.values else columns // block_format.values * block_format.bytes


def _columns(type: str, blocks: NDArray[np.uint8]) -> int:
    block_format = {**FORMATS, **READ_ONLY}[type]
    if blocks.shape[1] % block_format.bytes:
        shape = list(blocks.shape)
        raise InputError(f"{type} blocks of shape {shape}: a row must be a multiple of {block_format.bytes} bytes")
    return blocks.shape[1] // block_format.bytes * block_format.values


def _is_gguf(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC


def _listed(tokens: Sequence[int]) -> str:
    return ",".join(str(token) for token in tokens)
