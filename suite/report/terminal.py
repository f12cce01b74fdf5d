"""The terminal summary: each claim's outcome, and its figures beside the article's."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from suite.claims import Question
from suite.kit.results import Figure, Outcome, Result
from suite.report.document import Report
from suite.report.figures import number
from suite.report.matrix import Subject, claims_of, subjects
from suite.report.verdict import TYPE_COLUMNS, TypeRow, type_cells

FEW = 10
"""Up to so many cases, each one that passed is listed with its figures; of more, only their number is."""

TOLD = 3
"""So many different reasons of one outcome of a claim are told; the report has them all."""

FIGURES = " " * 18
LABEL = 58

SHORT: Mapping[Outcome, str] = {
    Outcome.PASS: "pass",
    Outcome.FAIL: "FAIL",
    Outcome.DEVIATION: "dev",
    Outcome.NOT_OFFERED: "n/o",
    Outcome.HARDWARE_ABSENT: "hw",
    Outcome.UNDECIDED: "und",
    Outcome.NOT_MET: "not met",
    Outcome.ERROR: "ERROR",
}
"""The outcomes as the columns of the matrix have room for."""


def summary_lines(report: Report) -> Iterator[str]:
    """The lines of the summary."""
    order = {claim: position for position, claim in enumerate(claims_of([report]))}
    columns = sorted(subjects([report]), key=lambda subject: subject.implementation)
    for subject in columns:
        yield from ("", subject.implementation or "claims about no implementation")
        yield from _question_lines(subject, order)
    yield ""
    implementations = [subject for subject in columns if subject.implementation]
    if len(implementations) > 1:
        yield from _matrix_lines(implementations, list(order))
    yield from _reproductions(report)
    for subject in implementations:
        yield from _type_lines(subject.implementation, subject.verdict.types)
    yield from (f"note: {note}" for note in (report.note, report.incompleteness) if note)
    for subject in columns:
        counts = Counter(result.outcome for result in subject.results)
        tally = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)
        yield f"{subject.implementation or 'no implementation'}: {tally}"
    yield from (f"{subject.name}: {subject.verdict.line}" for subject in implementations)


def _question_lines(subject: Subject, order: Mapping[str, int]) -> Iterator[str]:
    """The claims under the question that they ask, in the order of the catalogue."""
    questions = subject.report.questions
    for question in Question:
        asked = [result for result in subject.results if questions[result.claim] == question]
        if asked:
            yield f" {question}"
        ranked = sorted(asked, key=lambda result: (order[result.claim], result.case))
        for claim, cases in groupby(ranked, key=lambda result: result.claim):
            yield from _claim_lines(claim, list(cases))


def _matrix_lines(implementations: Sequence[Subject], claims: Sequence[str]) -> Iterator[str]:
    """One line for each claim that was selected, one column for each implementation."""
    selected = [claim for claim in claims if any(subject.cases(claim) for subject in implementations)]
    table = [["", *(subject.implementation for subject in implementations)]]
    table += [[claim, *(_cell(subject, claim) for subject in implementations)] for claim in selected]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
    yield f"({', '.join(f'{short} {outcome}' for outcome, short in SHORT.items() if short != outcome)})"
    yield ""


def _type_lines(implementation: str, types: Sequence[TypeRow]) -> Iterator[str]:
    """One line for each type of which an error was measured."""
    measured = [row for row in types if row.ratio is not None]
    if not measured:
        return
    table = [[implementation, *TYPE_COLUMNS], *([row.type, *type_cells(row)] for row in measured)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, *cells in table:
        yield "  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])])
    yield ""


def _cell(subject: Subject, claim: str) -> str:
    counts = subject.counts(claim)
    if sum(counts.values()) == 1:
        return SHORT[next(iter(counts))]
    return " ".join(f"{count} {SHORT[outcome]}" for outcome, count in counts.items())


def _claim_lines(claim: str, cases: Sequence[Result]) -> Iterator[str]:
    for outcome, alike in groupby(sorted(cases, key=lambda result: result.outcome), key=lambda result: result.outcome):
        rows = list(alike)
        if outcome is not Outcome.PASS:
            yield from _told(claim, outcome, rows)
        elif len(rows) > FEW:
            yield f"  {outcome:<15} {claim}: {len(rows)} cases"
        else:
            yield from _listed(claim, rows)


def _told(claim: str, outcome: Outcome, rows: Sequence[Result]) -> Iterator[str]:
    """Cases that did not pass: the first reasons with their figures, of the others only the names."""
    by_detail: dict[str, list[Result]] = {}
    for result in rows:
        # What is not offered differs in the name of the case alone.
        by_detail.setdefault("" if outcome is Outcome.NOT_OFFERED else result.summary, []).append(result)
    told, others = list(by_detail.items())[:TOLD], list(by_detail.values())[TOLD:]
    for detail, alike in told:
        yield f"  {outcome:<15} {claim}{_names(alike)}"
        if detail:
            yield f"{FIGURES}{detail}"
        yield from (_figure_line(figure) for result in alike for figure in result.figures)
    if others:
        yield f"  {outcome:<15} {claim}{_names([result for alike in others for result in alike])}"


def _names(rows: Sequence[Result]) -> str:
    names = ", ".join(result.case for result in rows if result.case)
    return f" [{names}]" if names else ""


def _listed(claim: str, rows: Sequence[Result]) -> Iterator[str]:
    for result in rows:
        yield f"  {result.outcome:<15} {claim}{f' [{result.case}]' if result.case else ''}"
        yield from map(_figure_line, result.figures)


def _figure_line(figure: Figure) -> str:
    article = "" if figure.article is None else f"   article {number(figure.article)}"
    return f"{FIGURES}{figure.label:<{LABEL}} {number(figure.measured):>12}{article}"


def _reproductions(report: Report) -> Iterator[str]:
    broken = [result for result in report.results if result.outcome.breaks_the_run]
    if broken:
        yield "to reproduce:"
        yield from (f"  {report.reproduction(result)}" for result in broken)
        yield ""
