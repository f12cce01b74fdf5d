"""The backends by name: how each multiplies, and in what it computes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from impl.protocol import Arithmetic, Device

if TYPE_CHECKING:
    from impl.reference.operations import Operations


@dataclass(frozen=True)
class Backend:
    """One backend; its library is imported by the two functions and not before."""

    arithmetic: Arithmetic
    operations: Callable[[], "Operations"]
    """Raises ``InputError`` where the library or the device is absent."""
    device: Callable[[], Device] | None = None
    """The same, for the device alone; None for what only ever computes on the CPU."""


def _torch(arithmetic: Arithmetic) -> Backend:
    def operations() -> "Operations":
        from impl.reference.cpu import CpuOperations

        return CpuOperations(arithmetic)

    return Backend(arithmetic, operations)


def _mlx(backend: str, kind: str | None) -> Backend:
    def operations() -> "Operations":
        from impl.reference.mlx_device import open_device

        device = open_device(backend, kind)
        from impl.reference.mlx import MlxOperations

        return MlxOperations(device)

    def device() -> Device:
        from impl.reference.mlx_device import describe, open_device

        return describe(open_device(backend, kind))

    return Backend("dequantized", operations, device)


BACKENDS: Mapping[str, Backend] = {
    "cpu": _torch("quantized-activations"),
    "cpu-dequantized": _torch("dequantized"),
    "mlx": _mlx("mlx", None),
    "mlx-cpu": _mlx("mlx-cpu", "cpu"),
    "mlx-metal": _mlx("mlx-metal", "metal"),
    "mlx-cuda": _mlx("mlx-cuda", "cuda"),
}
"""``mlx`` is the device that MLX takes by default: Metal or CUDA where there is one, the CPU elsewhere."""

DEFAULT_BACKENDS = ("cpu", "cpu-dequantized")
"""Those that every installation has."""
