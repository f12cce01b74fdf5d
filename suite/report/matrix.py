"""The matrix: for each claim and each implementation under test, how many cases had which outcome."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.kit.results import Outcome, Result
from suite.report.document import Report
from suite.report.verdict import Verdict, verdict

SYMBOLS: Mapping[Outcome, str] = {
    Outcome.PASS: "✓",
    Outcome.FAIL: "✗",
    Outcome.DEVIATION: "≠",
    Outcome.NOT_OFFERED: "–",
    Outcome.HARDWARE_ABSENT: "∅",
    Outcome.UNDECIDED: "?",
    Outcome.NOT_MET: "△",
    Outcome.ERROR: "!",
}
"""A sign for each outcome; it stands beside the word, never for it."""

ALWAYS_TOLD = (Outcome.PASS, Outcome.FAIL, Outcome.ERROR)
"""The outcomes whose number a tally gives even where it is 0."""


@dataclass(frozen=True)
class Subject:
    """What one column is about: an implementation in one run, or what a run found about no implementation.

    ``machine`` tells runs apart and is empty where there is one only.
    """

    implementation: str
    version: str
    machine: str
    report: Report
    results: tuple[Result, ...]

    @property
    def name(self) -> str:
        """The implementation with its version, and its machine where there are several."""
        named = f"{self.implementation} {self.version}" if self.implementation else "no implementation"
        return f"{named} @ {self.machine}" if self.machine else named

    @property
    def verdict(self) -> Verdict:
        """The answers to the four questions."""
        return verdict(self.results, self.report.questions)

    @property
    def tally(self) -> str:
        """The number of cases of every outcome, e.g. ``370 pass, 0 fail, 0 error, 70 not offered``."""
        counts = Counter(result.outcome for result in self.results)
        order = (*ALWAYS_TOLD, *(outcome for outcome in Outcome if outcome not in ALWAYS_TOLD and counts[outcome]))
        return ", ".join(f"{counts[outcome]} {outcome}" for outcome in order)

    @property
    def broken(self) -> bool:
        """Whether any case failed or fell over."""
        return any(result.outcome.breaks_the_run for result in self.results)

    @property
    def colour(self) -> str:
        """``pass`` only where something did, nothing broke, and the run went to its end."""
        if self.broken:
            return "fail"
        passed = any(result.outcome is Outcome.PASS for result in self.results)
        return "pass" if passed and not self.report.incompleteness else "other"

    def cases(self, claim: str) -> tuple[Result, ...]:
        """The results of one claim."""
        return tuple(result for result in self.results if result.claim == claim)

    def counts(self, claim: str) -> Mapping[Outcome, int]:
        """How many cases of a claim had which outcome, in the order of outcomes; empty for one not selected."""
        counts = Counter(result.outcome for result in self.cases(claim))
        return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


def subjects(reports: Sequence[Report]) -> tuple[Subject, ...]:
    """One for each implementation of each run, then one for each run that found something about none."""
    machines = _machines(reports)
    columns = []
    for report, machine in zip(reports, machines, strict=True):
        versions = {each["name"]: each["version"] for each in report.header["implementations"]}
        for name in sorted({result.implementation for result in report.results}):
            results = tuple(result for result in report.results if result.implementation == name)
            columns.append(Subject(name, versions.get(name, ""), machine, report, results))
    return tuple(sorted(columns, key=lambda subject: not subject.implementation))


def claims_of(reports: Sequence[Report]) -> Mapping[str, Mapping[str, str]]:
    """The catalogue entries of all reports by claim, in the order of the first; of a later run only what it adds."""
    entries: dict[str, Mapping[str, str]] = {}
    for report in reports:
        for entry in report.claims:
            entries.setdefault(entry["id"], entry)
    return entries


def _machines(reports: Sequence[Report]) -> list[str]:
    """A short name for each run's machine, with its checkpoint where these differ; one run alone needs none.

    Runs that would be called the same are numbered.
    """
    if len(reports) == 1:
        return [""]
    systems = [str(report.header["machine"]["system"]) for report in reports]
    checkpoints = [str(report.header["checkpoint"]["name"]) for report in reports]
    if len(set(checkpoints)) > 1:
        systems = [f"{system}, {checkpoint}" for system, checkpoint in zip(systems, checkpoints, strict=True)]
    return [
        f"{system} ({systems[: position + 1].count(system)})" if systems.count(system) > 1 else system
        for position, system in enumerate(systems)
    ]
