"""The size of a GGUF file, from the format's definition alone.

Source: the GGUF specification, version 3. A header of 24 bytes; each key as length, text, value type
and value; each tensor as name, number of dimensions, dimensions, type and offset; then the data, and
after the header and after every tensor zeros up to a multiple of 32.
"""

from collections.abc import Iterable, Mapping
from math import prod

ALIGNMENT = 32
HEADER = 4 + 4 + 8 + 8
FALLBACKS: Mapping[str, str] = {
    "q2_k": "q4_0",
    "q3_k": "q4_0",
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
    "tq1_0": "q4_0",
    "tq2_0": "q4_0",
    "iq4_xs": "iq4_nl",
}
"""What llama.cpp takes where a row is not a multiple of the type's block."""

NEWER_THAN_GGUF: Mapping[str, tuple[int, int]] = {"q2_0": (64, 18)}
"""Values and bytes of the blocks that the gguf package does not know yet."""


def padded(size: int) -> int:
    """``size`` bytes, rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def tensor_bytes(shape: tuple[int, ...], type: str) -> int:
    """The bytes of a tensor's data."""
    block, size = block_size(type)
    return prod(shape) // block * size


def block_size(type: str) -> tuple[int, int]:
    """Values and bytes of a type's block."""
    if type in NEWER_THAN_GGUF:
        return NEWER_THAN_GGUF[type]
    # Here, because header checks that only need the fallbacks must not pay for it.
    import gguf

    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type.upper()]]


def bits_per_weight(type: str) -> float:
    """What a weight of a type takes in a file."""
    values, size = block_size(type)
    return 8 * size / values


def type_of(shape: tuple[int, ...], recipe: str) -> str:
    """The type that a recipe named after a type gives a tensor: 1-D stays F32, rows decide the fallback."""
    if len(shape) == 1:
        return "f32"
    for type in (recipe, FALLBACKS.get(recipe, "f16"), "f16"):
        block, _ = block_size(type)
        if shape[-1] % block == 0:
            return type
    raise AssertionError("f16 fits every row")


def file_size(value_sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]], types: Mapping[str, str]) -> int:
    """The bytes of a whole file; ``value_sizes`` are the bytes of each key's value."""
    keys = sum(8 + len(key.encode()) + 4 + size for key, size in value_sizes.items())
    infos = sum(8 + len(name.encode()) + 4 + 8 * len(shape) + 4 + 8 for name, shape in shapes.items())
    data: Iterable[int] = (padded(tensor_bytes(shape, types[name])) for name, shape in shapes.items())
    return padded(HEADER + keys + infos) + sum(data)
