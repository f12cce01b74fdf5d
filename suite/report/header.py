"""The header of a report: what was tested, when, where and on what."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from impl.protocol import Implementation, offered
from suite.kit.checkpoints import Checkpoint, checkpoint_digest
from suite.kit.devices import Devices


def checkpoint_entry(checkpoint: Checkpoint) -> Mapping[str, str]:
    """Name, digest and note of a checkpoint."""
    return {"name": checkpoint.name, "sha256": checkpoint_digest(checkpoint.folder), "note": checkpoint.note}


def implementation_entries(
    implementations: Iterable[Implementation], devices: Devices, options_for: Callable[[str], Sequence[str]]
) -> list[Mapping[str, object]]:
    """What each implementation says of itself, the devices its backends ran on, and how to run it alone."""
    return [
        {
            "name": each.name,
            "version": each.version,
            "options": options_for(each.name),
            "offers": list(offered(each)),
            "backends": [
                {"name": name, "arithmetic": arithmetic, "device": _device(devices, each.name, name)}
                for name, arithmetic in getattr(each, "backends", {}).items()
            ],
        }
        for each in implementations
    ]


def _device(devices: Devices, implementation: str, backend: str) -> str:
    device = devices.get((implementation, backend))
    return f"{device.kind}, {device.name}" if device else ""
