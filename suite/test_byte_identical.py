"""Bytes against other people's quantizers: ggml's C library, and llama.cpp's quantizer on whole files."""

import numpy as np

from impl.catalogue import resolve
from impl.protocol import Converter, Dequantizer, Quantizer
from suite.claims import claim
from suite.kit import surgery
from suite.kit.results import Measure
from suite.kit.runs import Runs
from suite.kit.selection import ORACLE, require_member
from suite.kit.tensors import compare_files


@claim("bytes.q8_0-file")
def test_q8_0_file_is_byte_identical(runs: Runs, converter: Converter, measured: Measure) -> None:
    """Every tensor of the q8_0 file is byte-identical to llama.cpp's: max|x| / 127 leaves nothing to choose."""
    comparison = compare_files(runs.file(converter, "q8_0"), runs.independent_file("Q8_0"))
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
    differing = total = 0
    failures: list[str] = []
    for name, weight in _weights(runs, block_type):
        own, oracle = (each.quantize(weight, block_type) for each in (quantizer, resolve(ORACLE)))
        assert own.shape == oracle.shape, f"{name}: {own.shape} where {oracle.shape} is right"
        wrong = int(np.count_nonzero(own != oracle))
        differing, total = differing + wrong, total + own.size
        if wrong:
            failures.append(f"{name}: {wrong} of {own.size} bytes")
    measured("bytes compared", total)
    measured("bytes that differ", differing)
    assert total and not differing, f"{block_type} differs from {ORACLE} on {'; '.join(failures[:4])}"


@claim("bytes.dequantize")
def test_dequantized_blocks_are_byte_identical_to_ggml(
    runs: Runs, dequantizer: Dequantizer, block_type: str, measured: Measure
) -> None:
    """Dequantizing gives, bit for bit, the float32 values of ggml's C library."""
    require_member(dequantizer, "types", block_type)
    compared = 0
    for name, weight in _weights(runs, block_type):
        blocks = resolve(ORACLE).quantize(weight, block_type)
        own, oracle = (each.dequantize(blocks, block_type) for each in (dequantizer, resolve(ORACLE)))
        compared += own.size
        assert np.array_equal(own.view(np.uint32), oracle.view(np.uint32)), f"{block_type} differs on {name}"
    measured("values compared", compared)
    assert compared
