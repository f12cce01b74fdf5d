"""How far the values that a dequantizer reads are from what the format says, and in which arithmetic it reads them."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from suite.kit import layout
from suite.kit.block_inputs import COLUMNS, SEED

RUN = 32
LARGEST = 2.0**15
"""Runs with a larger value are left out: their products may pass what a float16 holds."""
LEAST_UNIT = 2.0**-10
"""A run's largest value counts for at least so much: below, a float16 of a value has fewer digits."""
RANDOM_ROWS = 64


class Arithmetic(StrEnum):
    """What computes the values, by how many digits are left of them."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    NONE = "no"

    @classmethod
    def of(cls, largest: float) -> "Arithmetic":
        """The arithmetic whose rounding explains a difference of ``largest`` of a run's largest value."""
        return next((each for each, bound in BOUNDS.items() if largest <= bound), cls.NONE)


BOUNDS = {Arithmetic.FLOAT32: 2.0**-20, Arithmetic.FLOAT16: 2.0**-8}
"""The largest difference in units of a run's largest value; ``docs/bounds.md`` has what was measured."""


@dataclass(frozen=True)
class Differences:
    """The largest differences between values found and expected, and where the first of these is."""

    compared: int
    of_run: float
    """In units of the largest value of its run."""
    ulps: float
    """In units of the last place of the expected float32."""
    worst: str


def largest_differences(found: NDArray[np.float32], expected: NDArray[np.float32], run: int) -> Differences:
    """Of two float32[rows, columns], over the runs of which all expected values are finite and at most ``LARGEST``."""
    largest = np.abs(expected).reshape(len(expected), -1, run).max(axis=2)
    compared = (largest <= LARGEST).repeat(run, axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(found.astype(np.float64) - expected)
    difference = np.where(compared, np.nan_to_num(difference, nan=np.inf), 0)
    unit = np.where(compared, np.maximum(largest, LEAST_UNIT).repeat(run, axis=1), 1)
    row, column = np.unravel_index(np.argmax(difference / unit), difference.shape)
    ulp = np.spacing(np.where(compared, np.abs(expected), 1))
    return Differences(
        int(np.count_nonzero(compared)),
        float((difference / unit)[row, column]),
        float((difference / ulp).max()),
        f"row {row}, column {column} reads as {found[row, column]:.7g} where {expected[row, column]:.7g} is right",
    )


def run_of(type: str) -> int:
    """The weights whose largest value a difference is measured by: 32, and each alone in a type without blocks."""
    return min(RUN, layout.block_size(type)[0])


def random_blocks(type: str) -> NDArray[np.uint8]:
    """Rows of bytes of which every one occurs: uint8[rows, bytes per row]."""
    row_bytes = layout.tensor_bytes((COLUMNS,), type)
    return np.random.default_rng(SEED).integers(0, 256, (RANDOM_ROWS, row_bytes), dtype=np.uint8)
