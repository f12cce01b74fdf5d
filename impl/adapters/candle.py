"""candle, by its own Python wheel ``candle-nn``: quantizers, dequantizers, and a Llama of its ``QTensor``s.

The wheel gives no bytes of a ``QTensor`` and takes none, but it reads and writes GGUF: blocks go in and come out
through files with one tensor.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from candle import QTensor, Tensor
from candle.utils import load_gguf, load_safetensors, save_gguf, save_safetensors
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from impl.adapters.unchecked import unchecked
from impl.errors import InputError
from impl.protocol import Arithmetic, Metadata
from impl.reference.gguf_file import open_gguf
from impl.reference.hyperparameters import read_hyperparameters
from impl.reference.llama import Llama
from impl.reference.weights import read_weights

TYPES: Mapping[str, str] = {
    "f32": "f32",
    "f16": "f16",
    "q4_0": "q4_0",
    "q4_1": "q4_1",
    "q5_0": "q5_0",
    "q5_1": "q5_1",
    "q8_0": "q8_0",
    "q2_k": "q2k",
    "q3_k": "q3k",
    "q4_k": "q4k",
    "q5_k": "q5k",
    "q6_k": "q6k",
}
"""Each type with candle's name for it, as of candle-nn 0.4.2."""

SATURATED = (
    "the inverse of a subnormal scale is infinite, and Rust's casts to a code saturate where C's come to 0: "
    "blocks of values below 1e-37 differ"
)
OLDER_SEARCH: Mapping[str, str] = {
    type: f"candle-nn 0.4.2 has an older form of ggml's search for scales: {share} of the bytes of all inputs differ"
    for type, share in {"q2_k": "42 %", "q3_k": "5 %", "q4_k": "36 %", "q5_k": "29 %", "q6_k": "23 %"}.items()
}
OVERFLOWING: Mapping[str, tuple[str, ...]] = {
    "8.4e6": ("f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k"),
    "1e30": ("f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q4_k", "q5_k"),
}
"""By weight, the types whose float16 scale overflows without a word."""
DEVIATIONS: Mapping[str, str] = {
    **{
        claim.format(type): SATURATED
        for type in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
        for claim in ("bytes.quantize[{}]", "bytes.fuzz[{}-plain]")
    },
    **{
        claim.format(type): reason
        for type, reason in OLDER_SEARCH.items()
        for claim in ("bytes.quantize[{}]", "bytes.fuzz[{}-plain]", "bytes.vectors[{}-quantize]")
    },
    "causality.alone[cpu-f32]": "candle sums in another order for another number of rows: 3.8e-5 on smollm2",
    "causality.alone[cpu-q8_0]@smollm2": (
        "candle's order of summation in attention depends on the number of rows, which moves activations across "
        "rounding boundaries: 0.74"
    ),
    "rope.neox-bit-for-bit": "candle sums in an order of its own, not torch's",
    **{
        f"blocks.sound[{type}]": "a super-block of equal weights comes back as zeros"
        for type in ("q2_k", "q4_k", "q5_k")
    },
    **unchecked("candle", (type for type in TYPES if type not in ("f32", "f16")), OVERFLOWING),
}


class Candle:
    """candle's own quantizers, dequantizers and quantized matrix product, on the CPU.

    The wheel has no Llama with grouped heads. The engine is ``quantized_llama``'s forward pass, its keys read by
    the rules of candle (``impl.reference.hyperparameters``), with every operation on tensors computed by candle.
    candle 0.4.2 refuses to multiply by Q4_1 and Q5_0 where a row has an odd number of blocks.
    """

    name = "candle"
    version = version("candle-nn")
    deviations: Mapping[str, str] = DEVIATIONS
    types: Sequence[str] = tuple(TYPES)
    metadata: Metadata = "minimal"
    backends: Mapping[str, Arithmetic] = {"cpu": "quantized-activations"}

    def quantize(self, weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
        """Float32[rows, cols] to uint8[rows, bytes per row] with ``Tensor.quantize``.

        Raises ``InputError`` with candle's own words for a row that is not a multiple of the block.
        """
        with in_one_line(), TemporaryDirectory() as scratch:
            file = Path(scratch, "tensor.gguf")
            save_gguf(str(file), {"tensor": to_candle(weight).quantize(_name(type))}, {})
            return GGUFReader(file).tensors[0].data.view(np.uint8).copy()

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """uint8[rows, bytes per row] to float32[rows, cols] with ``QTensor.dequantize``."""
        with in_one_line():
            return to_numpy(to_qtensor(blocks, type).dequantize())

    def load(self, path: Path, backend: str) -> Llama:
        """A Llama that multiplies with ``QTensor.matmul_t``; ``InputError`` names a key or tensor that is missing."""
        from impl.adapters.candle_operations import CandleOperations

        file, operations = open_gguf(path), CandleOperations()
        sizes = read_hyperparameters(file)
        with in_one_line():
            weights = read_weights(file, sizes, operations)
        return Llama(sizes, weights, operations, chunk=None, generating_chunk=None)


def to_candle(values: NDArray[np.float32]) -> Tensor:
    """The same values as a tensor of candle's."""
    with TemporaryDirectory() as scratch:
        file = Path(scratch, "tensor.safetensors")
        save_file({"tensor": np.ascontiguousarray(values, dtype=np.float32)}, file)
        return load_safetensors(str(file))["tensor"]


def to_numpy(tensor: Tensor) -> NDArray[np.float32]:
    """The values of a float32 tensor of candle's."""
    with TemporaryDirectory() as scratch:
        file = Path(scratch, "tensor.safetensors")
        save_safetensors(str(file), {"tensor": tensor})
        return load_file(file)["tensor"]


def to_qtensor(blocks: NDArray[np.uint8], type: str) -> QTensor:
    """uint8[rows, bytes per row] as candle reads them; ``InputError`` for a type that candle does not have."""
    _name(type)
    with TemporaryDirectory() as scratch:
        file = Path(scratch, "tensor.gguf")
        writer = GGUFWriter(file, "llama")
        writer.add_tensor("tensor", np.ascontiguousarray(blocks), raw_dtype=GGMLQuantizationType[type.upper()])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return load_gguf(str(file))[0]["tensor"]


def _name(type: str) -> str:
    if type not in TYPES:
        raise InputError(f"type {type!r}: candle has {', '.join(TYPES)}")
    return TYPES[type]


@contextmanager
def in_one_line() -> Iterator[None]:
    """candle's errors without the backtraces that are in their text."""
    try:
        yield
    except ValueError as error:
        message = re.search(r'Msg\("(.*?)"\)', str(error))
        raise InputError(f"candle: {message[1] if message else error}") from error
