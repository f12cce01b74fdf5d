"""The verdict on one program in one line, an answer for each of the four questions, and its block types in a table."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from suite.claims import Question
from suite.kit.results import Outcome, Result

DECIDED = (Outcome.PASS, Outcome.FAIL, Outcome.NOT_MET, Outcome.DEVIATION, Outcome.ERROR)
NOT_ASKED = "not asked"
NOT_HELD: Mapping[str, Sequence[Outcome]] = {
    "no": (Outcome.FAIL, Outcome.NOT_MET),
    "fell over": (Outcome.ERROR,),
    "declared otherwise": (Outcome.DEVIATION,),
}
"""How a verdict tells the outcomes that are no pass."""
FLOAT_BITS = 16
"""Of as many bits on, a type is a float, of which nothing is searched."""
RATIO = "error / ggml's"
OF_TYPES = ("blocks.", "bytes.")
"""How the claims begin whose cases begin with a block type."""


@dataclass(frozen=True)
class TypeRow:
    """What was measured of one block type; None where nothing was. Errors are root mean squares over all weights."""

    type: str
    bits: float | None
    error: float | None
    """As a share of normal weights."""
    ratio: float | None
    """The error over ggml's, on normal, heavy-tailed and real weights together."""
    beside_best: float | None
    """The error over the least that the format can have."""
    bytes_differ: float | None
    """The share of bytes, on every input, that are not ggml's."""
    values_differ: float | None
    identical: bool | None
    """Whether every claim about the type's bytes holds."""


@dataclass(frozen=True)
class Verdict:
    """The answers to the four questions, in words, and the types they were measured on."""

    right: str
    good: str
    identical: str
    careful: str
    types: tuple[TypeRow, ...]

    @property
    def line(self) -> str:
        """All four, e.g. ``right: yes · good: 0.95 × ggml's error (q2_k 0.76 … q4_k 1.00) · …``."""
        return " · ".join(f"{question}: {getattr(self, question)}" for question in Question)


def verdict(results: Sequence[Result], questions: Mapping[str, str]) -> Verdict:
    """The verdict on a program, from its results in a run; ``questions`` says what each claim asks."""
    decided = tuple(each for each in results if each.outcome in DECIDED)
    asked = {question: tuple(each for each in decided if questions[each.claim] == question) for question in Question}
    types = tuple(_type_rows(decided))
    return Verdict(
        right=_yes_or_no(asked[Question.RIGHT]),
        good=_good(asked[Question.GOOD], types),
        identical=_identical(asked[Question.IDENTICAL], types),
        careful=_careful(asked[Question.CAREFUL]),
        types=types,
    )


def _yes_or_no(results: Sequence[Result]) -> str:
    """``yes``, or by claim how many cases do not hold, fell over, or differ as the program declares."""
    if not results:
        return NOT_ASKED
    told = {words: _by_claim(results, outcomes) for words, outcomes in NOT_HELD.items()}
    return "; ".join(f"{words}: {claims}" for words, claims in told.items() if claims) or "yes"


def _by_claim(results: Sequence[Result], outcomes: Sequence[Outcome]) -> str:
    """E.g. ``blocks.rows 2 of 25, blocks.values 1 of 28``; empty where none counts."""
    asked = Counter(each.claim for each in results)
    counted = Counter(each.claim for each in results if each.outcome in outcomes)
    return ", ".join(f"{claim} {number} of {asked[claim]}" for claim, number in counted.items())


def _good(results: Sequence[Result], types: Sequence[TypeRow]) -> str:
    """The error beside ggml's where there is one, and whether all else holds."""
    ratios = {row.type: row.ratio for row in types if row.ratio and row.bits < FLOAT_BITS}
    others = tuple(each for each in results if not each.claim.startswith(OF_TYPES))
    answers = []
    if ratios:
        best, worst = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        differ = f"{ratios[best]:.2f}" != f"{ratios[worst]:.2f}"
        extremes = f" ({best} {ratios[best]:.2f} … {worst} {ratios[worst]:.2f})" if differ else ""
        answers.append(f"{geometric_mean(ratios.values()):.2f} × ggml's error{extremes}")
    if others or not ratios:
        answers.append(_yes_or_no(others or results))
    return ", else ".join(answers)


def _careful(results: Sequence[Result]) -> str:
    """``yes``, or how many inputs are not refused in words that name the place."""
    spared = sum(each.outcome is not Outcome.PASS for each in results)
    return f"{spared} of {len(results)} inputs not refused as asked" if spared else "yes" if results else NOT_ASKED


def _identical(results: Sequence[Result], types: Sequence[TypeRow]) -> str:
    """Of how many types every byte is ggml's, and of how many other cases."""
    of_types = [row.identical for row in types if row.identical is not None]
    others = [each.outcome is Outcome.PASS for each in results if not _is_of_a_type(each)]
    counted = ((of_types, "types"), (others, "other cases" if of_types else "cases"))
    return ", ".join(f"{sum(each)} of {len(each)} {name}" for each, name in counted if each) or NOT_ASKED


def _is_of_a_type(result: Result) -> bool:
    return result.claim.startswith(OF_TYPES) and bool(result.case)


def _type_rows(results: Sequence[Result]) -> Iterator[TypeRow]:
    found: dict[str, list[Result]] = {}
    for result in results:
        if _is_of_a_type(result):
            found.setdefault(result.case.partition("-")[0], []).append(result)
    rows = (_type_row(type, of_type) for type, of_type in found.items())
    return iter(sorted(rows, key=lambda row: (-(row.bits or 0), row.type)))


def _type_row(type: str, results: Sequence[Result]) -> TypeRow:
    figures = {(each.claim, figure.label): figure.measured for each in results for figure in each.figures}
    error = _figures_of("blocks.error", figures)
    plain = _figures_of("bytes.quantize", figures)
    identity = [each.outcome is Outcome.PASS for each in results if each.claim.startswith("bytes.")]
    return TypeRow(
        type,
        bits=error("bits per weight"),
        error=error("error / weights"),
        ratio=error(RATIO),
        beside_best=error("error / the least of the format"),
        bytes_differ=_share(plain("bytes that differ"), plain("bytes compared")),
        values_differ=_share(plain("values that differ"), plain("values compared")),
        identical=all(identity) if identity else None,
    )


def _figures_of(claim: str, figures: Mapping[tuple[str, str], float]) -> Callable[[str], float | None]:
    return lambda label: figures.get((claim, label))


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


TYPE_COLUMNS = ("bits", "error", "/ ggml's", "/ the least", "bytes differ", "values differ", "identical")
"""What a row of the table of types tells of its type."""


def type_cells(row: TypeRow) -> list[str]:
    """A row as ``TYPE_COLUMNS`` head it; what was not measured is a dash."""
    identical = {None: "", True: "yes", False: "no"}[row.identical]
    if row.bytes_differ and row.values_differ == 0:
        identical = "no, but every value is"
    shares = [
        None if share is None else f"{share:.2%}".replace("%", " %") for share in (row.bytes_differ, row.values_differ)
    ]
    numbers = [
        None if value is None else f"{value:{form}}"
        for value, form in ((row.bits, ".4g"), (row.error, ".4g"), (row.ratio, ".3f"), (row.beside_best, ".3f"))
    ]
    return [cell or "–" for cell in (*numbers, *shares, identical)]
