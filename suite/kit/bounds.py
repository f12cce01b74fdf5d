"""The bounds that float32 logits are held to, and where they come from."""

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
