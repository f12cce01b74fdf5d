"""Bytes against other people's quantizers: ggml's C library, and llama.cpp's quantizer on whole files."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from impl.catalogue import resolve
from impl.errors import InputError
from impl.protocol import Converter, Dequantizer, Quantizer
from suite.claims import claim
from suite.kit import layout, surgery
from suite.kit.block_inputs import COLUMNS, FINITE, IMPORTANCES, SEED
from suite.kit.names import layer_of
from suite.kit.results import Measure, Undecided
from suite.kit.runs import Runs
from suite.kit.selection import ORACLE, require_importance, require_member
from suite.kit.tensors import FileComparison, compare_files

ROWS_OF_A_TENSOR = 512
"""Enough to meet every code many times, few enough for the slowest type's search."""


@claim("bytes.q8_0-file")
def test_q8_0_file_is_byte_identical(runs: Runs, converter: Converter, measured: Measure) -> None:
    """Every tensor of the q8_0 file is byte-identical to llama.cpp's: max|x| / 127 leaves nothing to choose."""
    comparison = compare_files(runs.file(converter, "q8_0"), runs.independent_file("Q8_0"))
    _draw(measured, comparison)
    measured.exactly("identical tensors", len(comparison.identical))
    comparison.require_identical()


@claim("bytes.noperm")
def test_without_permutation_exactly_q_and_k_are_not_byte_identical(
    runs: Runs, converter: Converter, measured: Measure
) -> None:
    """Undoing the row order changes every attn_q and attn_k, and nothing else."""
    file = runs.file(converter, "q8_0")
    noperm = runs.edited(file, "noperm", surgery.without_permutation)
    comparison = compare_files(noperm, runs.independent_file("Q8_0"))
    _draw(measured, comparison)
    differing = {tensor.name for tensor in comparison.differing}
    measured.exactly("identical tensors", len(comparison.identical))
    for part in ("attn_q", "attn_k"):
        measured.exactly(f"{part} that differ", sum(f".{part}." in name for name in differing))
    expected = {f"blk.{layer}.{part}.weight" for layer in range(runs.source.layers) for part in ("attn_q", "attn_k")}
    assert differing == expected, str(comparison)


@claim("bytes.q4_k-against-imatrix")
def test_q4_k_against_an_importance_matrix_only_norms_are_byte_identical(
    runs: Runs, converter: Converter, measured: Measure
) -> None:
    """Against a Q4_K_M made with an importance matrix, only the F32 tensors of a q4_k file are byte-identical.

    Tensors of different type are listed, not compared.
    """
    own, mixed = runs.file(converter, "q4_k"), runs.independent_file("Q4_K_M", with_importance=True)
    comparison = compare_files(own, mixed)
    _draw(measured, comparison)
    measured.exactly("identical tensors", len(comparison.identical))
    measured("tensors that differ", len(comparison.differing))
    measured("tensors of different type, not compared", len(comparison.different_type))
    norms = {name for name, shape in runs.source.gguf_shapes().items() if len(shape) == 1}
    assert set(comparison.identical) == norms, str(comparison)


@claim("bytes.quantize")
def test_quantized_blocks_are_byte_identical_to_ggml(
    runs: Runs, quantizer: Quantizer, block_type: str, measured: Measure
) -> None:
    """Quantizing gives the bytes of ggml's C library, on real tensors and on blocks chosen to be hard."""
    require_member(quantizer, "types", block_type)
    weights = {**_hard_weights(), **_real_weights(runs, block_type)}
    _require_equal_bytes(quantizer, block_type, {name: (weight, None) for name, weight in weights.items()}, measured)


@claim("bytes.quantize-importance")
def test_blocks_quantized_with_importance_are_byte_identical_to_ggml(
    quantizer: Quantizer, block_type: str, measured: Measure
) -> None:
    """With an importance for each column, too, quantizing gives the bytes of ggml's C library."""
    require_member(quantizer, "types", block_type)
    require_importance(quantizer, "quantize")
    cases = {
        f"{name}, importance {importance.name}": (weight, importance.columns())
        for name, weight in _hard_weights().items()
        for importance in IMPORTANCES
    }
    _require_equal_bytes(quantizer, block_type, cases, measured)


@claim("bytes.dequantize")
def test_dequantized_blocks_are_byte_identical_to_ggml(
    dequantizer: Dequantizer, block_type: str, measured: Measure
) -> None:
    """Dequantizing gives, bit for bit, the float32 values of ggml's C library, on any bytes."""
    require_member(dequantizer, "readable_types", block_type)
    oracle = resolve(ORACLE)
    row_bytes = layout.tensor_bytes((COLUMNS,), block_type)
    random = np.random.default_rng(SEED).integers(0, 256, (64, row_bytes), dtype=np.uint8)
    own, expected = (each.dequantize(random, block_type) for each in (dequantizer, oracle))
    measured("values compared", own.size)
    assert own.shape == expected.shape
    # Random scales are sometimes NaN, whose payload has no meaning.
    same = (own.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(own) & np.isnan(expected))
    assert own.size
    assert same.all(), f"{block_type}: {np.count_nonzero(~same)} of {own.size} values differ from {ORACLE}'s"


def _draw(measured: Measure, comparison: FileComparison) -> None:
    shares: dict[str, float | None] = {
        **dict.fromkeys(comparison.identical, 0.0),
        **{tensor.name: tensor.differing_bytes / tensor.total_bytes for tensor in comparison.differing},
        **{tensor.name: None for tensor in (*comparison.different_type, *comparison.different_shape)},
        **dict.fromkeys((*comparison.only_in_a, *comparison.only_in_b)),
    }
    measured.series("share of bytes that differ", shares.values(), list(shares))


Cases = Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32] | None]]
"""By name, weights and the importance to quantize them with."""


def _require_equal_bytes(quantizer: Quantizer, block_type: str, cases: Cases, measured: Measure) -> None:
    total, failures = 0, []
    for name, (weight, importance) in cases.items():
        expected = _oracle_bytes(weight, block_type, importance)
        own = quantizer.quantize(weight, block_type, *(() if importance is None else (importance,)))
        assert own.shape == expected.shape, f"{name}: {list(own.shape)} where {list(expected.shape)} is right"
        total += own.size
        differing = int(np.count_nonzero(own != expected))
        if differing:
            failures.append((name, differing, own.size))
    measured("bytes compared", total)
    measured("bytes that differ", sum(differing for _, differing, _ in failures))
    worst = "; ".join(f"{name}: {differing} of {size}" for name, differing, size in failures[:4])
    assert total
    assert not failures, f"{block_type} differs from {ORACLE} on {len(failures)} of {len(cases)} inputs: {worst}"


def _oracle_bytes(
    weight: NDArray[np.float32], block_type: str, importance: NDArray[np.float32] | None
) -> NDArray[np.uint8]:
    try:
        return resolve(ORACLE).quantize(weight, block_type, importance)
    except InputError as error:
        raise Undecided(str(error)) from error


def _hard_weights() -> dict[str, NDArray[np.float32]]:
    return {chosen.name: chosen.weight() for chosen in FINITE}


def _real_weights(runs: Runs, block_type: str) -> dict[str, NDArray[np.float32]]:
    """The first rows of every matrix of the first and last layer, and of the embedding, that the block divides."""
    block, _ = layout.block_size(block_type)
    return {
        name: runs.source.gguf_tensor(name)[:ROWS_OF_A_TENSOR]
        for name, shape in runs.source.gguf_shapes().items()
        if len(shape) == 2 and shape[-1] % block == 0 and layer_of(name) in (-1, 0, runs.source.layers - 1)
    }
