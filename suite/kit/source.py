"""The checkpoint's own tensors and configuration, read without any implementation's help."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import ml_dtypes  # noqa: F401  (gives numpy the dtype bfloat16, which safetensors asks it for)
import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from suite.kit.names import gguf_name, layer_of
from suite.kit.rows import in_gguf_order

DEFAULT_FREQ_BASE = 10000.0
"""The base of the rotation where a configuration or a GGUF says none."""


@dataclass(frozen=True)
class Source:
    """A checkpoint folder, one file or several shards."""

    folder: Path

    @cached_property
    def config(self) -> Mapping[str, object]:
        """``config.json``."""
        return json.loads((self.folder / "config.json").read_text())

    @property
    def layers(self) -> int:
        """The number of blocks."""
        return int(self.config["num_hidden_layers"])

    @property
    def heads(self) -> Mapping[str, int]:
        """By part of a GGUF name: how many heads the rows of q and k are ordered by."""
        queries = int(self.config["num_attention_heads"])
        return {"attn_q": queries, "attn_k": int(self.config.get("num_key_value_heads", queries))}

    @property
    def head_size(self) -> int:
        """Values per head."""
        return int(self.config.get("head_dim") or self.config["hidden_size"] // self.heads["attn_q"])

    @property
    def rope_theta(self) -> float:
        """The base of the rotation; transformers 5 saves it inside ``rope_parameters``."""
        inside = self.config.get("rope_parameters") or {}
        return float(self.config.get("rope_theta", inside.get("rope_theta", DEFAULT_FREQ_BASE)))

    @cached_property
    def _files(self) -> Mapping[str, Path]:
        """The file of every tensor."""
        found: dict[str, Path] = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            with safe_open(path, framework="np") as file:
                found |= dict.fromkeys(file.keys(), path)
        return found

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape under its Hugging Face name."""
        found = {}
        for name, path in self._files.items():
            with safe_open(path, framework="np") as file:
                found[name] = tuple(file.get_slice(name).get_shape())
        return found

    def tensor(self, name: str) -> NDArray[np.float32]:
        """The tensor under its Hugging Face name, as float32."""
        with safe_open(self._files[name], framework="np") as file:
            return file.get_tensor(name).astype(np.float32)

    @cached_property
    def hugging_face_names(self) -> Mapping[str, str]:
        """By llama.cpp's name, the checkpoint's name of every tensor of a GGUF, layer by layer.

        A tied head has no tensor of its own there.
        """
        tied = bool(self.config.get("tie_word_embeddings", False))
        names = {gguf_name(name, self.layers): name for name in self._files if not (tied and name == "lm_head.weight")}
        return dict(sorted(names.items(), key=lambda pair: (layer_of(pair[0]), pair[0])))

    def gguf_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor that a GGUF of this checkpoint has, under llama.cpp's names."""
        return {renamed: self.shapes[name] for renamed, name in self.hugging_face_names.items()}

    def gguf_tensor(self, renamed: str) -> NDArray[np.float32]:
        """A tensor as a GGUF of architecture ``llama`` has it: q and k rows reordered."""
        tensor = self.tensor(self.hugging_face_names[renamed])
        part = renamed.split(".")[-2]
        return in_gguf_order(tensor, self.heads[part]) if part in self.heads else tensor

    def gguf_tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Every tensor of a GGUF, one in memory at a time, layer by layer."""
        for renamed in self.hugging_face_names:
            yield renamed, self.gguf_tensor(renamed)
