"""Bytes against ggml's C library on blocks that nobody chose, shrunk to the simplest that shows a difference."""

import numpy as np
import pytest
from numpy.typing import NDArray

from impl.catalogue import resolve
from impl.errors import InputError
from impl.protocol import Quantizer
from suite.claims import claim
from suite.kit import layout
from suite.kit.answers import quantized
from suite.kit.block_cases import GENERATED
from suite.kit.results import Measure, Undecided
from suite.kit.selection import ORACLE, require_importance, require_member
from suite.kit.strategies import LEAST_VALUES, Case, generated, shrunk


@claim("bytes.fuzz")
@pytest.mark.parametrize("with_importance", [False, True], ids=["plain", "importance"])
def test_generated_blocks_are_byte_identical_to_ggml(
    quantizer: Quantizer, block_type: str, with_importance: bool, measured: Measure
) -> None:
    """Quantizing any one block, with importance or without, gives the bytes of ggml's C library: ties, zeros of
    both signs, subnormals, lonely extremes."""
    require_member(quantizer, "types", block_type)
    if with_importance:
        require_importance(quantizer, "quantize")
    values = max(layout.block_size(block_type)[0], LEAST_VALUES)
    blocks = generated(values, with_importance, GENERATED)
    differences = [difference(quantizer, block_type, case) for case in blocks]
    compared = sum(each is not None for each in differences)
    if not compared:
        raise Undecided(f"{ORACLE} quantizes no {block_type} {'with' if with_importance else 'without'} importance")
    differing = [case for case, each in zip(blocks, differences, strict=True) if each]
    measured("blocks compared", compared)
    measured("blocks that differ", len(differing))
    assert not differing, _on_the_simplest(quantizer, block_type, differing[0])


def _on_the_simplest(quantizer: Quantizer, block_type: str, differing: Case) -> str:
    case = shrunk(differing, lambda case: bool(difference(quantizer, block_type, case)), GENERATED)
    return f"{block_type}: {difference(quantizer, block_type, case)}\n{case}"


def difference(quantizer: Quantizer, block_type: str, case: Case) -> str | None:
    """How the implementation's bytes differ from the oracle's; empty where they agree.

    None where nothing is decided: the oracle refuses the block or makes infinities of it, or it keeps
    nothing of a block that the implementation refuses.
    """
    oracle = resolve(ORACLE)
    try:
        expected = oracle.quantize(case.weight, block_type, case.importance)
    except InputError:
        return None
    kept = oracle.dequantize(expected, block_type)
    if not np.isfinite(kept).all():
        return None
    try:
        found = quantized(quantizer, case.weight, block_type, case.importance)
    except Exception as refusal:
        lost = case.weight.any() and not kept.any()
        return None if lost else f"a block is refused that {ORACLE} quantizes: {refusal}"
    return _difference_of_bytes(found, expected)


def _difference_of_bytes(found: NDArray[np.uint8], expected: NDArray[np.uint8]) -> str:
    differing = np.flatnonzero(found != expected)
    if not differing.size:
        return ""
    return (
        f"{differing.size} of a block's {expected.size} bytes differ from {ORACLE}'s, the first at {differing[0]}\n"
        f"expected = bytes.fromhex('{expected.tobytes().hex()}')\n"
        f"found = bytes.fromhex('{found.tobytes().hex()}')"
    )
