"""Recorded blocks of every type, for programs in any language: one JSON file a type, under ``snapshots/vectors``.

``README.md`` there tells a reader how to use them, ``schema.json`` states their form. They are made with ggml's C
library from ``block_inputs``; made again with the same library, they are the same to the last byte.
"""

import json
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray

from impl.catalogue import resolve
from impl.errors import InputError
from suite.kit import layout
from suite.kit.block_inputs import FINITE, IMPORTANCES, SEED, BlockInput
from suite.kit.selection import ORACLE

FOLDER = Path(__file__).parents[2] / "snapshots" / "vectors"
SCHEMA_VERSION = 1
LEAST_VALUES = 64
"""Two blocks of the smallest types, so that what is left over from the block before shows."""

ROWS: Mapping[str, Sequence[int]] = {
    "ties": (0, 2, 4, 5, 6, 7),
    "constant": (0, 7),
    "both extremes": (0, 4),
    "vanishing": (0, 3),
    "around 1e-15": (1, 3),
    "smallest scales": (0, 2),
    "one weight": (0, 1),
}
"""The rows of an input that differ in what they catch; of every other input the first stands for all.

None whose step has no finite reciprocal: there C leaves the conversion to an integer undefined, and ggml's bytes
are the processor's.
"""

WEIGHED_BY_IMPORTANCE = "normal"
RANDOM_BYTES = "random-bytes"
RANDOM_ROWS = 4


@dataclass(frozen=True)
class Vector:
    """Weights and the blocks that ggml makes of them, or blocks and the weights that it reads from them.

    Float32[values], uint8[bytes], and the importance float32[values] where there is one. ``flags`` are
    keys of the file's table of what a failure means.
    """

    id: str
    flags: tuple[str, ...]
    weight: NDArray[np.float32]
    blocks: NDArray[np.uint8]
    importance: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class TypeVectors:
    """All vectors of one type, in both directions."""

    type: str
    quantize: tuple[Vector, ...]
    dequantize: tuple[Vector, ...]


def load(type: str, folder: Path = FOLDER) -> TypeVectors:
    """The recorded vectors of a type. Raises ``FileNotFoundError`` where none are."""
    content = json.loads((folder / f"{type}.json").read_text("utf-8"))
    quantize, dequantize = (tuple(map(_parsed, content[name])) for name in ("quantize", "dequantize"))
    return TypeVectors(type, quantize, dequantize)


def write_all(folder: Path) -> Iterator[Path]:
    """Make every type's vectors and write them to ``folder``; yields each file when it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    for type in resolve(ORACLE).types:
        path = folder / f"{type}.json"
        path.write_text(as_text(generate(type)), encoding="utf-8", newline="\n")
        yield path


def generate(type: str) -> TypeVectors:
    """Make a type's vectors with the oracle."""
    plain = tuple(_plain(type))
    weighed = tuple(_weighed(type))
    # Of a type that never looks at importance, nothing is to be learned with it.
    matters = not plain or len({vector.blocks.tobytes() for vector in weighed}) > 1
    return TypeVectors(type, plain + weighed if matters else plain, tuple(_random(type)))


def as_text(vectors: TypeVectors) -> str:
    """The file: JSON of the form that ``schema.json`` states, without a date."""
    values, size = layout.block_size(vectors.type)
    used = sorted({flag for vector in (*vectors.quantize, *vectors.dequantize) for flag in vector.flags})
    meanings = _meanings()
    content = {
        "schema": SCHEMA_VERSION,
        "type": vectors.type,
        "block_values": values,
        "block_bytes": size,
        "generator": {
            "program": "ggml C library",
            "package": "libggml-python",
            "version": resolve(ORACLE).version,
            "machine": platform.machine(),
        },
        "flags": {flag: meanings[flag] for flag in used},
        "quantize": list(map(_plain_data, vectors.quantize)),
        "dequantize": list(map(_plain_data, vectors.dequantize)),
    }
    return json.dumps(content, indent=1) + "\n"


def _plain(type: str) -> Iterator[Vector]:
    for block_input in FINITE:
        for row in ROWS.get(block_input.name, (0,)):
            weight = _row(block_input, row, type)
            try:
                blocks = _quantized(type, weight)
            except InputError:
                return  # The oracle asks for an importance.
            yield Vector(f"{type}/quantize/{_slug(block_input.name)}/{row}", (_slug(block_input.name),), weight, blocks)


def _weighed(type: str) -> Iterator[Vector]:
    block_input = next(each for each in FINITE if each.name == WEIGHED_BY_IMPORTANCE)
    weight = _row(block_input, 0, type)
    for importance in IMPORTANCES:
        columns = importance.columns()[: weight.size]
        flags = (_slug(block_input.name), _importance_flag(importance.name))
        identity = "/".join((type, "quantize", flags[0], "0", flags[1]))
        yield Vector(identity, flags, weight, _quantized(type, weight, columns), columns)


def _random(type: str) -> Iterator[Vector]:
    """Rows of random bytes whose values are all finite: a NaN's payload has no meaning."""
    random = default_rng(SEED)
    row_bytes = layout.tensor_bytes((_values(type),), type)
    found = 0
    while found < RANDOM_ROWS:
        blocks = random.integers(0, 256, row_bytes, dtype=np.uint8)
        (weight,) = resolve(ORACLE).dequantize(blocks[None], type)
        if np.isfinite(weight).all():
            yield Vector(f"{type}/dequantize/{RANDOM_BYTES}/{found}", (RANDOM_BYTES,), weight, blocks)
            found += 1


def _values(type: str) -> int:
    return max(LEAST_VALUES, layout.block_size(type)[0])


def _row(block_input: BlockInput, row: int, type: str) -> NDArray[np.float32]:
    return block_input.weight()[row, : _values(type)]


def _quantized(
    type: str, weight: NDArray[np.float32], importance: NDArray[np.float32] | None = None
) -> NDArray[np.uint8]:
    return resolve(ORACLE).quantize(weight[None], type, importance)[0]


def _meanings() -> Mapping[str, str]:
    """What each flag says of a program that fails its vectors."""
    return {
        **{_slug(each.name): each.catches for each in FINITE},
        **{_importance_flag(each.name): each.catches for each in IMPORTANCES},
        RANDOM_BYTES: "codes in another order, a bit of a scale or sign read from elsewhere, bytes no quantizer writes",
    }


def _importance_flag(name: str) -> str:
    return f"importance-{_slug(name)}"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def _plain_data(vector: Vector) -> dict[str, object]:
    data: dict[str, object] = {"id": vector.id, "flags": list(vector.flags), "weight": _hex(vector.weight)}
    if vector.importance is not None:
        data["importance"] = _hex(vector.importance)
    return {**data, "blocks": vector.blocks.tobytes().hex()}


def _parsed(data: Mapping[str, object]) -> Vector:
    importance = _floats(data["importance"]) if "importance" in data else None
    blocks = np.frombuffer(bytes.fromhex(data["blocks"]), np.uint8)
    return Vector(data["id"], tuple(data["flags"]), _floats(data["weight"]), blocks, importance)


def _hex(values: NDArray[np.float32]) -> str:
    return values.astype("<f4").tobytes().hex()


def _floats(text: str) -> NDArray[np.float32]:
    return np.frombuffer(bytes.fromhex(text), "<f4").astype(np.float32)
