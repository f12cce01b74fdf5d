"""The verdict says of each question what the results say, and what was not asked."""

import pytest

from suite.claims import CLAIMS
from suite.kit.results import Figure, Outcome, Result
from suite.report.verdict import TypeRow, Verdict, type_cells, verdict

QUESTIONS = {claim.id: str(claim.question) for claim in CLAIMS.values()}


def result(claim: str, case: str = "", outcome: Outcome = Outcome.PASS, **figures: float) -> Result:
    measured = tuple(Figure(label.replace("_", " "), value) for label, value in figures.items())
    return Result(claim, "mine", case, outcome, measured, "", "a::b")


def error(type: str, ratio: float, bits: float = 4.5) -> Result:
    figures = (Figure("error / ggml's", ratio), Figure("bits per weight", bits))
    return Result("blocks.error", "mine", type, Outcome.PASS, figures, "", "a::b")


def of(*results: Result) -> Verdict:
    return verdict(results, QUESTIONS)


def test_what_no_claim_asked_is_not_asked() -> None:
    assert of().line == "right: not asked · good: not asked · identical: not asked · careful: not asked"
    assert of(result("blocks.rows", "q8_0", Outcome.NOT_OFFERED)).right == "not asked"


def test_right_is_yes_only_where_every_case_holds() -> None:
    rows = [result("blocks.rows", type) for type in ("q4_0", "q8_0")]
    assert of(*rows).right == "yes"
    failing = result("blocks.rows", "q6_k", Outcome.FAIL)
    assert of(*rows, failing).right == "no: blocks.rows 1 of 3"
    assert of(result("blocks.rows", "q6_k", Outcome.ERROR)).right == "fell over: blocks.rows 1 of 1"


def test_a_declared_deviation_is_no_yes() -> None:
    declared = result("blocks.sound", "q4_k", Outcome.DEVIATION)
    assert of(declared).right == "declared otherwise: blocks.sound 1 of 1"
    both = of(declared, result("blocks.rows", "q4_0", Outcome.FAIL))
    assert both.right == "no: blocks.rows 1 of 1; declared otherwise: blocks.sound 1 of 1"


def test_good_is_the_mean_ratio_between_the_least_and_the_largest() -> None:
    assert of(error("q2_k", 0.5), error("q4_k", 2.0)).good == "1.00 × ggml's error (q2_k 0.50 … q4_k 2.00)"
    assert of(error("q4_k", 0.95)).good == "0.95 × ggml's error"


def test_a_float_type_does_not_count_as_good() -> None:
    assert of(error("q4_k", 0.5), error("f16", 1.0, bits=16)).good == "0.50 × ggml's error"


def test_good_of_other_claims_is_told_beside() -> None:
    unmet = result("device.packed", "mlx", Outcome.NOT_MET)
    assert of(error("q4_k", 1.0), unmet).good == "1.00 × ggml's error, else no: device.packed 1 of 1"
    assert of(unmet).good == "no: device.packed 1 of 1"


@pytest.mark.parametrize("outcome", [Outcome.NOT_MET, Outcome.DEVIATION, Outcome.FAIL, Outcome.ERROR])
def test_a_type_is_identical_where_every_claim_about_its_bytes_holds(outcome: Outcome) -> None:
    rows = [result("bytes.quantize", "q4_0"), result("bytes.fuzz", "q4_0-plain"), result("bytes.quantize", "q8_0")]
    assert of(*rows).identical == "2 of 2 types"
    assert of(*rows, result("bytes.fuzz", "q8_0-plain", outcome)).identical == "1 of 2 types"


def test_identical_of_files_and_logits_is_counted_apart() -> None:
    rows = [result("bytes.quantize", "q4_0"), result("conversion.mix", "", Outcome.NOT_MET), result("bytes.q8_0-file")]
    assert of(*rows).identical == "1 of 1 types, 1 of 2 other cases"
    assert of(*rows[1:]).identical == "1 of 2 cases"


def test_careful_counts_the_inputs_that_are_not_refused() -> None:
    rows = [result("refusal.weights", "q4_0-NaN"), result("refusal.weights", "q4_0-infinity", Outcome.NOT_MET)]
    assert of(*rows).careful == "1 of 2 inputs not refused as asked"
    assert of(rows[0]).careful == "yes"


def test_a_row_tells_bytes_that_differ_from_values_that_do() -> None:
    figures = {"bytes compared": 200, "bytes that differ": 1, "values compared": 400, "values that differ": 0}
    measured = tuple(Figure(label, value) for label, value in figures.items())
    (row,) = of(Result("bytes.quantize", "mine", "mxfp4", Outcome.NOT_MET, measured, "", "a::b")).types
    assert row == TypeRow("mxfp4", None, None, None, None, 0.005, 0.0, False)
    assert type_cells(row) == ["–", "–", "–", "–", "0.50 %", "0.00 %", "no, but every value is"]
