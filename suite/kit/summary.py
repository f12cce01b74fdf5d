"""The terminal summary: each claim's outcome, and its figures beside the article's."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from suite.claims import CLAIMS
from suite.kit.results import Figure, Outcome, Result

WIDTH_OF_LABEL = 58


def summary_lines(results: Sequence[Result], note: str, options: Sequence[str]) -> Iterator[str]:
    """The lines of the summary.

    ``note`` is what a reader has to know of the checkpoint; ``options`` are the command's own, repeated
    in each reproduction.
    """
    order = {identity: position for position, identity in enumerate(CLAIMS)}
    ranked = sorted(results, key=lambda result: (result.implementation, order[result.claim], result.case))
    for implementation, rows in groupby(ranked, key=lambda result: result.implementation):
        yield ""
        yield implementation or "claims about no implementation"
        for result in rows:
            yield from _result_lines(result)
    yield ""
    yield from _reproductions(ranked, options)
    if note:
        yield f"note: {note}"
    for implementation, rows in groupby(ranked, key=lambda result: result.implementation):
        counts = Counter(result.outcome for result in rows)
        tally = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)
        yield f"{implementation or 'no implementation'}: {tally}"


def _result_lines(result: Result) -> Iterator[str]:
    case = f" [{result.case}]" if result.case else ""
    yield f"  {result.outcome:<15} {result.claim}{case}"
    if result.outcome is not Outcome.PASS and result.detail:
        yield f"{'':18}{result.detail}"
    for figure in result.figures:
        yield _figure_line(figure)


def _figure_line(figure: Figure) -> str:
    article = "" if figure.article is None else f"   article {_number(figure.article)}"
    return f"{'':18}{figure.label:<{WIDTH_OF_LABEL}} {_number(figure.measured):>12}{article}".rstrip()


def _number(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3f}" if 0.1 <= abs(value) < 1e6 else f"{value:.2e}"


def _reproductions(results: Sequence[Result], options: Sequence[str]) -> Iterator[str]:
    broken = [result for result in results if result.outcome.breaks_the_run]
    if broken:
        yield "to reproduce:"
        for result in broken:
            yield "  " + shlex.join(["pytest", result.node, *options])
        yield ""
