"""Reports made up for tests: every outcome once, figures that are not finite, series of both kinds."""

from dataclasses import replace

from suite.kit.results import Figure, Outcome, Result, Series
from suite.report.document import Report, footer
from suite.report.statements import catalogue

RESULTS = (
    Result(
        claim="bytes.noperm",
        implementation="mine",
        case="",
        outcome=Outcome.PASS,
        figures=(Figure("identical tensors", 212, 212), Figure("attn_q that differ", 30, 20)),
        detail="",
        node="suite/test_byte_identical.py::test_noperm[mine]",
        series=(
            Series("share", (0.0, 0.5, None), ("blk.0.attn_v.weight", "blk.0.attn_q.weight", "blk.1.attn_q.weight")),
        ),
    ),
    Result(
        claim="bytes.quantize",
        implementation="mine",
        case="q8_0",
        outcome=Outcome.FAIL,
        figures=(Figure("bytes that differ", float("inf")),),
        detail="q8_0 <differs> from ggml\n  on 3 of 4 inputs",
        node="suite/test_byte_identical.py::test_quantized[mine-q8_0]",
    ),
    Result("bytes.quantize", "mine", "q4_k", Outcome.NOT_OFFERED, (), "mine does not offer q4_k", "a::b[mine-q4_k]"),
    Result("bytes.quantize", "mine", "iq1_s", Outcome.NOT_OFFERED, (), "mine does not offer iq1_s", "a::b[mine-iq1_s]"),
    Result("rope.neox", "mine", "mlx", Outcome.HARDWARE_ABSENT, (), "no Metal here", "a::c[mine-mlx]"),
    Result("conversion.mix", "mine", "", Outcome.DEVIATION, (), "keeps every output tensor in F16", "a::d[mine]"),
    Result("logits.snapshot", "mine", "cpu", Outcome.UNDECIDED, (), "nothing recorded", "a::e[mine-cpu]"),
    Result("refusal.weights", "mine", "", Outcome.ERROR, (), "RuntimeError: fell over", "a::f[mine]"),
    Result(
        claim="logits.ordering",
        implementation="mine",
        case="cpu",
        outcome=Outcome.PASS,
        figures=(Figure("dequantized, q8_0: step 0", 0.5, 0.416),),
        detail="",
        node="a::g[mine-cpu]",
        series=(Series("f32", (1e-5, 2e-5, 1e-5)), Series("q8_0", (0.0, 1.0, float("inf")))),
    ),
    Result("torch-int8.layers", "", "", Outcome.PASS, (Figure("linear layers", 211, 211),), "", "a::h"),
)


def small_report(*, complete: bool = True, system: str = "Linux x86_64") -> Report:
    """A run of one implementation; one that is not complete lost a test on its way."""
    return Report(
        header={
            "started": "2026-01-31T12:00:00+00:00",
            "finished": "2026-01-31T12:04:00+00:00",
            "command": ["pytest", "--impl=mine:Mine"],
            "options": ["--checkpoint=/a folder"],
            "checkpoint": {"name": "smollm2", "sha256": "0" * 64, "note": "its weights went through Q4_1"},
            "implementations": [
                {
                    "name": "mine",
                    "version": "0.1",
                    "options": ["--checkpoint=/a folder", "--impl=mine:Mine"],
                    "offers": ["quantizer", "engine"],
                    "backends": [{"name": "cpu", "arithmetic": "dequantized", "device": ""}],
                }
            ],
            "machine": {"system": system, "platform": f"{system}-6.1", "processor": "a processor", "cores": 2},
            "versions": {"gguf-conformance": "0.1.0", "mlx": "absent"},
            "files": [{"name": "mine-q8_0.gguf", "bytes": 143041952, "sha256": "f" * 64}],
        },
        claims=catalogue(),
        results=RESULTS,
        footer=footer(RESULTS, () if complete else ("a::lost",), went_through=True),
    )


def of_two_implementations() -> Report:
    """The same run with a second implementation in it, of which the noperm claim alone was asked."""
    report = small_report()
    other = replace(RESULTS[0], implementation="other", outcome=Outcome.FAIL, detail="one tensor too many")
    results = (*RESULTS, other)
    implementations = [*report.header["implementations"], {**report.header["implementations"][0], "name": "other"}]
    header = {**report.header, "implementations": implementations}
    return replace(report, header=header, results=results, footer=footer(results, (), went_through=True))
