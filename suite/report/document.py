"""``report.json``: everything a run found, as data, in the form that ``schema.json`` beside this file states."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from impl.errors import InputError
from suite.kit.artifacts import written_beside
from suite.kit.results import Figure, Outcome, Result, Series, reproduction
from suite.report.verdict import verdict

SCHEMA = "gguf-conformance/report"
VERSION = 2
SCHEMA_FILE = Path(__file__).with_name("schema.json")

Json = Mapping[str, object]


@dataclass(frozen=True)
class Report:
    """One run: what it was about, every result, and a footer that says whether it is all there."""

    header: Json
    """When, where, how and on what; ``properties.header`` of the schema."""
    claims: Sequence[Json]
    """The catalogue, with the claims that the run did not select as well."""
    results: tuple[Result, ...]
    footer: Json
    """``selected`` tests, number of ``results``, the tests ``without_verdict``, and ``complete``."""

    @property
    def note(self) -> str:
        """What a reader has to know of the checkpoint; empty where nothing."""
        return self.header["checkpoint"]["note"]

    @property
    def questions(self) -> Mapping[str, str]:
        """What each claim asks, by its id."""
        return {entry["id"]: entry["question"] for entry in self.claims}

    @property
    def verdicts(self) -> Sequence[Json]:
        """The answers to the four questions for each implementation, as words and as data."""
        found = []
        for name in dict.fromkeys(each.implementation for each in self.results if each.implementation):
            of_one = verdict([each for each in self.results if each.implementation == name], self.questions)
            found.append({"implementation": name, "line": of_one.line, **asdict(of_one)})
        return found

    def reproduction(self, result: Result) -> str:
        """The shell command that decides one case again."""
        options = {each["name"]: each["options"] for each in self.header["implementations"]}
        return reproduction(result.node, options.get(result.implementation, self.header["options"]))

    @property
    def incompleteness(self) -> str:
        """What is missing of the run; empty where nothing is."""
        if self.footer["complete"]:
            return ""
        missing = len(self.footer["without_verdict"])
        return f"incomplete run: {missing} of {self.footer['selected']} cases without a verdict"


def footer(results: Sequence[Result], without_verdict: Sequence[str], went_through: bool) -> Json:
    """The footer of a run; one that was stopped, or lost a test on its way, is not complete."""
    return {
        "selected": len(results) + len(without_verdict),
        "results": len(results),
        "without_verdict": sorted(without_verdict),
        "complete": went_through and not without_verdict,
    }


def write_json(report: Report, path: Path) -> None:
    """Write ``report.json``; numbers that are not finite, which JSON has not, stand there as text."""
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "header": report.header,
        "claims": report.claims,
        "results": [asdict(result) for result in report.results],
        "verdicts": report.verdicts,
        "footer": report.footer,
    }
    with written_beside(path) as unfinished:
        text = json.dumps(_without_non_finite(document), indent=1, ensure_ascii=False, allow_nan=False)
        unfinished.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Report:
    """The report written at ``path``.

    Raises ``InputError`` for a file that is none, for one of another version, and for one that was cut or edited so
    that its footer no longer counts its results.
    """
    document = _validated(path)
    report = Report(
        header=document["header"],
        claims=document["claims"],
        results=tuple(_result(each) for each in document["results"]),
        footer=document["footer"],
    )
    if len(report.results) != report.footer["results"]:
        raise InputError(
            f"{path}: found {len(report.results)} results, expected the {report.footer['results']} of its footer"
        )
    return report


def _validated(path: Path) -> Json:
    import jsonschema

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable report: {' '.join(str(error).split())}") from error
    found = document.get("version") if isinstance(document, dict) and document.get("schema") == SCHEMA else None
    if found != VERSION:
        named = "no report of this suite" if found is None else f"version {found}"
        raise InputError(f"{path}: found {named}, expected {SCHEMA} version {VERSION}")
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))
    fault = jsonschema.exceptions.best_match(validator.iter_errors(document))
    if fault is not None:
        raise InputError(f"{path}: {fault.json_path}: {fault.message[:200]}")
    return document


def _result(entry: Json) -> Result:
    figures = tuple(
        Figure(each["label"], _number(each["measured"]), _number(each["article"])) for each in entry["figures"]
    )
    series = tuple(
        Series(each["label"], tuple(map(_number, each["values"])), tuple(each["names"])) for each in entry["series"]
    )
    return Result(**{**entry, "outcome": Outcome(entry["outcome"]), "figures": figures, "series": series})


def _number(value: float | str | None) -> float | None:
    return float(value) if isinstance(value, str) else value


def _without_non_finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _without_non_finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_non_finite(each) for each in value]
    return value
