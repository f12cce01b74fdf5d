"""Rotary position scaling: the kinds of it that a GGUF llama file can carry."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LinearScaling:
    """All positions divided by ``factor``; two metadata keys say so."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's scaling: slow frequencies divided by ``factor``, fast ones kept, a ramp between.

    The tensor ``rope_freqs.weight`` carries it.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    def divisors(self, theta: float, head_size: int) -> NDArray[np.float32]:
        """What each pair's frequency is divided by: float32[head_size / 2].

        The rule is transformers' ``_compute_llama3_parameters`` (5.24), in float32 as there.
        """
        exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
        frequencies = np.float32(1) / np.float32(theta) ** exponents
        turns = np.float32(self.original_context) * frequencies / np.float32(2 * np.pi)
        low, high = np.float32(self.low_freq_factor), np.float32(self.high_freq_factor)
        # 0 at low_freq_factor turns within the original context and slower, 1 at high_freq_factor and faster.
        kept = np.clip((turns - low) / (high - low), np.float32(0), np.float32(1))
        return np.float32(1) / ((np.float32(1) - kept) / np.float32(self.factor) + kept)
