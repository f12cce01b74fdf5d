"""The bounds that float32 logits are held to, and where they come from."""

from dataclasses import dataclass

from impl.protocol import Arithmetic

ARTICLES_BOUND = 1.05e-4
"""The worst step of the article's f32 file, the largest difference that it calls none."""

NOISE_FACTOR = 3
"""How many times the float32 reference's own distance from float64 another float32 program may be away."""

LEAK_FACTOR = 10_000
"""From how many times the reference's own distance from float64 on a dependence on later tokens is no rounding."""


def float32_bound(noise_floor: float) -> float:
    """The largest difference between two float32 evaluations of one model, given the reference's noise floor."""
    return min(ARTICLES_BOUND, NOISE_FACTOR * noise_floor)


def summation_bound(arithmetic: Arithmetic, noise_floor: float, worst: float) -> float:
    """The largest difference between two evaluations of one file that sum in another order.

    ``worst`` is how far the file is from the reference at its worst step. Quantized activations are moved across
    rounding boundaries by the last bit of a sum, and two correct programs end up about as far apart as either is from
    the reference, at one step somewhat more and at another less.
    """
    return float32_bound(noise_floor) if arithmetic == "dequantized" else worst


@dataclass(frozen=True)
class BlockBounds:
    """How far a quantized block may be from its weights and still be right; ``docs/bounds.md`` has both sides of each.

    Each stands in the gap between every correct quantizer measured and every fault that was put in.
    """

    ordinary_excess: float = 2.7
    """A run's error in units of what the type costs there, on weights distributed as trained ones are."""
    any_excess: float = 7.0
    """The same on any weights: older and newer searches part on outliers and on sparse blocks."""
    beside_zeros: float = 1.5
    """A run's error in units of what zeros would cost, which is what catches types of few bits."""
    kept: float = 0.7
    """The least of the weights that must be left, as a share of what ggml leaves, or of all where ggml leaves more."""
    added: float = 1.3
    """The most, as a share of what ggml leaves, or of all where ggml leaves less."""
    ratio: float = 1.1
    """The error in all over ggml's on ordinary weights: more is right, and not good."""
    weighed_ratio: float = 1.05
    """The same with importance, over ggml's search by it: a program that ignores importance is beyond."""

    def excess(self, *, ordinary: bool) -> float:
        """The bound for weights that are ordinary, or not."""
        return self.ordinary_excess if ordinary else self.any_excess

    def gain(self, usual: float) -> tuple[float, float]:
        """From how much to how much of the weights may be in the values, given what ggml leaves of them."""
        return self.kept * min(1.0, usual), self.added * max(1.0, usual)
