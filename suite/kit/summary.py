"""The terminal summary: each claim's outcome, and its figures beside the article's."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from suite.claims import CLAIMS
from suite.kit.results import Figure, Outcome, Result

FEW = 10
"""Up to so many cases, each one that passed is listed with its figures; of more, only their number is."""

FIGURES = " " * 18
LABEL = 58


def summary_lines(results: Sequence[Result], note: str, options: Sequence[str]) -> Iterator[str]:
    """The lines of the summary.

    ``note`` is what a reader has to know of the checkpoint; ``options`` are the command's own, repeated
    in each reproduction.
    """
    order = {identity: position for position, identity in enumerate(CLAIMS)}
    ranked = sorted(results, key=lambda result: (result.implementation, order[result.claim], result.case))
    for implementation, rows in groupby(ranked, key=lambda result: result.implementation):
        yield from ("", implementation or "claims about no implementation")
        for claim, cases in groupby(rows, key=lambda result: result.claim):
            yield from _claim_lines(claim, list(cases))
    yield ""
    yield from _reproductions(ranked, options)
    if note:
        yield f"note: {note}"
    for implementation, rows in groupby(ranked, key=lambda result: result.implementation):
        counts = Counter(result.outcome for result in rows)
        tally = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)
        yield f"{implementation or 'no implementation'}: {tally}"


def _claim_lines(claim: str, cases: Sequence[Result]) -> Iterator[str]:
    for (outcome, detail), alike in groupby(sorted(cases, key=_outcome_and_detail), key=_outcome_and_detail):
        rows = list(alike)
        if outcome is Outcome.PASS and len(rows) > FEW:
            yield f"  {outcome:<15} {claim}: {len(rows)} cases"
        elif outcome is Outcome.PASS:
            yield from _listed(claim, rows)
        else:
            names = ", ".join(result.case for result in rows if result.case)
            yield f"  {outcome:<15} {claim}{f' [{names}]' if names else ''}"
            if detail:
                yield f"{FIGURES}{detail}"
            yield from (_figure_line(figure) for result in rows for figure in result.figures)


def _outcome_and_detail(result: Result) -> tuple[Outcome, str]:
    # What is not offered differs in the name of the case alone.
    return result.outcome, "" if result.outcome is Outcome.NOT_OFFERED else result.detail


def _listed(claim: str, rows: Sequence[Result]) -> Iterator[str]:
    for result in rows:
        yield f"  {result.outcome:<15} {claim}{f' [{result.case}]' if result.case else ''}"
        yield from map(_figure_line, result.figures)


def _figure_line(figure: Figure) -> str:
    article = "" if figure.article is None else f"   article {_number(figure.article)}"
    return f"{FIGURES}{figure.label:<{LABEL}} {_number(figure.measured):>12}{article}"


def _number(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3f}" if 0.1 <= abs(value) < 1e6 else f"{value:.2e}"


def _reproductions(results: Sequence[Result], options: Sequence[str]) -> Iterator[str]:
    broken = [result for result in results if result.outcome.breaks_the_run]
    if broken:
        yield "to reproduce:"
        yield from ("  " + shlex.join(["pytest", result.node, *options]) for result in broken)
        yield ""
