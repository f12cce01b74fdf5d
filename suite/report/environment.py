"""What a run ran on and with: the machine, the versions of all that took part, and digests of its files."""

import hashlib
import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from impl import __version__

PACKAGES = (
    "gguf",
    "numpy",
    "numba",
    "safetensors",
    "torch",
    "transformers",
    "torchao",
    "mlx",
    "libggml-python",
    "ik-llama-cpp-python",
    "candle-nn",
    "llama-cpp-python",
)
ABSENT = "absent"


def versions() -> dict[str, str]:
    """The versions of everything that took part, ``absent`` for a package that is not installed."""
    own = {"gguf-conformance": __version__, "python": platform.python_version()}
    return {**own, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ABSENT


def machine() -> dict[str, object]:
    """System, processor and cores; nothing that names the machine or its owner."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
    }


def _processor() -> str:
    linux = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.+)$", linux.read_text(), re.MULTILINE) if linux.is_file() else None
    return named[1] if named else platform.processor() or platform.machine()


def gguf_files(folder: Path) -> list[dict[str, object]]:
    """Name, bytes and SHA-256 of every GGUF file in ``folder``, by name."""
    return [
        {"name": path.name, "bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.glob("*.gguf"))
    ]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
