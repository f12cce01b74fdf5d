"""Each outcome is told from the others, by a run of pytest on tests made for it."""

import json
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

MODULE = """
import pytest
from suite.claims import claim
from suite.kit.results import HardwareAbsent, NotOffered, Undecided

@claim("conversion.names")
def test_pass(measured):
    measured("tensors", 272)

@claim("conversion.values")
def test_fail():
    assert 1 == 2, "one is not two"

@claim("conversion.types")
def test_error():
    raise RuntimeError("fell over")

@claim("conversion.mix")
def test_not_offered():
    raise NotOffered("no converter")

@claim("bytes.noperm")
def test_hardware_absent():
    raise HardwareAbsent("no Metal")

@claim("bytes.quantize")
def test_undecided():
    raise Undecided("nothing recorded")

@claim("bytes.fuzz")
def test_not_required():
    assert "these bytes" == "those bytes", "other bytes"

@claim("bytes.vectors")
def test_not_required_but_fell_over():
    raise RuntimeError("fell over")

@claim("bytes.dequantize")
def test_skipped_by_other_means():
    pytest.skip("for another reason")

@claim("logits.f32")
def test_setup_error(no_such_fixture):
    pass

@claim("rope.neox")
def test_deviation(implementation):
    assert False

@claim("rope.neox-bit-for-bit")
def test_deviation_declared_for_another_checkpoint(implementation):
    assert False

@claim("logits.ordering")
def test_stale_deviation(implementation):
    assert True

@claim("logits.snapshot")
def test_deviation_that_fell_over(implementation):
    raise RuntimeError("another fault than the declared one")
"""

IMPLEMENTATION = """
class Deviating:
    name = "deviating"
    version = "1"
    deviations = {claim: "declared" for claim in ("rope.neox@tiny", "logits.ordering", "logits.snapshot")}
    deviations["rope.neox-bit-for-bit@smollm2"] = "declared for another checkpoint"
"""

EXPECTED = {
    "conversion.names": "pass",
    "conversion.values": "fail",
    "conversion.types": "error",
    "conversion.mix": "not offered",
    "bytes.noperm": "hardware absent",
    "bytes.quantize": "undecided",
    "bytes.dequantize": "undecided",
    "bytes.fuzz": "not met",
    "bytes.vectors": "error",
    "logits.f32": "error",
    "rope.neox": "deviation",
    "rope.neox-bit-for-bit": "not met",
    "logits.ordering": "fail",
    "logits.snapshot": "error",
}


@pytest.fixture(params=[(), ("-n", "2")], ids=["one process", "two workers"])
def run(request: pytest.FixtureRequest, pytester: pytest.Pytester, pytestconfig: pytest.Config) -> pytest.RunResult:
    pytester.makeconftest((ROOT / "conftest.py").read_text())
    pytester.makepyfile(test_module=MODULE, deviating=IMPLEMENTATION)
    pytester.makeini(f"[pytest]\npythonpath = . {ROOT}\n")
    cache = str(pytestconfig.getoption("--cache"))
    options = ["--impl=deviating:Deviating", "--checkpoint=tiny", f"--cache={cache}", "--report=report"]
    return pytester.runpytest_subprocess(*options, *request.param)


def test_each_outcome_is_its_own(run: pytest.RunResult, pytester: pytest.Pytester) -> None:
    results = json.loads((pytester.path / "report" / "report.json").read_text())["results"]
    assert {result["claim"]: result["outcome"] for result in results} == EXPECTED
    assert run.ret == pytest.ExitCode.TESTS_FAILED


def test_the_summary_shows_figures_reasons_and_reproductions(run: pytest.RunResult) -> None:
    run.stdout.fnmatch_lines_random(
        [
            "*pass            conversion.names",
            "*tensors * 272",
            "*one is not two*",
            "*no Metal",
            "  pytest test_module.py::test_fail --checkpoint=tiny",
            "  pytest 'test_module.py::test_stale_deviation*' --checkpoint=tiny --impl=deviating:Deviating",
            "deviating: 0 pass, 1 fail, 1 deviation, 0 not offered, 0 hardware absent, 0 undecided, 1 not met, 1 error",
        ]
    )


QUESTIONS = """
from suite.claims import claim

@claim("conversion.names")
def test_right():
    pass

@claim("{claim}")
def test_other():
    assert False, "it does not hold"
"""


@pytest.mark.parametrize(
    ("failing", "decided_by"),
    [
        ("conversion.values", {"right", "good", "identical", "careful", "all"}),
        ("logits.mix-and-importance", {"good", "all"}),
        ("bytes.quantize", {"identical", "all"}),
        ("refusal.weights", {"careful", "all"}),
    ],
)
def test_what_is_required_decides_the_exit_code(pytester: pytest.Pytester, failing: str, decided_by: set[str]) -> None:
    pytester.makeconftest((ROOT / "conftest.py").read_text())
    pytester.makepyfile(test_module=QUESTIONS.replace("{claim}", failing))
    pytester.makeini(f"[pytest]\npythonpath = {ROOT}\n")
    failed = {
        wanted
        for wanted in ("right", "good", "identical", "careful", "all")
        if pytester.runpytest_subprocess("--checkpoint=tiny", f"--require={wanted}").ret != pytest.ExitCode.OK
    }
    assert failed == decided_by
