"""One run of pytest from its first hook to its last: the artifact folder, the results, summary and report."""

import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from suite.kit.artifacts import ArtifactStore
from suite.kit.checkpoints import Checkpoint, find_checkpoint
from suite.kit.report import write_report
from suite.kit.results import Result, result_of
from suite.kit.selection import IMPLEMENTATIONS
from suite.kit.summary import summary_lines

if TYPE_CHECKING:
    from suite.kit.runs import Runs

RECORDINGS = Path(__file__).parents[2] / "snapshots" / "reference-runs"


class Session:
    """Registered as a pytest plugin in the controller and in every xdist worker."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._results: list[Result] = []
        self._complete = False

    @property
    def _is_worker(self) -> bool:
        return hasattr(self._config, "workerinput")

    @property
    def _artifacts(self) -> Path:
        """One folder for all workers, whose own temporary folders lie inside the controller's."""
        own = self._config._tmp_path_factory.getbasetemp()
        return (own.parent if self._is_worker else own) / "artifacts"

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint asked for, built on its first use with its progress on the terminal."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            return find_checkpoint(self._config.getoption("--checkpoint"), self._config.getoption("--cache"))

    @cached_property
    def runs(self) -> "Runs":
        """What the claims are measured on; torch is imported only here, in the processes that run tests."""
        import torch

        from suite.kit.runs import Runs

        workers = self._config.workerinput["workercount"] if self._is_worker else 1
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
        kept = self._config.getoption("--cache") / "reference-runs"
        return Runs(self.checkpoint, ArtifactStore(self._artifacts), (RECORDINGS, kept))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what each phase decided; under xdist the controller sees every worker's reports."""
        result = result_of(report)
        if result is not None:
            self._results.append(result)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary and write the report that was asked for."""
        if not self._results:
            return
        terminalreporter.section("claims")
        for line in summary_lines(self._results, self._note, self._options):
            terminalreporter.line(line)
        folder = self._config.getoption("--report")
        if folder is not None:
            terminalreporter.line(f"report: {write_report(folder, self._results, self._header)}")

    @property
    def _header(self) -> Mapping[str, object]:
        implementations = {each.name: each.version for each in self._config.stash[IMPLEMENTATIONS]}
        checkpoint = self._config.getoption("--checkpoint")
        return {"complete": self._complete, "checkpoint": checkpoint, "implementations": implementations}

    @property
    def _note(self) -> str:
        return Checkpoint(self._config.getoption("--checkpoint"), Path()).note

    @property
    def _options(self) -> Sequence[str]:
        """This project's own options as given, for commands that reproduce a failure."""
        # With "=": pytest takes a folder that stands alone for one to look for tests in.
        given = [f"--impl={name}" for name in self._config.getoption("--impl") or ()]
        checkpoint = self._config.getoption("--checkpoint")
        return given if checkpoint == "smollm2" else [f"--checkpoint={checkpoint}", *given]

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Remove the artifacts: gigabytes that no later run may trust."""
        went_through = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        self._complete = went_through and not session.shouldfail
        if not self._is_worker:
            shutil.rmtree(self._artifacts, ignore_errors=True)
