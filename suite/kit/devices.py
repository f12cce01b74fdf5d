"""What the backends of a run compute on, as the engines themselves say."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from impl.protocol import Device, Engine, Implementation
from suite.kit.memory import given_back
from suite.kit.results import NotOffered, Undecided

Devices = Mapping[tuple[str, str], Device]
"""By name of the implementation and of its backend; what only ever computes on the CPU is left out."""


def device_of(implementation: Implementation, backend: str) -> Device | None:
    """The device of one backend; None for one that is not offered, or that only ever computes on the CPU.

    Raises what the implementation raises where the device is absent.
    """
    told = getattr(implementation, "device", None)
    return told(backend) if told and backend in getattr(implementation, "backends", ()) else None


def find_devices(cases: Iterable[tuple[Implementation, str]]) -> Devices:
    """The devices of the pairs of implementation and backend that a run is for."""
    found = ((each.name, backend, device_of(each, backend)) for each, backend in cases)
    return {(name, backend): device for name, backend, device in found if device is not None}


def keyed_by_device(backend: str, device: Device | None) -> str:
    """A backend's name with the kind of its device at the end: what is recorded on one is not another's."""
    return backend if device is None or backend.endswith(f"-{device.kind}") else f"{backend}-{device.kind}"


def require_device(engine: Engine, backend: str) -> Device:
    """The device of a backend; the claim is *not offered* where that only ever computes on the CPU."""
    device = device_of(engine, backend)
    if device is None:
        raise NotOffered(f"{engine.name} names no device for {backend}")
    return device


def counterpart_on_cpu(engine: Engine, backend: str) -> str:
    """The engine's backend of the same arithmetic that only ever computes on the CPU; else *not offered*."""
    same = (name for name, arithmetic in engine.backends.items() if arithmetic == engine.backends[backend])
    found = next((name for name in same if device_of(engine, name) is None), None)
    if found is None:
        raise NotOffered(f"{engine.name} has no CPU backend of the arithmetic of {backend}")
    return found


def machine_has_metal() -> bool:
    """Whether MLX finds a Metal device here."""
    import mlx.core as mx

    return mx.metal.is_available()


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """What MLX holds at most while the block runs, beyond what it held before, in bytes.

    *Undecided* where MLX holds nothing: the engine computes elsewhere, or in another process.
    """
    import mlx.core as mx

    with given_back():
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        yield lambda: mx.get_peak_memory() - before
        if mx.get_peak_memory() <= before:
            raise Undecided("MLX held nothing in this process")
