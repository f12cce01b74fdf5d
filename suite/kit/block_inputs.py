"""The weights that byte claims are made on: named, seeded, each with the fault it catches.

``FINITE`` are weights every format for weights can hold; ``TOO_LARGE`` overflow a float16 scale, so that a
quantizer must refuse them or declare what it writes; ``NON_FINITE`` must be refused by name and place.
``IMPORTANCES`` are the column weights to quantize with.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

ROWS, COLUMNS = 8, 512
SEED = 20260501


@dataclass(frozen=True)
class BlockInput:
    """Weights to quantize."""

    name: str
    catches: str
    """The fault that shows on these weights."""
    build: Callable[[Generator], NDArray[np.floating]]
    ordinary: bool = False
    """Whether trained weights are distributed like these."""

    def weight(self) -> NDArray[np.float32]:
        """Float32[8, 512], the same at every call."""
        return np.broadcast_to(self.build(default_rng(SEED)), (ROWS, COLUMNS)).astype(np.float32)


@dataclass(frozen=True)
class Importance:
    """Column weights, as an importance matrix gives them for one tensor."""

    name: str
    catches: str
    build: Callable[[Generator], NDArray[np.floating]]

    def columns(self) -> NDArray[np.float32]:
        """Float32[512], none below 0, the same at every call."""
        return self.build(default_rng(SEED)).astype(np.float32)


def _normal(random: Generator) -> NDArray[np.floating]:
    return random.standard_normal((ROWS, COLUMNS))


def _cosine(random: Generator) -> NDArray[np.floating]:
    return 0.1 + 2 * np.cos(np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS))


def _heavy_tails(random: Generator) -> NDArray[np.floating]:
    return np.clip(random.standard_t(2, (ROWS, COLUMNS)) / 50, -50, 50)


def _one_outlier_a_block(random: Generator) -> NDArray[np.floating]:
    weight = _normal(random) / 100
    weight[:, 7::32] *= 1000
    return weight


def _signed_zeros(random: Generator) -> NDArray[np.floating]:
    return np.copysign(0.0, _normal(random))


def _sparse(random: Generator) -> NDArray[np.floating]:
    return np.where(random.random((ROWS, COLUMNS)) < 0.05, _normal(random), 0)


def _zero_blocks_between(random: Generator) -> NDArray[np.floating]:
    return _normal(random) * (np.arange(COLUMNS) // 32 % 2)


def _constant(random: Generator) -> NDArray[np.floating]:
    return np.linspace(-1.5, 1.5, ROWS)[:, None]


def _negative(random: Generator) -> NDArray[np.floating]:
    return -1 - np.abs(_normal(random))


def _positive(random: Generator) -> NDArray[np.floating]:
    return 1 + np.abs(_normal(random))


def _ties(random: Generator) -> NDArray[np.floating]:
    """In each row, blocks of 16 whose extreme makes the step exactly 1/64 and whose others are at k + 0.5."""
    extremes = np.array([127, -127, -8, 8, -16, 15, 31, -32])[:, None, None]
    steps = np.arange(COLUMNS).reshape(-1, 16) % np.abs(extremes) + 0.5
    weight = np.where(np.arange(16) % 3 == 1, -steps, steps)
    weight[..., 0] = extremes[..., 0]
    return weight.reshape(ROWS, COLUMNS) / 64


def _ramp(random: Generator) -> NDArray[np.floating]:
    return np.arange(COLUMNS) % 16 - 8


def _long_ramp(random: Generator) -> NDArray[np.floating]:
    return np.arange(COLUMNS) % 256 - 128


def _alternating(random: Generator) -> NDArray[np.floating]:
    return np.where(np.arange(COLUMNS) % 2, -1, 1) * np.linspace(0.5, 2, ROWS)[:, None]


def _largest_first(random: Generator) -> NDArray[np.floating]:
    return np.sort(_normal(random).reshape(-1, 16))[:, ::-1].reshape(ROWS, COLUMNS)


def _largest_last(random: Generator) -> NDArray[np.floating]:
    return np.sort(_normal(random).reshape(-1, 32)).reshape(ROWS, COLUMNS)


def _both_extremes(random: Generator) -> NDArray[np.floating]:
    weight = np.clip(_normal(random), -1.9, 1.9)
    weight[:, 3::16], weight[:, 11::16] = 2, -2
    weight[ROWS // 2 :] *= -1
    return weight


def _ternary(random: Generator) -> NDArray[np.floating]:
    return random.integers(-1, 2, (ROWS, COLUMNS)) * 0.02


def _vanishing(random: Generator) -> NDArray[np.floating]:
    return _normal(random) * np.array([1e-20, 1e-25, 1e-30, 1e-35, 1e-37, 1e-40, 1e-43, 1e-45])[:, None]


def _around_the_threshold(random: Generator) -> NDArray[np.floating]:
    return _normal(random) * np.array([1e-14, 3e-15, 1e-15, 5e-16, 1e-16, 1e-8, 1e-7, 1e-6])[:, None]


def _vanishing_groups(random: Generator) -> NDArray[np.floating]:
    return _normal(random) * np.where(np.arange(COLUMNS) // 32 % 4 == 1, 1e-6, 1)


def _smallest_scales(random: Generator) -> NDArray[np.floating]:
    return _normal(random) * np.geomspace(1e-8, 1e-3, ROWS)[:, None]


def _lonely(random: Generator) -> NDArray[np.floating]:
    weight = np.zeros((ROWS, COLUMNS))
    weight[np.arange(ROWS), np.arange(ROWS) * 37] = np.linspace(-1, 1, ROWS)
    return weight


def _near_float16_limit(random: Generator) -> NDArray[np.floating]:
    return np.clip(_normal(random), -2.9, 2.9) / 2.9 * 40000


def _around_an_e4m3_limit(random: Generator) -> NDArray[np.floating]:
    return np.clip(_normal(random), -2.9, 2.9) * np.linspace(400, 1000, ROWS)[:, None]


def _with(value: float) -> Callable[[Generator], NDArray[np.floating]]:
    def build(random: Generator) -> NDArray[np.floating]:
        weight = _normal(random)
        weight[5, 300] = value
        return weight

    return build


FINITE: tuple[BlockInput, ...] = (
    BlockInput("cosine", "ggml's own test data, 0.1 + 2 cos i: any gross fault", _cosine),
    BlockInput("normal", "a search that picks another candidate, a fused multiply-add", _normal, ordinary=True),
    BlockInput("heavy tails", "a scale dominated by one weight", _heavy_tails, ordinary=True),
    BlockInput("one outlier a block", "codes that all round to the middle", _one_outlier_a_block),
    BlockInput("zeros", "division by a zero scale", lambda random: np.zeros(1)),
    BlockInput("signed zeros", "a sign that leaks from -0 into the scale or minimum", _signed_zeros),
    BlockInput("sparse", "a zero block beside others, a determinant of 0", _sparse),
    BlockInput("zero blocks between", "codes or scales left over from the block before", _zero_blocks_between),
    BlockInput("constant", "a range of 0", _constant),
    BlockInput("negative", "a minimum that is not the smallest code", _negative),
    BlockInput("positive", "a minimum above 0 where the format wants at most 0", _positive),
    BlockInput("ties", "half to even instead of half away from zero, or the reverse", _ties),
    BlockInput("ramp -8 to 7", "nibbles paired j, j + 1; two's complement instead of excess 8", _ramp),
    BlockInput("ramp -128 to 127", "sub-blocks or high bits in another order", _long_ramp),
    BlockInput("alternating sign", "the first of two equal magnitudes must set the sign", _alternating),
    BlockInput("largest first", "an extreme searched from the second weight on", _largest_first),
    BlockInput("largest last", "an extreme searched up to the last weight but one", _largest_last),
    BlockInput("both extremes", "the second of two equal magnitudes setting the sign", _both_extremes),
    BlockInput("ternary", "codes of -1, 0 and 1 exchanged", _ternary),
    BlockInput("vanishing", "an == 0 test that subnormal weights pass", _vanishing),
    BlockInput("around 1e-15", "another threshold below which a block counts as zero", _around_the_threshold),
    BlockInput("vanishing groups", "a near-zero group among ordinary ones", _vanishing_groups),
    BlockInput("smallest scales", "a float16 scale that underflows or is subnormal", _smallest_scales),
    BlockInput("one weight", "a search that divides by what is left without that weight", _lonely),
    BlockInput("around 6 x 248", "an E4M3 scale that saturates elsewhere", _around_an_e4m3_limit),
    BlockInput("near the limit", "a float16 scale near its limit", _near_float16_limit),
)

TOO_LARGE: tuple[BlockInput, ...] = (
    BlockInput("8.4e6", "a float16 scale of Q8_0 that overflows to infinity", _with(8.4e6)),
    BlockInput("1e30", "sums of squares that overflow", _with(1e30)),
)

NON_FINITE: tuple[BlockInput, ...] = (
    BlockInput("NaN", "a NaN that passes into a scale, or crashes the program", _with(np.nan)),
    BlockInput("infinity", "an infinite scale", _with(np.inf)),
    BlockInput("negative infinity", "an infinite scale", _with(-np.inf)),
)

IMPORTANCES: tuple[Importance, ...] = (
    Importance("ones", "importance that changes the algorithm, not only the weights", lambda random: np.ones(COLUMNS)),
    Importance(
        "squares",
        "importance ignored, or taken per block instead of per column",
        lambda random: random.standard_normal(COLUMNS) ** 2,
    ),
    Importance(
        "mostly zero", "a sum of weights of 0", lambda random: (random.random(COLUMNS) < 0.02) * random.random(COLUMNS)
    ),
    Importance("zeros", "division by a sum of weights of 0", lambda random: np.zeros(COLUMNS)),
    Importance(
        "wide range", "sums in another order, or in float64", lambda random: 10 ** random.uniform(-8, 4, COLUMNS)
    ),
)
