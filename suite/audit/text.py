"""An audit as a person reads it: coverage first, then what was found, the gravest last but for the verdict."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from suite.audit.audit import Audit
from suite.audit.container import type_counts
from suite.audit.rules import RULES, Finding, Severity

LISTED = 5
"""Findings of one rule that are listed; of the others only the number is given."""
RULE = 22


def as_text(audit: Audit) -> str:
    """Lines for the terminal, the verdict last."""
    return "\n".join(_lines(audit)) + "\n"


def _lines(audit: Audit) -> Iterator[str]:
    container = audit.container
    types = ", ".join(f"{count} {label}" for label, count in type_counts(container.tensors).items())
    yield f"file:   {container.path}, {container.size:,} bytes" + (f": {types}" if types else "")
    yield f"source: {audit.checkpoint.folder}"
    yield audit.coverage
    for rule, alike in groupby(audit.findings, key=lambda finding: finding.rule):
        yield from _rule_lines(rule, list(alike))
    yield verdict(audit)


def _rule_lines(rule: str, findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings[:LISTED]:
        yield f"{RULES[rule].severity:<8} {rule:<{RULE}} {one_line(finding.message)}"
    if len(findings) > LISTED:
        yield f"{'':<8} {rule:<{RULE}} … and {len(findings) - LISTED} more"


def one_line(message: str) -> str:
    """A message as a terminal may show it: what a file's own names hold of control characters is escaped."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in message)


def verdict(audit: Audit) -> str:
    """The last line: whether the file is clean, and how many findings of each severity there are."""
    counts = Counter(finding.severity for finding in audit.findings)
    tally = ", ".join(f"{counts[severity]} {severity}{'s' * (counts[severity] != 1)}" for severity in Severity)
    return f"{'clean' if audit.is_clean else 'not clean'}: {tally}"
