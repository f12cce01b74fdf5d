"""Importance matrices: how strongly each column of a matrix is used, measured on the reference run.

A column's importance is the mean over tokens of the square of the activation that multiplies it, as
llama.cpp's ``imatrix`` tool defines it. The embedding and the head have none.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from suite.kit.artifacts import written_beside
from suite.kit.names import gguf_name
from suite.kit.reference_run import Recording, load_model

CALLS = 1
"""Passes that the figures were collected in; readers divide every value by it."""


@torch.inference_mode()
def column_importances(checkpoint: Path, recording: Recording) -> Mapping[str, NDArray[np.float32]]:
    """GGUF tensor name to float32[columns], for every matrix of the layers, in the model's order."""
    model = load_model(checkpoint)
    importances: dict[str, NDArray[np.float32]] = {}

    def collect(name: str, layer: nn.Linear) -> None:
        def hook(_: nn.Module, inputs: tuple[torch.Tensor]) -> None:
            activations = inputs[0].reshape(-1, layer.in_features).double()
            importances[name] = activations.square().mean(dim=0).float().numpy()

        layer.register_forward_pre_hook(hook)

    for name, layer in model.model.named_modules(prefix="model"):
        if isinstance(layer, nn.Linear):
            collect(gguf_name(f"{name}.weight", model.config.num_hidden_layers), layer)
    model.model(torch.tensor([recording.tokens]), use_cache=False)
    return importances


def write_imatrix(importances: Mapping[str, NDArray[np.float32]], output: Path, dataset: str) -> None:
    """Write llama.cpp's binary importance file (the one before its GGUF form, still read by all forks).

    int32 number of entries; for each: int32 length and bytes of the name, int32 calls, int32 number of
    values, float32 values, each the mean times the calls; then int32 calls of the whole run, int32 length
    and bytes of the data set's name.
    """
    with written_beside(output) as unfinished, unfinished.open("wb") as file:
        file.write(struct.pack("<i", len(importances)))
        for name, values in importances.items():
            file.write(_text(name) + struct.pack("<ii", CALLS, len(values)))
            file.write((values * np.float32(CALLS)).astype("<f4").tobytes())
        file.write(struct.pack("<i", CALLS) + _text(dataset))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<i", len(encoded)) + encoded
