"""How far measured logits are from reference logits, step by step.

A step with a number that is not finite, on either side, is infinitely far from the reference, has no
argmax and is never bit-identical: NaN cannot pass any check made here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError


@dataclass(frozen=True, eq=False)
class LogitsComparison:
    """The figures of one comparison; every array has one entry per step."""

    step_maxima: NDArray[np.float64]
    """float64[steps]: the largest absolute difference of each step."""
    step_tokens: NDArray[np.intp]
    """intp[steps]: the token where that difference stands; the first non-finite one where there is any."""
    argmax_equal: NDArray[np.bool_]
    """bool[steps]: whether both pick the same token."""
    kl_divergence: NDArray[np.float64]
    """float64[steps]: sum of p ln(p / q), p the reference's softmax and q the measured one, in nats."""
    bits_equal: NDArray[np.bool_]
    """bool[steps]: whether the step's float32 values are the same bits."""
    reference_maximum: float
    """The largest absolute reference logit of step 0; infinite where one is not finite."""

    @property
    def steps(self) -> int:
        """Number of steps compared; never zero."""
        return len(self.step_maxima)

    @property
    def step0(self) -> float:
        """The largest absolute difference of step 0, the position after the prompt."""
        return float(self.step_maxima[0])

    @property
    def median(self) -> float:
        """The median of the step maxima."""
        return float(np.median(self.step_maxima))

    @property
    def worst(self) -> float:
        """The largest absolute difference of all: the smallest bound that would pass."""
        return float(self.step_maxima.max())

    @property
    def worst_step(self) -> int:
        """The step of the largest difference."""
        return int(self.step_maxima.argmax())

    @property
    def worst_token(self) -> int:
        """The token of the largest difference."""
        return int(self.step_tokens[self.worst_step])

    @property
    def equal_argmax(self) -> int:
        """At how many steps both pick the same token."""
        return int(self.argmax_equal.sum())

    @property
    def first_divergence(self) -> int | None:
        """The first step where another token is picked."""
        return None if self.argmax_equal.all() else int(self.argmax_equal.argmin())

    @property
    def mean_kl(self) -> float:
        """The mean over steps of the KL divergence, in nats."""
        return float(self.kl_divergence.mean())

    @property
    def max_kl(self) -> float:
        """The largest KL divergence of a step, in nats."""
        return float(self.kl_divergence.max())

    @property
    def bit_identical(self) -> bool:
        """Whether all values are finite and the same bits."""
        return bool(self.bits_equal.all())

    @property
    def figures(self) -> Mapping[str, float]:
        """What a report lists of a comparison, under the labels that it uses."""
        return {
            "step 0": self.step0,
            "median": self.median,
            "worst": self.worst,
            "equal argmax": self.equal_argmax,
        }

    def save(self, path: Path) -> None:
        """Write it to a ``.npz`` file."""
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> "LogitsComparison":
        """Read what ``save`` wrote."""
        with np.load(path) as fields:
            return cls(**{**fields, "reference_maximum": float(fields["reference_maximum"])})

    def require_within(self, bound: float) -> None:
        """Raise ``AssertionError`` unless every difference is at most ``bound``, a finite number."""
        if not math.isfinite(bound):
            raise InputError(f"bound on logits: found {bound}, expected a finite number")
        if self.worst <= bound:
            return
        where = f"step {self.worst_step}, token {self.worst_token}"
        if math.isinf(self.worst):
            raise AssertionError(f"logits at {where}: not a finite number; no bound would pass")
        raise AssertionError(
            f"logits at {where}: max|diff| {self.worst!r} is above the bound {bound!r}; "
            f"the smallest bound that would pass is {self.worst!r}"
        )

    def require_bit_identical(self) -> None:
        """Raise ``AssertionError`` unless all values are finite and the same bits."""
        if not self.bit_identical:
            differing = int((~self.bits_equal).sum())
            raise AssertionError(
                f"logits differ in their bits at {differing} of {self.steps} steps, first at step "
                f"{int(self.bits_equal.argmin())}; worst at step {self.worst_step}, token {self.worst_token}: "
                f"max|diff| {self.worst!r}"
            )


def compare_logits(reference: NDArray[np.float32], measured: NDArray[np.float32]) -> LogitsComparison:
    """Compare float32[steps, vocabulary] with the same, one step at a time, in float64.

    Raises ``InputError`` for another dtype or rank, for different shapes, and where there is nothing to
    compare.
    """
    _require_comparable(reference, measured)
    steps = [_compare_step(*rows) for rows in zip(reference, measured, strict=True)]
    maxima, tokens, argmax_equal, divergences, bits_equal = map(np.array, zip(*steps, strict=True))
    return LogitsComparison(
        step_maxima=maxima,
        step_tokens=tokens,
        argmax_equal=argmax_equal,
        kl_divergence=divergences,
        bits_equal=bits_equal,
        reference_maximum=float(np.nan_to_num(np.abs(reference[0]), nan=np.inf, posinf=np.inf).max()),
    )


def _require_comparable(reference: NDArray[np.float32], measured: NDArray[np.float32]) -> None:
    for name, logits in (("reference", reference), ("measured", measured)):
        if logits.dtype != np.float32 or logits.ndim != 2:
            raise InputError(
                f"{name} logits: found {logits.dtype}{list(logits.shape)}, expected float32[steps, vocabulary]"
            )
    if reference.shape != measured.shape:
        raise InputError(
            f"measured logits: found shape {list(measured.shape)}, expected the reference's {list(reference.shape)}"
        )
    if not reference.size:
        raise InputError(f"logits of shape {list(reference.shape)}: there is nothing to compare")


def _compare_step(
    reference: NDArray[np.float32], measured: NDArray[np.float32]
) -> tuple[float, int, bool, float, bool]:
    """Maximum difference, its token, argmax equal, KL divergence in nats, bits equal."""
    finite = np.isfinite(reference) & np.isfinite(measured)
    if not finite.all():
        return math.inf, int(finite.argmin()), False, math.inf, False
    difference = np.abs(reference.astype(np.float64) - measured)
    token = int(difference.argmax())
    return (
        float(difference[token]),
        token,
        bool(reference.argmax() == measured.argmax()),
        _kl_divergence(reference, measured),
        bool((reference.view(np.uint32) == measured.view(np.uint32)).all()),
    )


def _kl_divergence(reference: NDArray[np.float32], measured: NDArray[np.float32]) -> float:
    log_p, log_q = _log_softmax(reference), _log_softmax(measured)
    # Rounding can leave a sum a few 1e-17 below zero, which no divergence is.
    return float(np.maximum(0, np.exp(log_p) @ (log_p - log_q)))


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - math.log(np.exp(shifted).sum())
