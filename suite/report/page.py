"""``report.html``: one page of one run or of several, self-contained, for a person to read."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from impl.errors import InputError
from suite.kit.artifacts import written_beside
from suite.kit.results import Outcome, Result
from suite.report import figures, step_plot, tensor_grid
from suite.report.document import Report
from suite.report.matrix import SYMBOLS, Subject, claims_of, subjects
from suite.report.verdict import TYPE_COLUMNS, type_cells

HERE = Path(__file__).parent
NOT_EXERCISED = (Outcome.NOT_OFFERED, Outcome.HARDWARE_ABSENT, Outcome.UNDECIDED)


@dataclass(frozen=True)
class Alike:
    """Cases of one claim that share outcome and reason; of what is not offered, all of them and one reason."""

    subject: Subject
    claim: str
    outcome: Outcome
    reason: str
    cases: tuple[str, ...]
    """Empty names for claims with one case only."""


@dataclass(frozen=True)
class Drawing:
    """The plots of one case of a claim."""

    subject: Subject
    result: Result
    steps: step_plot.StepPlot | None
    grids: tuple[tensor_grid.TensorGrid, ...]


def write_page(reports: Sequence[Report], path: Path) -> None:
    """Write the page of one run or of several."""
    with written_beside(path) as unfinished:
        unfinished.write_text(render(reports), encoding="utf-8")


def render(reports: Sequence[Report]) -> str:
    """The page as text; it refers to nothing outside itself. Raises ``InputError`` for no report at all."""
    if not reports:
        raise InputError("reports: found none, expected at least one")
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": figures.number, "shell": shlex.join, "symbol": SYMBOLS.__getitem__}
    columns, claims = subjects(reports), claims_of(reports)
    under_test = [subject for subject in columns if subject.implementation]
    about_none = [subject for subject in columns if not subject.implementation]
    return environment.get_template("page.html.j2").render(
        reports=reports,
        subjects=columns,
        claims=claims,
        matrices=[each for each in (under_test, about_none) if each],
        selected=lambda columns: _by_family(claims, columns),
        broken=[(subject, result) for subject in columns for result in subject.results if _is_broken(result)],
        deviations=list(_alike(columns, (Outcome.DEVIATION,))),
        not_exercised=list(_alike(columns, NOT_EXERCISED)),
        unselected=[claim for claim in claims if not any(subject.cases(claim) for subject in columns)],
        figure_rows=lambda columns: [row for claim in claims for row in figures.rows(claim, columns)],
        relative_difference=figures.relative_difference,
        type_columns=TYPE_COLUMNS,
        type_cells=type_cells,
        drawings=list(_drawings(columns, list(claims))),
        step_plot=step_plot,
        tensor_grid=tensor_grid,
    )


def _is_broken(result: Result) -> bool:
    return result.outcome.breaks_the_run


def _by_family(claims: Mapping[str, object], columns: Sequence[Subject]) -> list[tuple[str, list[str]]]:
    """The claims that any of the columns was asked, by family."""
    asked = [claim for claim in claims if any(subject.cases(claim) for subject in columns)]
    return [(family, list(members)) for family, members in groupby(asked, key=lambda claim: claim.partition(".")[0])]


def _alike(columns: Sequence[Subject], outcomes: Sequence[Outcome]) -> Iterator[Alike]:
    """Every result with one of the outcomes, those that differ in their case alone together."""
    for subject in columns:
        found: dict[tuple[Outcome, str, str], list[Result]] = {}
        for result in subject.results:
            if result.outcome in outcomes:
                # What is not offered differs in the name of the type or backend, which is the case's.
                reason = "" if result.outcome is Outcome.NOT_OFFERED else result.detail
                found.setdefault((result.outcome, result.claim, reason), []).append(result)
        for (outcome, claim, _), results in sorted(found.items(), key=lambda item: outcomes.index(item[0][0])):
            yield Alike(subject, claim, outcome, results[0].detail, tuple(result.case for result in results))


def _drawings(columns: Sequence[Subject], claims: Sequence[str]) -> Iterator[Drawing]:
    for claim in claims:
        for subject in columns:
            for result in subject.cases(claim):
                over_steps = [series for series in result.series if series.values and not series.names]
                grids = tuple(tensor_grid.tensor_grid(series) for series in result.series if series.names)
                if over_steps or grids:
                    yield Drawing(subject, result, step_plot.step_plot(over_steps) if over_steps else None, grids)
