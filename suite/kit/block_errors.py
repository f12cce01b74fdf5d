"""How far blocks are from the weights that they stand for, beside what ggml makes of the same weights.

Errors are taken over runs of 32 weights, the smallest block that most formats have, so that one wrong sub-block of a
super-block shows. The blocks are read by ggml: a program's own dequantizer could undo a fault of its quantizer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from suite.kit import layout
from suite.kit.block_cases import BlockCase, hard_cases
from suite.kit.bounds import BlockBounds
from suite.kit.oracle import needs_importance, quantized_by_ggml, read_by_ggml

RUN = 32
"""Weights over which one error is taken."""

QUANTUM = 2 * 2.0**-24
"""Twice the smallest float16 above 0: a scale and a minimum cannot be set more finely."""


KEPT = 0.5
"""From which share of the weights on that ggml leaves another quantizer's share is judged."""


@dataclass(frozen=True)
class BlockErrors:
    """The errors of one quantized matrix, as root sums of squares, weighed by the importance where there is one.

    ``found``, ``searched`` and ``plain`` are float64[rows, columns / 32]: the program's errors, and ggml's with the
    importance and without it, which are one where there is none; ``magnitude`` is the weights' own. ``gain`` is how
    much of the weights the values have, <weights, values> / <weights, weights>, and ``usual_gain`` ggml's.
    """

    case: BlockCase
    type: str
    found: NDArray[np.float64]
    searched: NDArray[np.float64]
    plain: NDArray[np.float64]
    magnitude: NDArray[np.float64]
    gain: float
    usual_gain: float

    @property
    def ratio(self) -> float:
        """The program's error in all over ggml's; 1 where neither has any, infinite where only the program has."""
        return _ratio(_whole(self.found), _whole(self.searched))

    @property
    def ratio_of_plain(self) -> float:
        """ggml's error in all where it does not look at the importance over what it is where it does."""
        return _ratio(_whole(self.plain), _whole(self.searched))

    @property
    def share(self) -> float:
        """The program's error in all, as a share of the weights' magnitude; 0 where these are all 0."""
        return 0.0 if not self.magnitude.any() else _whole(self.found) / _whole(self.magnitude)

    @property
    def excess(self) -> NDArray[np.float64]:
        """For each run, the program's error in units of what the type costs there: float64[rows, runs].

        The unit is ggml's own error on the run or, where that is more, the share of the weights of its run or block
        that it is on normal weights: a run that ggml's search happens to meet exactly, or that is small in its
        super-block, asks no more of other searches than the rest does. It is at least what a float16 can tell.
        """
        usual = usual_share(self.type) * np.maximum(self.magnitude, self._magnitude_of_block)
        return _in_units(self.found, np.maximum.reduce([self._expected, usual, self._quantum]))

    @property
    def beside_zeros(self) -> NDArray[np.float64]:
        """For each run, the program's error in units of what zeros would cost, or of ggml's where that is more; of what
        a float16 can tell at least."""
        return _in_units(self.found, np.maximum.reduce([self._expected, self.magnitude, self._quantum]))

    def faults(self, bounds: BlockBounds) -> list[str]:
        """What is beyond the bounds, the worst run of each kind with its place."""
        found = [
            self._worst(self.excess, bounds.excess(ordinary=self.case.ordinary), "what the type costs there"),
            self._worst(self.beside_zeros, bounds.beside_zeros, "what zeros would cost"),
        ]
        low, high = bounds.gain(self.usual_gain)
        kept = self.case.importance is None and self.usual_gain >= KEPT
        if kept and not low <= self.gain <= high:
            found.append(
                f"{self.case.name}: {self.gain:.2f} of the weights is left, from {low:.2f} to {high:.2f} may be"
            )
        return [fault for fault in found if fault]

    @property
    def _magnitude_of_block(self) -> NDArray[np.float64]:
        """For each run the magnitude that it would have if it had its share of its block's."""
        runs = max(1, layout.block_size(self.type)[0] // RUN)
        squares = (self.magnitude**2).reshape(len(self.magnitude), -1, runs).mean(axis=2)
        return np.sqrt(squares).repeat(runs, axis=1)

    @property
    def _quantum(self) -> NDArray[np.float64]:
        return QUANTUM * _magnitudes(np.ones_like(self.case.weight), self.case.importance)

    @property
    def _expected(self) -> NDArray[np.float64]:
        return np.maximum(self.searched, self.plain)

    def _worst(self, measured: NDArray[np.float64], bound: float, unit: str) -> str:
        row, run = np.unravel_index(np.argmax(measured), measured.shape)
        if measured[row, run] <= bound:
            return ""
        values, size = layout.block_size(self.type)
        block, first = run * RUN // values, run * RUN
        return (
            f"{self.case.name}: row {row}, columns {first} to {first + RUN - 1} (block {block}, byte {block * size}): "
            f"the error is {measured[row, run]:.3g} times {unit}, at most {bound:g} is right; "
            f"so are {np.count_nonzero(measured > bound)} of {measured.size} runs"
        )


def block_errors(case: BlockCase, type: str, blocks: NDArray[np.uint8]) -> BlockErrors:
    """The errors of a program's ``blocks`` of a case."""
    found, searched = (read_by_ggml(each, type) for each in (blocks, quantized_by_ggml(case, type)))
    plain = searched
    if case.importance is not None and not needs_importance(type):
        plain = read_by_ggml(quantized_by_ggml(replace(case, importance=None), type), type)
    return BlockErrors(
        case,
        type,
        *(run_errors(case.weight, read, case.importance) for read in (found, searched, plain)),
        _magnitudes(case.weight, case.importance),
        *(_gain(case.weight, read) for read in (found, searched)),
    )


@cache
def usual_share(type: str) -> float:
    """ggml's error on normal weights, as a share of them."""
    normal = next(case for case in hard_cases() if case.name == "normal")
    read = read_by_ggml(quantized_by_ggml(normal, type), type)
    return _ratio(_whole(run_errors(normal.weight, read)), _whole(_magnitudes(normal.weight)))


def ratio_over(errors: Sequence[BlockErrors]) -> float:
    """The program's error over ggml's on several matrices, each of which counts alike, whatever its magnitude."""
    found, expected = (
        np.linalg.norm([_whole(roots) / (_whole(each.magnitude) or 1) for each, roots in pairs])
        for pairs in ([(each, each.found) for each in errors], [(each, each.searched) for each in errors])
    )
    return _ratio(float(found), float(expected))


def run_errors(
    weight: NDArray[np.float32], read: NDArray[np.float32], importance: NDArray[np.float32] | None = None
) -> NDArray[np.float64]:
    """The root sums of squared differences, weighed by column: float64[rows, columns / 32].

    What is not finite is infinitely far.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        squares = (read.astype(np.float64) - weight) ** 2 * (1 if importance is None else importance.astype(np.float64))
        roots = np.sqrt(squares.reshape(len(weight), -1, RUN).sum(axis=2))
    finite = np.isfinite(read).reshape(len(weight), -1, RUN).all(axis=2)
    return np.where(finite, roots, np.inf)


def _magnitudes(weight: NDArray[np.float32], importance: NDArray[np.float32] | None = None) -> NDArray[np.float64]:
    """What zeros would cost in each run, where its magnitude is spread evenly over its columns' importance."""
    squares = np.square(weight, dtype=np.float64).reshape(len(weight), -1, RUN).mean(axis=2)
    columns = np.ones(weight.shape[1]) if importance is None else importance.astype(np.float64)
    return np.sqrt(squares * columns.reshape(-1, RUN).sum(axis=1))


def _gain(weight: NDArray[np.float32], read: NDArray[np.float32]) -> float:
    exact = weight.astype(np.float64)
    square = float(np.vdot(exact, exact))
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.vdot(exact, read.astype(np.float64))) / square if square else 1.0


def _whole(roots: NDArray[np.float64]) -> float:
    return float(np.sqrt((roots**2).sum()))


def _ratio(found: float, expected: float) -> float:
    if expected == 0:
        return 1.0 if found == 0 else float("inf")
    return found / expected


def _in_units(found: NDArray[np.float64], unit: NDArray[np.float64]) -> NDArray[np.float64]:
    measured = np.zeros_like(unit)
    with np.errstate(divide="ignore"):
        np.divide(found, unit, out=measured, where=found > 0)
    return measured
