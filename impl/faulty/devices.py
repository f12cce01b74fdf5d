"""Engines on a device with one fault each."""

from dataclasses import replace
from pathlib import Path

import mlx.core as mx

from impl.protocol import Device, Model
from impl.reference import Reference
from impl.reference.mlx import GROUP_SIZE, MlxOperations, PackedMatrix


class NamesAnotherDevice(Reference):
    """Says Metal, and computes on whatever there is."""

    name = "names-another-device"

    def device(self, backend: str) -> Device | None:
        """Metal, on any machine."""
        return super().device(backend) and Device("metal", "Apple M9")

    def load(self, path: Path, backend: str) -> Model:
        """Load for the CPU, which also where Metal is there is not what it said."""
        return super().load(path, "mlx-cpu" if backend == "mlx" else backend)


def exchanged(model: Model, operations: type[MlxOperations]) -> Model:
    """The model with other operations, if it computes in MLX."""
    if not isinstance(model.operations, MlxOperations):
        return model
    return replace(model, operations=operations(model.operations.device))


class DequantizingOperations(MlxOperations):
    """Dequantizes a matrix each time before it multiplies by it."""

    def linear(self, x: mx.array, weight: PackedMatrix | mx.array, bias: mx.array | None = None) -> mx.array:
        """Multiply by the matrix in float32."""
        if isinstance(weight, PackedMatrix):
            parts = (weight.codes, weight.scales, weight.biases)
            weight = mx.dequantize(*parts, group_size=GROUP_SIZE, bits=weight.bits, stream=self.device).T
        return super().linear(x, weight, bias)


class DequantizesOnTheWay(Reference):
    """Keeps matrices quantized, but never multiplies by them so."""

    name = "dequantizes-on-the-way"

    def load(self, path: Path, backend: str) -> Model:
        """Load, and exchange the operations."""
        return exchanged(super().load(path, backend), DequantizingOperations)


class HalfPrecisionOperations(MlxOperations):
    """Multiplies by activations in float16."""

    def linear(self, x: mx.array, weight: PackedMatrix | mx.array, bias: mx.array | None = None) -> mx.array:
        """Round the activations first."""
        return super().linear(x.astype(mx.float16).astype(mx.float32), weight, bias)


class HalfPrecisionActivations(Reference):
    """Computes in float32, but for the activations."""

    name = "half-precision-activations"

    def load(self, path: Path, backend: str) -> Model:
        """Load, and exchange the operations."""
        return exchanged(super().load(path, backend), HalfPrecisionOperations)
