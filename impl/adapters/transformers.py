"""transformers' own GGUF loader and Llama."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from impl.gguf_in_transformers import LOADER_DEVIATIONS, TransformersModel, load_model
from impl.protocol import Arithmetic, Metadata


class Transformers:
    """An engine on the CPU: everything is dequantized as it is loaded, rows of q and k are put back."""

    name = "transformers"
    version = version("transformers")
    deviations: Mapping[str, str] = LOADER_DEVIATIONS
    metadata: Metadata = "full"
    backends: Mapping[str, Arithmetic] = {"cpu": "dequantized"}

    def load(self, path: Path, backend: str) -> TransformersModel:
        """See ``impl.gguf_in_transformers.load_model``."""
        return TransformersModel(load_model(path))
