"""Measured figures beside the article's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from suite.report.matrix import Subject


@dataclass(frozen=True)
class Row:
    """One figure: what each subject measured, None where it did not, and what the article did."""

    claim: str
    case: str
    label: str
    article: float | None
    measured: tuple[float | None, ...]
    """One for each subject."""


def rows(claim: str, subjects: Sequence[Subject]) -> list[Row]:
    """The figures of a claim, those of equal case and label in one row."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    articles: dict[tuple[str, str], float | None] = {}
    for column, subject in enumerate(subjects):
        for result in subject.cases(claim):
            for figure in result.figures:
                key = (result.case, figure.label)
                found.setdefault(key, {})[column] = figure.measured
                articles[key] = figure.article if articles.get(key) is None else articles[key]
    return [
        Row(claim, case, label, articles[case, label], tuple(map(measured.get, range(len(subjects)))))
        for (case, label), measured in found.items()
    ]


def number(value: float) -> str:
    """A figure as a person reads it."""
    if not math.isfinite(value):
        return "not finite"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3f}" if 0.1 <= abs(value) < 1e6 else f"{value:.2e}"


def relative_difference(measured: float, article: float) -> str:
    """How far a figure is from the article's, e.g. ``+12.5 %``; ``equal`` where it is the same number."""
    if measured == article:
        return "equal"
    if article == 0 or not math.isfinite(measured):
        return "no ratio"
    return f"{(measured - article) / abs(article):+,.1%}".replace("%", " %")
