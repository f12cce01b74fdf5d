"""``pytest --gguf FILE --source CHECKPOINT``: one test for each rule, and the report of the audit at the end."""

from pathlib import Path

import pytest

from impl.errors import InputError
from suite.audit.audit import Audit, audit_file
from suite.audit.checkpoint import open_checkpoint
from suite.audit.command import source_folder
from suite.audit.scan import scan

MODULE = "test_audit.py"
"""The one module that runs where a file is audited, and runs at no other time."""
REPORT = "audit"
"""The name of the property that carries the report to the end of the run, from xdist's workers too."""


class AuditSummary:
    """Registered as a pytest plugin where a file is audited; prints the report after the tests."""

    def __init__(self, config: pytest.Config) -> None:
        """Raise ``UsageError`` for unusable input before anything is collected."""
        if not config.getoption("--source"):
            raise pytest.UsageError("--gguf: expected --source with it, the checkpoint to audit the file against")
        try:
            scan(config.getoption("--gguf"))
            open_checkpoint(source_of(config))
        except InputError as error:
            raise pytest.UsageError(str(error)) from error
        self._report = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report that the tests carry."""
        self._report = dict(report.user_properties).get(REPORT, self._report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the report."""
        terminalreporter.section("audit")
        terminalreporter.write(self._report)


def is_left_out(module: Path, config: pytest.Config) -> bool:
    """Whether a test module has nothing to ask: the audit's without a file, every other with one."""
    return module.suffix == ".py" and (module.name == MODULE) != (config.getoption("--gguf") is not None)


def audit_of(config: pytest.Config) -> Audit:
    """The audit that the options ask for."""
    return audit_file(config.getoption("--gguf"), source_of(config))


def source_of(config: pytest.Config) -> Path:
    """The folder of ``--source``."""
    return source_folder(config.getoption("--source"), config.getoption("--cache"))
