"""The reference's block formats write and read ggml's bytes, whatever the input, dtype and thread count."""

import ml_dtypes
import numpy as np
import pytest

from impl.adapters.ggml import Ggml
from impl.errors import InputError
from impl.ggml_library import ACTIVATION_TYPES
from impl.reference.blocks import FORMATS, PIECE, READ_ONLY, bytes_per_row, dequantize, quantize
from suite.kit.block_inputs import COLUMNS, FINITE, IMPORTANCES, NON_FINITE, ROWS, TOO_LARGE, BlockInput

GGML = Ggml()
QUANTIZABLE = tuple(name for name in FORMATS if name in (*GGML.types, *ACTIVATION_TYPES))
DEQUANTIZABLE = tuple(name for name in FORMATS if name in GGML.types)
NORMAL = next(block_input for block_input in FINITE if block_input.name == "normal")
RANDOM_BLOCKS = 200


def _assert_same_or_refused(weight: np.ndarray, type: str, importance: np.ndarray | None) -> None:
    """Every byte as ggml's, unless ggml wrote a scale that is not finite: then a refusal."""
    expected = GGML.quantize(weight, type, importance)
    records = expected.reshape(-1, FORMATS[type].bytes).view(FORMATS[type].layout)[:, 0]
    if FORMATS[type].finite(records).all():
        different = np.count_nonzero(quantize(weight, type, importance) != expected)
        assert different == 0, f"{different} of {expected.size} bytes differ from ggml's"
    else:
        with pytest.raises(InputError, match=f"no finite scale in {type}"):
            quantize(weight, type, importance)


@pytest.mark.parametrize("block_input", (*FINITE, *TOO_LARGE), ids=lambda block_input: block_input.name)
@pytest.mark.parametrize("type", QUANTIZABLE)
def test_quantized_bytes_are_ggmls(type: str, block_input: BlockInput) -> None:
    _assert_same_or_refused(block_input.weight(), type, None)


@pytest.mark.parametrize("importance", IMPORTANCES, ids=lambda importance: importance.name)
@pytest.mark.parametrize("type", DEQUANTIZABLE)
def test_bytes_quantized_by_importance_are_ggmls(type: str, importance: object) -> None:
    for block_input in FINITE:
        _assert_same_or_refused(block_input.weight(), type, importance.columns())


@pytest.mark.parametrize("type", (*DEQUANTIZABLE, *READ_ONLY))
def test_any_bytes_are_dequantized_to_ggmls_values(type: str) -> None:
    row_bytes = 2 * bytes_per_row(type, 256)
    blocks = np.random.default_rng(1).integers(0, 256, (RANDOM_BLOCKS, row_bytes), dtype=np.uint8)
    expected, values = GGML.dequantize(blocks, type), dequantize(blocks, type)
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(values), nan)
    assert np.array_equal(values.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


@pytest.mark.parametrize(
    ("type", "field"),
    [
        (type, field)
        for type, block_format in FORMATS.items()
        for field in block_format.layout.names
        if not np.issubdtype(block_format.layout[field].base, np.integer)
    ],
)
def test_a_field_that_is_not_finite_is_seen_in_its_block_alone(type: str, field: str) -> None:
    blocks = np.zeros(3, FORMATS[type].layout)
    assert FORMATS[type].finite(blocks).all()
    blocks[field][1] = np.nan
    assert FORMATS[type].finite(blocks).tolist() == [True, False, True]


@pytest.mark.parametrize("type", ACTIVATION_TYPES)
def test_activation_formats_dequantize_close_to_what_was_quantized(type: str) -> None:
    weight = NORMAL.weight()
    step = np.abs(weight).max() / 127
    assert np.abs(dequantize(quantize(weight, type), type) - weight).max() < 0.51 * step


@pytest.mark.parametrize("type", FORMATS)
def test_an_activation_format_exists_and_takes_the_same_rows(type: str) -> None:
    activation = FORMATS[type].activation
    assert activation is None or FORMATS[type].values % FORMATS[activation].values == 0


@pytest.mark.parametrize("type", FORMATS)
def test_the_bytes_do_not_depend_on_the_number_of_threads(type: str) -> None:
    if type not in QUANTIZABLE:
        pytest.skip("only dequantized")
    weight = np.random.default_rng(2).standard_normal((2 * PIECE // 256 + 9, 256)).astype(np.float32)
    one, three = (quantize(weight, type, threads=threads) for threads in (1, 3))
    assert one.tobytes() == three.tobytes()
    assert dequantize(one, type, threads=1).tobytes() == dequantize(one, type, threads=3).tobytes()


@pytest.mark.parametrize("type", FORMATS)
def test_a_block_is_quantized_as_it_is_alone(type: str) -> None:
    """Kernels take many blocks at once, and 257 leave one over whatever power of two that is."""
    weight = np.random.default_rng(3).standard_normal((257, FORMATS[type].values), dtype=np.float32)
    alone = np.concatenate([quantize(row[None], type) for row in weight])
    # What a kernel forgets to write must not hold, from a call before, what it should have written.
    quantize(-weight, type)
    assert np.array_equal(quantize(weight, type), alone)


@pytest.mark.parametrize("type", ["f16", "q8_0", "q4_k"])
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(np.asfortranarray, id="columns first"),
        pytest.param(lambda weight: np.repeat(weight, 2, axis=0)[::2], id="every other row"),
        pytest.param(lambda weight: weight[:, ::-1].copy()[:, ::-1], id="backwards"),
        pytest.param(lambda weight: weight.astype(">f4"), id="big-endian"),
        pytest.param(lambda weight: np.frombuffer(weight.tobytes(), np.float32).reshape(weight.shape), id="read-only"),
    ],
)
def test_the_memory_layout_of_the_weights_does_not_matter(type: str, form: object) -> None:
    weight = NORMAL.weight()
    assert quantize(form(weight), type).tobytes() == quantize(weight, type).tobytes()


@pytest.mark.parametrize("dtype", [np.float16, ">f2", ml_dtypes.bfloat16])
def test_narrower_floats_are_quantized_as_the_float32_they_equal(dtype: object) -> None:
    narrow = NORMAL.weight().astype(dtype)
    assert quantize(narrow, "q8_0").tobytes() == quantize(narrow.astype(np.float32), "q8_0").tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.complex64])
