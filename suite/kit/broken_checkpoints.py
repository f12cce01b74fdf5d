"""Checkpoints broken on purpose, each in one way, from a copy of a correct one."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (gives numpy the dtype bfloat16, which safetensors asks it for)
import numpy as np
from safetensors.numpy import load_file, save_file


@dataclass(frozen=True)
class Break:
    """One way to break a checkpoint folder; ``names`` is what an error about it has to mention."""

    apply: Callable[[Path], None]
    names: str


def broken_copy(checkpoint: Path, folder: Path, fault: Break) -> Path:
    """A copy of ``checkpoint`` at ``folder`` with ``fault`` in it."""
    shutil.copytree(checkpoint, folder)
    fault.apply(folder)
    return folder


def _first_shard(folder: Path) -> Path:
    return min(folder.glob("*.safetensors"))


def _cut_in_half(folder: Path) -> None:
    shard = _first_shard(folder)
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size // 2)


def _remove_last_shard(folder: Path) -> None:
    max(folder.glob("*.safetensors")).unlink()


def _edit_config(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    path.write_text(json.dumps(config))


def _drop_heads(folder: Path) -> None:
    _edit_config(folder, lambda config: config.pop("num_attention_heads"))


def _call_it_gpt2(folder: Path) -> None:
    other = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}
    _edit_config(folder, lambda config: config.update(other))


def _poison(folder: Path, value: float) -> None:
    shard = _first_shard(folder)
    tensors = load_file(shard)
    name = next(name for name in sorted(tensors) if name.endswith("mlp.down_proj.weight"))
    poisoned = tensors[name].copy()
    poisoned[3, 5] = value
    save_file(tensors | {name: poisoned}, shard, metadata={"format": "pt"})


BREAKS: Mapping[str, Break] = {
    "truncated": Break(_cut_in_half, "model-00001-of-00002.safetensors"),
    "missing shard": Break(_remove_last_shard, "model-00002-of-00002.safetensors"),
    "no num_attention_heads": Break(_drop_heads, "num_attention_heads"),
    "not a Llama": Break(_call_it_gpt2, "gpt2"),
    "NaN weight": Break(lambda folder: _poison(folder, np.nan), "down_proj"),
    "infinite weight": Break(lambda folder: _poison(folder, np.inf), "down_proj"),
}
