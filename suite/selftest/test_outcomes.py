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
    "logits.f32": "error",
    "rope.neox": "deviation",
    "rope.neox-bit-for-bit": "fail",
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
            "deviating: 0 pass, 2 fail, 1 deviation, 0 not offered, 0 hardware absent, 0 undecided, 1 error",
        ]
    )
