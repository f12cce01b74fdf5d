"""The default implementation, written from the format's definition.

``Reference`` offers every capability of the contract; each method's work is in the module of its name.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from impl import __version__
from impl.protocol import Arithmetic, Device, Metadata
from impl.reference.backends import BACKENDS, DEFAULT_BACKENDS
from impl.reference.blocks import FORMATS, READ_ONLY, dequantize, quantize
from impl.reference.convert import Steps, convert
from impl.reference.recipe import RECIPES

if TYPE_CHECKING:
    from impl.protocol import Model


class Reference:
    """Converts, quantizes, dequantizes and runs Llama checkpoints."""

    name = "reference"
    version = __version__
    deviations: Mapping[str, str] = {
        f"rope.neox-bit-for-bit[{name}]": "MLX sums in an order of its own, not torch's"
        for name, backend in BACKENDS.items()
        if backend.device
    }
    steps: Steps = Steps()
    types: Sequence[str] = tuple(FORMATS)
    readable_types: Sequence[str] = (*FORMATS, *READ_ONLY)
    recipes: Sequence[str] = tuple(RECIPES)
    metadata: Metadata = "minimal"
    backends: Mapping[str, Arithmetic] = {name: backend.arithmetic for name, backend in BACKENDS.items()}
    default_backends: Sequence[str] = DEFAULT_BACKENDS

    def quantize(
        self, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None = None
    ) -> NDArray[np.uint8]:
        """See ``impl.reference.blocks.quantize``."""
        return quantize(weight, type, importance)

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """See ``impl.reference.blocks.dequantize``."""
        return dequantize(blocks, type)

    def convert(
        self,
        checkpoint: Path,
        output: Path,
        recipe: str,
        metadata: Metadata = "full",
        importance: Path | None = None,
    ) -> None:
        """See ``impl.reference.convert.convert``."""
        convert(checkpoint, output, recipe, metadata, self.steps, importance)

    def load(self, path: Path, backend: str) -> "Model":
        """See ``impl.reference.llama.load``; torch is imported only here, so converting never pays for it."""
        from impl.reference.llama import load

        return load(path, backend)

    def device(self, backend: str) -> Device | None:
        """What a backend computes on here; ``InputError`` where its library or its device is absent."""
        chosen = BACKENDS[backend].device
        return chosen and chosen()
