"""What a run of pytest leaves in its report: all of it, and where not, that it is not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from suite.report.document import Report, read_json

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

Run = Callable[..., tuple[pytest.RunResult, Report]]

MODULE = """
import os
import pytest
from suite.claims import claim

@pytest.fixture
def falls_over_afterwards():
    yield
    raise RuntimeError("in teardown")

@claim("conversion.names")
def test_series(measured):
    measured.series("f32", [1.23456e-5, None, float("inf")])
    measured.series("share", [0.5], ["blk.0.attn_q.weight"])

@claim("conversion.values")
def test_teardown(falls_over_afterwards):
    pass

@claim("conversion.types")
def test_failure_and_teardown(falls_over_afterwards):
    assert 1 == 2, "one is not two\\nand a second line"

def test_about_no_claim():
    pass
"""

CRASH = """
@claim("conversion.mix")
def test_crash():
    os._exit(7)
"""


@pytest.fixture
def run(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> Run:
    """Runs the module, with a test in it that kills its process where asked, and reads the report."""
    pytester.makeconftest((ROOT / "conftest.py").read_text())
    pytester.makeini(f"[pytest]\npythonpath = . {ROOT}\n")
    options = ["--checkpoint=tiny", f"--cache={pytestconfig.getoption('--cache')}", "--report=report"]

    def run(*given: str, crash: bool = False) -> tuple[pytest.RunResult, Report]:
        pytester.makepyfile(test_module=MODULE + crash * CRASH)
        outcome = pytester.runpytest_subprocess(*options, *given)
        assert (pytester.path / "report" / "report.html").is_file()
        return outcome, read_json(pytester.path / "report" / "report.json")

    return run


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "a worker"])
def test_a_whole_run_is_complete(run: Run, workers: tuple[str, ...]) -> None:
    outcome, report = run(*workers)
    assert report.footer == {"selected": 3, "results": 3, "without_verdict": [], "complete": True}
    passed, in_teardown, failed = (
        next(result for result in report.results if result.claim == f"conversion.{name}")
        for name in ("names", "values", "types")
    )
    assert [series.values for series in passed.series] == [(1.235e-5, None, float("inf")), (0.5,)]
    assert passed.series[1].names == ("blk.0.attn_q.weight",)
    assert (in_teardown.outcome, in_teardown.summary) == ("error", "RuntimeError: in teardown")
    assert (failed.outcome, failed.detail.splitlines()[:2]) == (
        "fail",
        ["AssertionError: one is not two", "  and a second line"],
    )
    assert "to reproduce" not in failed.detail
    outcome.stdout.fnmatch_lines(["E*to reproduce: pytest test_module.py::test_failure_and_teardown --checkpoint=tiny"])


def test_its_header_says_what_was_tested(run: Run) -> None:
    _, report = run("-k", "series")
    header = report.header
    assert header["command"][0] == "pytest"
    assert header["command"][-2:] == ["-k", "series"]
    assert header["options"] == ["--checkpoint=tiny"]
    assert len(header["checkpoint"]["sha256"]) == 64
    assert "random" in header["checkpoint"]["note"]
    assert [each["name"] for each in header["implementations"]] == ["reference"]
    assert header["started"] <= header["finished"]
    assert report.footer["complete"]


def test_a_run_that_stops_early_is_incomplete(run: Run) -> None:
    outcome, report = run("-x")
    assert report.footer["without_verdict"] == ["test_module.py::test_failure_and_teardown"]
    assert not report.footer["complete"]
    outcome.stdout.fnmatch_lines(["note: incomplete run: 1 of 3 cases without a verdict"])


def test_a_test_whose_worker_died_is_without_a_verdict(run: Run) -> None:
    outcome, report = run("-n", "1", crash=True)
    assert report.footer == {
        "selected": 4,
        "results": 3,
        "without_verdict": ["test_module.py::test_crash"],
        "complete": False,
    }
    assert outcome.ret == pytest.ExitCode.TESTS_FAILED
