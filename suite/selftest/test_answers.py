"""An answer that breaks the contract is an error of its claim, in one line that says what was found."""

from types import SimpleNamespace

import numpy as np
import pytest

from impl.errors import FellOver
from suite.kit.answers import dequantized, quantized

WEIGHT = np.ones((2, 64), np.float32)
BLOCKS = np.zeros((2, 68), np.uint8)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (None, "found NoneType"),
        (BLOCKS.tolist(), "found list"),
        (BLOCKS.astype(np.int8), "found int8 of shape [2, 68]"),
        (BLOCKS[:1], "found uint8 of shape [1, 68]"),
        (BLOCKS.reshape(4, 34), "found uint8 of shape [4, 34]"),
    ],
)
def test_blocks_of_another_kind_are_an_error(answer: object, found: str) -> None:
    quantizer = SimpleNamespace(name="mine", quantize=lambda weight, type: answer)
    with pytest.raises(FellOver) as raised:
        quantized(quantizer, WEIGHT, "q8_0")
    assert str(raised.value) == f"mine: q8_0 blocks: {found}, expected uint8 of shape [2, 68]"


def test_weights_of_another_kind_are_an_error() -> None:
    dequantizer = SimpleNamespace(name="mine", dequantize=lambda blocks, type: WEIGHT.astype(np.float16))
    with pytest.raises(FellOver, match=r"mine: q8_0 weights: found float16 of shape \[2, 64\], expected float32"):
        dequantized(dequantizer, BLOCKS, "q8_0")


def test_an_importance_is_handed_on_only_where_there_is_one() -> None:
    handed: list[tuple] = []
    quantizer = SimpleNamespace(name="mine", quantize=lambda *arguments: handed.append(arguments[2:]) or BLOCKS)
    quantized(quantizer, WEIGHT, "q8_0")
    quantized(quantizer, WEIGHT, "q8_0", np.ones(64, np.float32))
    assert [len(each) for each in handed] == [0, 1]
