"""One run of pytest from its first hook to its last: the artifact folder, the results, summary and report."""

import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from suite.claims import Question
from suite.kit.artifacts import ArtifactStore
from suite.kit.checkpoints import Checkpoint, find_checkpoint
from suite.kit.results import Result
from suite.kit.selection import DEVICES, IMPLEMENTATIONS
from suite.kit.verdicts import is_about_a_claim, result_of
from suite.report.document import Report, footer, write_json
from suite.report.environment import gguf_files, machine, versions
from suite.report.header import checkpoint_entry, implementation_entries
from suite.report.page import write_page
from suite.report.statements import catalogue
from suite.report.terminal import summary_lines

if TYPE_CHECKING:
    from suite.kit.runs import Runs

RECORDINGS = Path(__file__).parents[2] / "snapshots" / "reference-runs"


class Session:
    """Registered as a pytest plugin in the controller and in every xdist worker."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started = now()
        self._selected: set[str] = set()
        self._results: dict[str, Result] = {}
        self._went_through = False
        self._files: list[dict[str, object]] = []

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
        steps = self._config.getoption("--steps")
        return Runs(self.checkpoint, ArtifactStore(self._artifacts), (RECORDINGS, kept), steps)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember what is to be decided."""
        self._selected.update(item.nodeid for item in session.items if item.get_closest_marker("claim"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """The same in a controller, which collects nothing itself and knows of claims only what is reported."""
        self._selected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what each phase decided; under xdist the controller sees every worker's reports."""
        if not is_about_a_claim(report):
            # A worker that died reports its test too, as no phase of it.
            if report.when in ("setup", "call", "teardown"):
                self._selected.discard(report.nodeid)
            return
        result, earlier = result_of(report), self._results.get(report.nodeid)
        # What falls over in teardown takes a pass back, but hides no failure.
        if result is not None and not (earlier and earlier.outcome.breaks_the_run):
            self._results[report.nodeid] = result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary and write the report that was asked for."""
        if not self._results:
            return
        report = self._report
        terminalreporter.section("claims")
        for line in summary_lines(report):
            terminalreporter.line(line)
        folder = self._config.getoption("--report")
        if folder is not None:
            write_json(report, folder / "report.json")
            write_page([report], folder / "report.html")
            terminalreporter.line(f"report: {folder / 'report.json'}, {folder / 'report.html'}")

    @property
    def _report(self) -> Report:
        results = tuple(self._results.values())
        return Report(
            header={
                "started": self._started,
                "finished": now(),
                "command": ["pytest", *map(str, self._config.invocation_params.args)],
                "options": self._options,
                "checkpoint": self._checkpoint_entry,
                "implementations": implementation_entries(
                    self._config.stash[IMPLEMENTATIONS], self._config.stash[DEVICES], self.options_for
                ),
                "machine": machine(),
                "versions": versions(),
                "files": self._files,
            },
            claims=catalogue(),
            results=results,
            footer=footer(results, self._selected - set(self._results), self._went_through),
        )

    @property
    def _checkpoint_entry(self) -> Mapping[str, str]:
        """With the digest only where a report is written: it takes a second on a large checkpoint."""
        if self._config.getoption("--report") is not None:
            return checkpoint_entry(self.checkpoint)
        name = self._config.getoption("--checkpoint")
        return {"name": name, "sha256": "", "note": Checkpoint(name, Path()).note}

    @property
    def _options(self) -> list[str]:
        """This project's own options as given, whichever implementation is run."""
        # With "=": pytest takes a folder that stands alone for one to look for tests in.
        given = [f"--backend={name}" for name in self._given("--backend")]
        require = self._config.getoption("--require")
        given += [f"--require={require}"] if require != Question.RIGHT else []
        given += [f"--steps={steps}"] if (steps := self._config.getoption("--steps")) else []
        checkpoint = self._config.getoption("--checkpoint")
        return given if checkpoint == "smollm2" else [f"--checkpoint={checkpoint}", *given]

    def options_for(self, implementation: str) -> list[str]:
        """The options of a run of one implementation alone; an empty name stands for claims about none."""
        names = [each.name for each in self._config.stash[IMPLEMENTATIONS]]
        # Where none was asked for, there is one, which needs no option.
        own = [
            f"--impl={spec}" for name, spec in zip(names, self._given("--impl"), strict=False) if name == implementation
        ]
        return [*self._options, *own]

    def _given(self, option: str) -> Sequence[str]:
        return self._config.getoption(option) or ()

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Remove the artifacts: gigabytes that no later run may trust."""
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        self._went_through = ended and not (session.shouldfail or session.shouldstop)
        if self._is_worker:
            return
        if self._config.getoption("--report") is not None:
            self._files = gguf_files(self._artifacts)
        shutil.rmtree(self._artifacts, ignore_errors=True)


def now() -> str:
    """Date and time in UTC, to the second, e.g. ``2026-01-31T12:00:00+00:00``."""
    return datetime.now(UTC).isoformat(timespec="seconds")
