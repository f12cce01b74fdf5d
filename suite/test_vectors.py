"""Bytes against the recorded vectors, which programs in other languages read too."""

import numpy as np
import pytest

from impl.protocol import Implementation, takes_importance
from suite.claims import claim
from suite.kit import vectors
from suite.kit.answers import dequantized, quantized
from suite.kit.results import Measure
from suite.kit.selection import require, require_member
from suite.kit.vectors import Vector


@claim("bytes.vectors")
@pytest.mark.parametrize("direction", ["quantize", "dequantize"])
def test_recorded_vectors_are_byte_identical(
    implementation: Implementation, block_type: str, direction: str, measured: Measure
) -> None:
    """Every vector recorded of a type is reproduced to the bit, quantizing and dequantizing."""
    capability, types, reproduced = {
        "quantize": ("quantizer", "types", _quantized_alike),
        "dequantize": ("dequantizer", "readable_types", _dequantized_alike),
    }[direction]
    require(implementation, capability)
    require_member(implementation, types, block_type)
    recorded = getattr(vectors.load(block_type), direction)
    if direction == "quantize" and not takes_importance(implementation.quantize):
        recorded = [each for each in recorded if each.importance is None]
    differing = [each for each in recorded if not reproduced(implementation, block_type, each)]
    measured("vectors reproduced", len(recorded) - len(differing))
    assert recorded
    first = ", ".join(each.id for each in differing[:4])
    assert not differing, f"{len(differing)} of {len(recorded)} vectors are not reproduced: {first}"


def _quantized_alike(implementation: Implementation, block_type: str, vector: Vector) -> bool:
    blocks = quantized(implementation, vector.weight[None], block_type, vector.importance)
    return np.array_equal(blocks, vector.blocks[None])


def _dequantized_alike(implementation: Implementation, block_type: str, vector: Vector) -> bool:
    # As bits: -0.0 is not 0.0.
    return dequantized(implementation, vector.blocks[None], block_type).tobytes() == vector.weight.tobytes()
