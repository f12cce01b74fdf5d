"""Checkpoints by name: ``smollm2``, ``tiny``, a folder, or ``hub:ORG/NAME``."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from platformdirs import user_cache_path

from impl.errors import InputError


@dataclass(frozen=True)
class Checkpoint:
    """A Hugging Face checkpoint folder under the name a report calls it by."""

    name: str
    folder: Path

    @property
    def label(self) -> str:
        """The name as it may stand in a file's name."""
        return re.sub(r"[^\w.-]+", "-", self.name)

    @property
    def note(self) -> str:
        """What a reader of figures made with this checkpoint has to know; empty where nothing."""
        return NOTES.get(self.name, "")


def _build(module: str, folder: Path, **options: bool) -> None:
    # Imported on first use: whoever only asks for a folder must not pay for what builds one.
    import_module(f"suite.kit.{module}").build(folder, **options)


BUILDERS: Mapping[str, Callable[[Path], None]] = {
    "smollm2": partial(_build, "smollm2"),
    "tiny": partial(_build, "tiny"),
    "tiny-tied": partial(_build, "tiny", tied=True),
}

RANDOM = "this checkpoint's weights are random: its logit figures stand for no trained model"

NOTES: Mapping[str, str] = {
    "smollm2": (
        "smollm2's weights went through Q4_1 once: logit figures differ from the article's, "
        "while shapes, sizes, counts and byte claims do not"
    ),
    "tiny": RANDOM,
    "tiny-tied": RANDOM,
}


def default_cache() -> Path:
    """The folder that keeps built checkpoints from one run to the next."""
    return user_cache_path("gguf-conformance", appauthor=False)


def find_checkpoint(name: str, cache: Path) -> Checkpoint:
    """The checkpoint called ``name``; a built-in one is built in ``cache`` on its first use.

    Raises ``InputError`` for an unknown name, and where the checkpoint cannot be built or fetched.
    """
    require_known(name)
    if name in BUILDERS:
        return Checkpoint(name, _built_once(BUILDERS[name], cache / "checkpoints" / name))
    if name.startswith("hub:"):
        return Checkpoint(name, _from_hub(name.removeprefix("hub:")))
    folder = Path(name).resolve()
    return Checkpoint(folder.name, folder)


def checkpoint_digest(folder: Path) -> str:
    """SHA-256, in hex, over the names and contents of ``config.json`` and all ``*.safetensors``."""
    digest = hashlib.sha256()
    for path in [folder / "config.json", *sorted(folder.glob("*.safetensors"))]:
        with path.open("rb") as file:
            digest.update(path.name.encode())
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def require_known(name: str) -> None:
    """``InputError`` for a name that is neither built in, nor on the hub, nor a folder with a ``config.json``."""
    if name in BUILDERS or name.startswith("hub:") or (Path(name) / "config.json").is_file():
        return
    known = ", ".join(BUILDERS)
    raise InputError(f"checkpoint {name}: no config.json there; expected {known}, hub:ORG/NAME or a folder")


def _built_once(build: Callable[[Path], None], folder: Path) -> Path:
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            build(folder)
    return folder


def _from_hub(repository: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, allow_patterns=["*.json", "*.safetensors", "*.jinja"]))
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(f"checkpoint hub:{repository}: cannot be fetched: {reason}") from error
