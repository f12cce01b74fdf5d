"""Whether quantized blocks stand for their weights, and how near, beside ggml's and whatever their bytes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from impl.protocol import Dequantizer, Quantizer
from suite.claims import claim
from suite.kit import layout
from suite.kit.answers import dequantized
from suite.kit.best_block import LEVELS, best_error
from suite.kit.block_cases import WEIGHED, BlockCase, generated_case, hard_cases, real_cases
from suite.kit.block_errors import RUN, BlockErrors, block_errors, ratio_over, run_errors
from suite.kit.block_inputs import NON_FINITE, BlockInput, Importance
from suite.kit.block_values import Arithmetic, largest_differences, random_blocks, run_of
from suite.kit.bounds import BlockBounds
from suite.kit.oracle import quantized_by, read_by_ggml
from suite.kit.results import Measure
from suite.kit.runs import Runs
from suite.kit.selection import require_importance, require_member

ROWS = 32
"""Of each real matrix; 32 rows of 576 weights are 576 runs."""
BLOCKS_TRIED = 2
"""Of each legacy type, for which every scale is tried."""
SHOWN = 8
"""Faults that a message lists."""


@claim("blocks.sound")
def test_blocks_stand_for_their_weights(runs: Runs, quantizer: Quantizer, block_type: str, measured: Measure) -> None:
    """Every run of 32 weights reads back as near as its type can, give or take another search: at most 2.7 times the
    error that the type costs there on ordinary weights, 7 times on any, and never 1.5 times what zeros would cost;
    zeros stay zero, and sign and magnitude stay. On chosen, real and generated blocks."""
    require_member(quantizer, "types", block_type)
    cases = [*hard_cases(), *real_cases(runs.source, block_type, ROWS), generated_case(block_type)]
    _require_sound(quantizer, block_type, cases, measured)


@claim("blocks.sound-importance")
def test_blocks_quantized_with_importance_stand_for_their_weights(
    quantizer: Quantizer, block_type: str, measured: Measure
) -> None:
    """With an importance for each column, too, every run of 32 weights reads back as near as its type can, errors
    weighed by it."""
    require_member(quantizer, "types", block_type)
    require_importance(quantizer, "quantize")
    _require_sound(quantizer, block_type, hard_cases(WEIGHED), measured)


@claim("blocks.rows")
def test_a_row_is_quantized_by_itself(quantizer: Quantizer, block_type: str) -> None:
    """A row gives the same blocks alone, and whatever rows stand before it."""
    require_member(quantizer, "types", block_type)
    for case in _ordinary():
        together, reversed_rows = (
            quantized_by(quantizer, replace(case, weight=weight), block_type)
            for weight in (case.weight, case.weight[::-1].copy())
        )
        alone = [quantized_by(quantizer, replace(case, weight=row[None]), block_type) for row in case.weight]
        for name, other in (("in reverse order", reversed_rows[::-1]), ("each alone", np.concatenate(alone))):
            rows = np.flatnonzero((together != other).any(axis=1))
            assert not rows.size, (
                f"{block_type}, {case.name}: {rows.size} of {len(other)} rows differ {name}, the first row {rows[:1]}"
            )


@claim("blocks.non-finite")
def test_a_weight_that_is_not_finite_becomes_no_number(quantizer: Quantizer, block_type: str) -> None:
    """NaN or an infinity among the weights is refused, or reads back as what is not finite: never as a number."""
    require_member(quantizer, "types", block_type)
    taken = [taken for chosen in NON_FINITE if (taken := _taken_for_a_number(quantizer, block_type, chosen))]
    assert not taken, f"{block_type}: {'; '.join(taken)}"


@claim("blocks.error")
def test_the_error_is_near_ggmls(runs: Runs, quantizer: Quantizer, block_type: str, measured: Measure) -> None:
    """On ordinary weights, chosen and real, the error in all is at most 1.1 times ggml's; less than 1 is better than
    ggml, and for the legacy types the least that the format allows is known too."""
    require_member(quantizer, "types", block_type)
    measured("bits per weight", layout.bits_per_weight(block_type))
    cases = [*_ordinary(), *real_cases(runs.source, block_type, ROWS)]
    found = [block_errors(case, block_type, quantized_by(quantizer, case, block_type)) for case in cases]
    measured("error / weights", found[0].share)
    if block_type in LEVELS:
        measured("error / the least of the format", _beside_the_best(quantizer, block_type))
    _require_ratio(block_type, found, BlockBounds().ratio, measured)


@claim("blocks.error-importance")
def test_the_weighed_error_is_near_ggmls(quantizer: Quantizer, block_type: str, measured: Measure) -> None:
    """With an importance for each column, the weighed error in all is at most 1.05 times what ggml's search by it
    leaves."""
    require_member(quantizer, "types", block_type)
    require_importance(quantizer, "quantize")
    cases = _ordinary(WEIGHED[0])
    found = [block_errors(case, block_type, quantized_by(quantizer, case, block_type)) for case in cases]
    measured("ggml's error without importance / with it", found[0].ratio_of_plain)
    _require_ratio(block_type, found, BlockBounds().weighed_ratio, measured)


@claim("blocks.values")
def test_blocks_read_as_their_values(dequantizer: Dequantizer, block_type: str, measured: Measure) -> None:
    """Every value of a block is what the format says, up to the rounding of float16 arithmetic beside the largest value
    of its run; the arithmetic is named."""
    require_member(dequantizer, "readable_types", block_type)
    blocks = random_blocks(block_type)
    expected, found = read_by_ggml(blocks, block_type), dequantized(dequantizer, blocks, block_type)
    differences = largest_differences(found, expected, run_of(block_type))
    arithmetic = Arithmetic.of(differences.of_run)
    measured("values compared", differences.compared)
    measured(f"largest difference / its run's largest value ({arithmetic} arithmetic)", differences.of_run)
    measured("largest difference in ulps of float32", differences.ulps)
    assert differences.compared
    assert arithmetic is not Arithmetic.NONE, f"{block_type}: {differences.worst}"


def _ordinary(importance: Importance | None = None) -> list[BlockCase]:
    """The chosen ordinary weights, with an importance or without."""
    columns = None if importance is None else importance.columns()
    return [replace(case, importance=columns) for case in hard_cases() if case.ordinary]


def _require_sound(quantizer: Quantizer, block_type: str, cases: Iterable[BlockCase], measured: Measure) -> None:
    found, faults = [], []
    for case in cases:
        try:
            blocks = quantized_by(quantizer, case, block_type)
        except Exception as refusal:
            faults.append(f"{case.name}: refused: {refusal}")
            continue
        found.append(block_errors(case, block_type, blocks))
        faults += found[-1].faults(BlockBounds())
    for name, ordinary in (("ordinary weights", True), ("any weights", False)):
        chosen = [errors for errors in found if errors.case.ordinary is ordinary]
        if not chosen:
            continue
        measured(f"worst run of {name} / what the type costs", max(float(each.excess.max()) for each in chosen))
        measured(f"worst run of {name} / what zeros would cost", max(float(each.beside_zeros.max()) for each in chosen))
    assert not faults, f"{block_type}: {len(faults)} faults on {len(found)} inputs\n" + "\n".join(faults[:SHOWN])


def _taken_for_a_number(quantizer: Quantizer, block_type: str, chosen: BlockInput) -> str:
    weight = chosen.weight()
    ((row, column),) = np.argwhere(~np.isfinite(weight))
    try:
        blocks = quantized_by(quantizer, BlockCase(chosen.name, weight), block_type)
    except Exception:
        return ""  # How well it is refused is another claim's.
    found = read_by_ggml(blocks, block_type)[row, column]
    return f"{chosen.name} at row {row}, column {column} reads back as {found:.6g}" if np.isfinite(found) else ""


def _beside_the_best(quantizer: Quantizer, block_type: str) -> float:
    """The program's error on a few blocks over the least that the type can have there."""
    blocks = next(case for case in hard_cases() if case.name == "normal").weight[0].reshape(-1, RUN)[:BLOCKS_TRIED]
    read = read_by_ggml(quantized_by(quantizer, BlockCase("normal", blocks), block_type), block_type)
    least = [best_error(block, block_type) for block in blocks]
    return float(np.linalg.norm(run_errors(blocks, read)) / np.linalg.norm(least))


def _require_ratio(block_type: str, found: Sequence[BlockErrors], bound: float, measured: Measure) -> None:
    ratio = ratio_over(found)
    measured("error / ggml's", ratio)
    worst = max(found, key=lambda errors: errors.ratio)
    assert ratio <= bound, (
        f"{block_type}: the error is {ratio:.3f} times ggml's over {len(found)} tensors, at most {bound} is good; "
        f"{worst.ratio:.3f} times on {worst.case.name}"
    )
