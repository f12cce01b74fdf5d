"""Bytes against other people's quantizers: ggml's C library, and llama.cpp's quantizer on whole files."""

from collections.abc import Iterable

import numpy as np

from impl.protocol import Converter, Dequantizer, Quantizer
from suite.claims import claim
from suite.kit import surgery
from suite.kit.answers import dequantized
from suite.kit.block_cases import BlockCase, hard_cases, real_cases
from suite.kit.block_differences import BlocksDifference
from suite.kit.block_inputs import IMPORTANCES
from suite.kit.block_values import random_blocks
from suite.kit.oracle import needs_importance, quantized_by, quantized_by_ggml, read_by_ggml
from suite.kit.results import Measure, Undecided
from suite.kit.runs import Runs
from suite.kit.selection import ORACLE, require_importance, require_member
from suite.kit.tensors import FileComparison, compare_files

ROWS_OF_A_TENSOR = 512
"""Enough to meet every code many times, few enough for the slowest type's search."""
SHOWN = 4
"""Inputs that a message lists."""


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
    if needs_importance(block_type):
        raise Undecided(f"{ORACLE} quantizes no {block_type} without importance")
    cases = [*hard_cases(), *real_cases(runs.source, block_type, ROWS_OF_A_TENSOR)]
    _require_equal_bytes(quantizer, block_type, cases, measured)


@claim("bytes.quantize-importance")
def test_blocks_quantized_with_importance_are_byte_identical_to_ggml(
    quantizer: Quantizer, block_type: str, measured: Measure
) -> None:
    """With an importance for each column, too, quantizing gives the bytes of ggml's C library."""
    require_member(quantizer, "types", block_type)
    require_importance(quantizer, "quantize")
    _require_equal_bytes(quantizer, block_type, hard_cases(IMPORTANCES), measured)


@claim("bytes.dequantize")
def test_dequantized_blocks_are_byte_identical_to_ggml(
    dequantizer: Dequantizer, block_type: str, measured: Measure
) -> None:
    """Dequantizing gives, bit for bit, the float32 values of ggml's C library, on any bytes."""
    require_member(dequantizer, "readable_types", block_type)
    blocks = random_blocks(block_type)
    own, expected = dequantized(dequantizer, blocks, block_type), read_by_ggml(blocks, block_type)
    measured("values compared", own.size)
    # Random scales are sometimes NaN, whose payload has no meaning.
    same = (own.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(own) & np.isnan(expected))
    assert own.size
    row, column = np.unravel_index(np.argmin(same), same.shape)
    assert same.all(), (
        f"{block_type}: {np.count_nonzero(~same)} of {own.size} values differ from {ORACLE}'s; row {row}, column "
        f"{column} reads as {own[row, column]!r} where {expected[row, column]!r} is right"
    )


def _draw(measured: Measure, comparison: FileComparison) -> None:
    shares: dict[str, float | None] = {
        **dict.fromkeys(comparison.identical, 0.0),
        **{tensor.name: tensor.differing_bytes / tensor.total_bytes for tensor in comparison.differing},
        **{tensor.name: None for tensor in (*comparison.different_type, *comparison.different_shape)},
        **dict.fromkeys((*comparison.only_in_a, *comparison.only_in_b)),
    }
    measured.series("share of bytes that differ", shares.values(), list(shares))


def _require_equal_bytes(quantizer: Quantizer, block_type: str, cases: Iterable[BlockCase], measured: Measure) -> None:
    differences, compared = [], 0
    for case in cases:
        compared += case.weight.size
        found, expected = quantized_by(quantizer, case, block_type), quantized_by_ggml(case, block_type)
        differences.append(BlocksDifference.of(case.name, block_type, found, expected))
    total = sum(each.blocks_bytes for each in differences)
    measured("bytes compared", total)
    measured("bytes that differ", sum(each.bytes for each in differences))
    measured("values compared", compared)
    measured("values that differ", sum(each.values for each in differences))
    differing = [each for each in differences if each.bytes]
    assert total
    assert not differing, (
        f"{block_type} differs from {ORACLE} on {len(differing)} of {len(differences)} inputs\n"
        + "\n".join(map(str, differing[:SHOWN]))
    )
