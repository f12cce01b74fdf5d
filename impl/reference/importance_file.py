"""Importance matrix files: llama.cpp's GGUF form (since mid-2025), and the binary form before it.

The GGUF form has ``general.type`` "imatrix", the keys below, and two float32 tensors for each matrix: its name and
``.in_sum2``, the sum of squares of each column, and its name and ``.counts``, how many squares that were.
"""

import struct
from contextlib import closing
from io import BytesIO
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFType, GGUFValueType, GGUFWriter, Keys
from numpy.typing import NDArray

from impl.errors import InputError
from impl.output import written_whole
from impl.reference.gguf_file import GgufFile, open_gguf
from impl.reference.importance import ColumnSquares, ImportanceMatrix

MAGIC = b"GGUF"
SUMS, COUNTS = ".in_sum2", ".counts"


def write_importance(matrix: ImportanceMatrix, output: Path) -> None:
    """Write the GGUF form, matrices in the order of their names; ``InputError`` where it cannot be written."""
    # Without an architecture gguf leaves the key out; llama.cpp's files have none.
    with written_whole(output) as unfinished, closing(GGUFWriter(unfinished, arch="")) as writer:
        writer.add_type(GGUFType.IMATRIX)
        writer.add_array(Keys.IMatrix.DATASETS, matrix.datasets)
        writer.add_uint32(Keys.IMatrix.CHUNK_COUNT, matrix.chunks)
        writer.add_uint32(Keys.IMatrix.CHUNK_SIZE, matrix.chunk_size)
        for name, squares in sorted(matrix.columns.items()):
            writer.add_tensor(f"{name}{SUMS}", squares.sums)
            writer.add_tensor(f"{name}{COUNTS}", np.array([squares.count], np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()


def read_importance(path: Path) -> ImportanceMatrix:
    """Read either form.

    Raises ``InputError`` for a file that is absent, damaged or of neither form, and for an importance that is NaN,
    infinite or negative, or was measured on nothing, naming the tensor.
    """
    try:
        with path.open("rb") as file:
            is_gguf = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise InputError(f"{path}: not a readable importance matrix: {error.strerror}") from error
    return _from_gguf(open_gguf(path)) if is_gguf else _BinaryReader(path).matrix()


def _from_gguf(file: GgufFile) -> ImportanceMatrix:
    kind = file.require(Keys.General.TYPE, GGUFValueType.STRING)
    if kind != GGUFType.IMATRIX:
        raise InputError(f"{file.path}: general.type is {kind!r}, expected {GGUFType.IMATRIX!r}")
    # What else a file holds, such as the sums of activations themselves, says nothing of importance.
    suffixes = (SUMS, COUNTS)
    names = {name.removesuffix(end) for end in suffixes for name in file.tensors if name.endswith(end)}
    return ImportanceMatrix(
        columns={name: _squares(file, name) for name in sorted(names)},
        datasets=_datasets(file),
        chunks=int(file.require(Keys.IMatrix.CHUNK_COUNT, GGUFValueType.UINT32)),
        chunk_size=int(file.require(Keys.IMatrix.CHUNK_SIZE, GGUFValueType.UINT32)),
    )


def _datasets(file: GgufFile) -> tuple[str, ...]:
    names = file.require(Keys.IMatrix.DATASETS, GGUFValueType.ARRAY)
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{file.path}: {Keys.IMatrix.DATASETS} is {names}, expected an array of STRING")
    return tuple(names)


def _squares(file: GgufFile, name: str) -> ColumnSquares:
    sums, counts = (_floats(file, f"{name}{end}") for end in (SUMS, COUNTS))
    if counts.size != 1:
        raise InputError(f"{file.path}: tensor {name}{COUNTS} has {counts.size} values, expected 1")
    return _checked(file.path, name, sums, float(counts[0]))


def _floats(file: GgufFile, name: str) -> NDArray[np.float32]:
    file.shape(name)
    tensor = file.tensors[name]
    if tensor.tensor_type != GGMLQuantizationType.F32:
        raise InputError(f"{file.path}: tensor {name} is {tensor.tensor_type.name}, expected F32")
    return tensor.data.reshape(-1)


def _checked(path: Path, name: str, sums: NDArray[np.float32], count: float) -> ColumnSquares:
    try:
        return ColumnSquares(sums, count)
    except InputError as error:
        raise InputError(f"{path}: tensor {name}: {error}") from error


class _BinaryReader:
    """int32 number of matrices; for each: name, int32 chunks, int32 number of columns, the columns' float32.

    A column's float32 is its mean square, added up over the chunks. Then, in all but the oldest files, int32 chunks
    of the whole run and the name of the data set. Names are int32 length and UTF-8 text.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # In memory, where a length that the file does not have allocates nothing.
        self.rest = BytesIO(path.read_bytes())

    def matrix(self) -> ImportanceMatrix:
        columns = dict(self._matrix() for _ in range(self._number("matrices", least=1)))
        chunks, datasets = 0, ()
        if not self._at_end():
            chunks, datasets = self._number("chunks"), (self._text(),)
        if not self._at_end():
            raise InputError(f"{self.path}: goes on after its {len(columns)} matrices, expected its end")
        return ImportanceMatrix(columns, datasets, chunks, chunk_size=1)

    def _matrix(self) -> tuple[str, ColumnSquares]:
        name = self._text()
        chunks = self._number(f"chunks of {name}")
        sums = np.frombuffer(self._bytes(4 * self._number(f"columns of {name}", least=1)), "<f4")
        return name, _checked(self.path, name, sums, chunks)

    def _text(self) -> str:
        encoded = self._bytes(self._number("bytes of a name"))
        try:
            return encoded.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path}: not an importance matrix: {encoded[:20]} is not UTF-8 text") from error

    def _number(self, counted: str, least: int = 0) -> int:
        (number,) = struct.unpack("<i", self._bytes(4))
        if number < least:
            raise InputError(f"{self.path}: not an importance matrix: {number} {counted}, expected at least {least}")
        return number

    def _bytes(self, size: int) -> bytes:
        start, read = self.rest.tell(), self.rest.read(size)
        if len(read) < size:
            end = start + size
            raise InputError(
                f"{self.path}: not an importance matrix: {start + len(read)} bytes, expected at least {end}"
            )
        return read

    def _at_end(self) -> bool:
        return self.rest.tell() == len(self.rest.getbuffer())
