"""``report.json``: everything a run found, as data."""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from impl import __version__
from suite.kit.results import Result

SCHEMA = 1
PACKAGES = (
    "gguf",
    "numpy",
    "torch",
    "transformers",
    "torchao",
    "libggml-python",
    "ik-llama-cpp-python",
)


def write_report(folder: Path, results: Sequence[Result], header: Mapping[str, object]) -> Path:
    """Write ``folder/report.json`` and return its path.

    ``header`` says what was under test, and by ``complete`` whether the run went through to its end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    document = {
        "schema": SCHEMA,
        "header": {**header, "platform": platform.platform(), "versions": versions()},
        "results": [result.as_json() for result in results],
    }
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path


def versions() -> dict[str, str]:
    """The versions of everything that took part, ``absent`` for a package that is not installed."""
    return {"gguf-conformance": __version__, **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