def test_other_dtypes_are_refused(dtype: object) -> None:
    with pytest.raises(InputError, match=f"weight of {np.dtype(dtype)}"):
        quantize(NORMAL.weight().astype(dtype), "q8_0")


@pytest.mark.parametrize(("rows", "columns"), [(0, 256), (0, 0), (3, 0)])
@pytest.mark.parametrize("type", ["f32", "q4_0", "q6_k"])
def test_nothing_quantizes_to_nothing(type: str, rows: int, columns: int) -> None:
    blocks = quantize(np.empty((rows, columns), np.float32), type)
    assert blocks.shape == (rows, bytes_per_row(type, columns))
    assert dequantize(blocks, type).shape == (rows, columns)


@pytest.mark.parametrize("block_input", NON_FINITE, ids=lambda block_input: block_input.name)
@pytest.mark.parametrize("type", ["f32", "q8_0", "q4_k"])
def test_a_non_finite_weight_is_refused_by_row_and_column(type: str, block_input: BlockInput) -> None:
    with pytest.raises(InputError, match=r"weight: -?(nan|inf) in row 5, column 300"):
        quantize(block_input.weight(), type)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_row_named_is_the_first_of_the_tensor(threads: int) -> None:
    weight = np.zeros((3 * PIECE // 256, 256), np.float32)
    first = 2 * PIECE // 256 + 718
    weight[[first, -1], 28] = np.nan
    with pytest.raises(InputError, match=f"row {first}, column 28"):
        quantize(weight, "q8_0", threads=threads)
    weight[[first, -1], 28] = 1e30
    with pytest.raises(InputError, match=f"row {first}, block 0 has no finite scale in q8_0"):
        quantize(weight, "q8_0", threads=threads)


def test_importance_must_be_finite_and_as_long_as_a_row() -> None:
    importance = np.ones(COLUMNS, np.float32)
    with pytest.raises(InputError, match=rf"importance of shape \[{COLUMNS - 1}\]: expected \[{COLUMNS}\]"):
        quantize(NORMAL.weight(), "q4_k", importance[1:])
    importance[7] = np.inf
    with pytest.raises(InputError, match=r"importance: inf in .*column 7"):
        quantize(NORMAL.weight(), "q4_k", importance)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantize(np.zeros((576, 576), np.float32), "q4_k"), r"q4_k of shape \[576, 576\]: .* 256 values"),
        (lambda: bytes_per_row("q8_0", 48), r"q8_0 of shape \[48\]: .* 32 values"),
        (lambda: quantize(np.zeros(256, np.float32), "q4_k"), r"shape \[256\]: expected two dimensions"),
        (lambda: quantize(np.zeros((1, 32), np.float32), "q4_2"), "type 'q4_2': expected one of f32, f16"),
        (lambda: dequantize(np.zeros((2, 35), np.uint8), "q8_0"), r"\[2, 35\]: .* multiple of 34 bytes"),
        (lambda: dequantize(np.zeros((2, 34), np.int8), "q8_0"), r"int8\[2, 34\]: expected uint8"),
    ],
)
def test_a_wrong_call_says_what_was_found_and_what_was_expected(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("type", READ_ONLY)
def test_a_format_that_is_only_read_refuses_to_be_written(type: str) -> None:
    with pytest.raises(InputError, match=f"type '{type}': read, but not written"):
        quantize(NORMAL.weight(), type)


def test_bytes_per_row_is_what_quantize_writes() -> None:
    for type in QUANTIZABLE:
        assert quantize(NORMAL.weight(), type).shape == (ROWS, bytes_per_row(type, COLUMNS))


def test_importance_changes_the_bytes_of_the_formats_that_search() -> None:
    importance = next(importance for importance in IMPORTANCES if importance.name == "squares").columns()
    searching = {
        type
        for type in DEQUANTIZABLE
        if quantize(NORMAL.weight(), type).tobytes() != quantize(NORMAL.weight(), type, importance).tobytes()
    }
    legacy = {"q4_0", "q4_1", "q5_0", "q5_1"}
    assert searching == {*legacy, "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs"}


def test_a_layout_has_the_fields_of_its_block_in_every_byte() -> None:
    for block_format in (*FORMATS.values(), *READ_ONLY.values()):
        sizes = [block_format.layout[name].itemsize for name in block_format.layout.names]
        assert sum(sizes) == block_format.bytes
