"""Which of MLX's devices a backend computes on, read from MLX."""

import platform
import re
from typing import TYPE_CHECKING

from impl.errors import InputError
from impl.protocol import Device

if TYPE_CHECKING:
    from types import ModuleType

    import mlx.core as mx

OLDEST = (0, 30, 4)
"""The first version with ``mlx.core.device_info`` for every device."""


def open_device(backend: str, kind: str | None) -> "mx.Device":
    """MLX's device of a kind (``cpu``, ``metal``, ``cuda``), or for None the one that MLX takes by default.

    Raises ``InputError``, naming the backend, where MLX is not installed, too old or without such a device.
    """
    mx = _import(backend)
    if kind is None:
        return mx.default_device()
    if kind != "cpu" and not getattr(mx, kind).is_available():
        raise InputError(f"backend {backend}: MLX {mx.__version__} has no {kind} device here, expected one")
    return mx.Device(mx.cpu if kind == "cpu" else mx.gpu)


def describe(device: "mx.Device") -> Device:
    """The kind and the name of a device, as MLX tells them."""
    import mlx.core as mx

    name = str(mx.device_info(device).get("device_name", platform.machine()))
    if device.type == mx.DeviceType.cpu:
        return Device("cpu", name)
    return Device("metal" if mx.metal.is_available() else "cuda", name)


def _import(backend: str) -> "ModuleType":
    required = f"mlx {'.'.join(map(str, OLDEST))} or newer (pip install 'gguf-conformance[mlx]')"
    try:
        import mlx.core as mx
    except ImportError as error:
        # Also where the package is there, but not the library of its platform.
        reason = " ".join(str(error).split())
        raise InputError(f"backend {backend}: MLX does not import ({reason}), expected {required}") from error
    if tuple(map(int, re.findall(r"\d+", mx.__version__)[:3])) < OLDEST:
        raise InputError(f"backend {backend}: MLX is {mx.__version__}, expected {required}")
    return mx
