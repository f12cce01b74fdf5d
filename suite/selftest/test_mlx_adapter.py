"""What MLX's own reader, writer and quantizer make of GGUF: what the adapter declares of them is so, and no more."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from numpy.typing import NDArray

from impl.adapters.ggml import Ggml
from impl.adapters.mlx import BITS, CONVERTED, Mlx
from impl.errors import InputError
from suite.kit.layout import tensor_bytes

ORACLE, MLX, CPU = Ggml(), Mlx(), mx.Device(mx.cpu)
WEIGHT = np.random.default_rng(5).normal(0, 0.1, (4, 512)).astype(np.float32)
UNREAD = sorted(
    {type for type in ORACLE.types if type.upper() in GGMLQuantizationType.__members__} - {*CONVERTED, *BITS}
)


def blocks(type: str) -> NDArray[np.uint8]:
    """Ordinary weights as ggml quantizes them."""
    return ORACLE.quantize(WEIGHT, type, np.ones(WEIGHT.shape[1], np.float32))


@pytest.mark.parametrize("type", BITS)
def test_types_that_it_keeps_quantized_are_the_same_weights(type: str) -> None:
    assert np.array_equal(MLX.dequantize(blocks(type), type), ORACLE.dequantize(blocks(type), type))


@pytest.mark.parametrize("type", sorted({*CONVERTED} - {"f32", "q4_k"}))
def test_types_that_it_converts_are_the_same_weights_rounded_to_float16(type: str) -> None:
    rounded = ORACLE.dequantize(blocks(type), type).astype(np.float16).astype(np.float32)
    assert np.array_equal(MLX.dequantize(blocks(type), type), rounded)


def test_every_second_sub_block_of_q4_k_is_read_by_the_scale_and_minimum_of_the_one_before() -> None:
    read, right = (each.dequantize(blocks("q4_k"), "q4_k").reshape(-1, 8, 32) for each in (MLX, ORACLE))
    assert np.array_equal(read[:, 0::2], right[:, 0::2].astype(np.float16))
    assert not (read[:, 1::2] == right[:, 1::2].astype(np.float16)).all(axis=-1).any()
    # After two scales of 2 bytes and 12 bytes of scales and minima, a byte has a code of each of two sub-blocks.
    codes = blocks("q4_k").reshape(-1, 144)[:, 16:].reshape(-1, 32)
    pairs = zip(codes & 15, codes >> 4, right[:, 0::2].reshape(-1, 32), read[:, 1::2].reshape(-1, 32), strict=True)
    for low, high, first, second in pairs:
        scale_and_minimum = np.polyfit(low, first, 1)
        np.testing.assert_allclose(second, np.polyval(scale_and_minimum, high), atol=1e-3)


@pytest.mark.parametrize("type", UNREAD)
def test_any_other_type_is_refused_or_left_out_in_silence(type: str) -> None:
    zeros = np.zeros((4, tensor_bytes((512,), type)), np.uint8)
    with pytest.raises((RuntimeError, KeyError)):
        MLX.dequantize(zeros, type)


def test_what_it_quantizes_is_a_q4_1_block_to_the_last_bit() -> None:
    half = mx.array(WEIGHT.astype(np.float16))
    packed, scales, biases = mx.quantize(half, group_size=32, bits=4, stream=CPU)
    parts = (part.astype(mx.float32, stream=CPU) for part in (scales, biases))
    expected = mx.dequantize(packed, *parts, group_size=32, bits=4, stream=CPU)
    assert np.array_equal(ORACLE.dequantize(MLX.quantize(WEIGHT, "q4_1"), "q4_1"), np.array(expected))


@pytest.mark.parametrize(("type", "zero"), [("q4_0", 8), ("q8_0", 128)])
def test_what_it_quantizes_is_not_always_a_block_without_a_bias_of_its_own(type: str, zero: int) -> None:
    """Its biases are whole numbers of scales, of which a Q4_0 or Q8_0 block can have one alone."""
    _, scales, biases = (np.array(each) for each in mx.quantize(mx.array(WEIGHT), 32, BITS[type], stream=CPU))
    np.testing.assert_allclose(biases / scales, np.round(biases / scales), atol=1e-3)
    assert not np.isclose(biases, -zero * scales, rtol=1e-3).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_what_it_saves_is_read_back_as_it_was(dtype: type, tmp_path: Path) -> None:
    path = tmp_path / "saved.gguf"
    mx.save_gguf(str(path), {"tensor.weight": mx.array(WEIGHT.astype(dtype))}, {"general.architecture": "llama"})
    reader = GGUFReader(path)
    (tensor,) = reader.tensors
    assert tensor.name == "tensor.weight"
    assert np.array_equal(tensor.data, WEIGHT.astype(dtype))
    assert reader.fields["general.architecture"].contents() == "llama"


def test_bfloat16_is_refused_when_it_saves(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="bfloat16"):
        mx.save_gguf(str(tmp_path / "saved.gguf"), {"tensor.weight": mx.array(WEIGHT).astype(mx.bfloat16)}, {})


@pytest.mark.parametrize(
    ("shape", "type", "text"), [((2, 64), "q8_0", "type 'q8_0'"), ((2, 48), "q4_1", r"shape \[2, 48\].*32")]
)
def test_what_it_cannot_quantize_is_refused(shape: tuple[int, int], type: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        MLX.quantize(np.ones(shape, np.float32), type)
