"""A GGUF file against the checkpoint that it claims to come from: each rule one test."""

from collections.abc import Callable

import pytest

from suite.audit.audit import Audit
from suite.audit.plugin import REPORT, audit_of
from suite.audit.rules import RULES
from suite.audit.text import as_text, one_line

Record = Callable[[str, object], None]


@pytest.fixture(scope="session")
def audit(pytestconfig: pytest.Config) -> Audit:
    return audit_of(pytestconfig)


@pytest.mark.parametrize("rule", RULES)
def test_the_file_keeps(rule: str, audit: Audit, record_property: Record) -> None:
    """The file keeps the rule; a note fails no test."""
    record_property(REPORT, as_text(audit))
    broken = [one_line(finding.message) for finding in audit.findings if finding.rule == rule and finding.breaks]
    if broken:
        pytest.fail("\n".join([RULES[rule].statement, *broken]), pytrace=False)
