"""torchao's int8 weights and activations on a GGUF file's model: the successor of torch's dynamic quantization."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

from impl.gguf_in_transformers import LOADER_DEVIATIONS, TransformersModel, load_model
from impl.protocol import Arithmetic, Metadata

DEVIATIONS: Mapping[str, str] = {
    **LOADER_DEVIATIONS,
    "logits.f32": "int8 on both sides costs 2.5 at the median step on smollm2, 246 of 270 tokens equal",
    "generation.f32": "parts from the reference after 9 of 270 tokens on smollm2",
}


class Torchao:
    """An engine: ``Int8DynamicActivationInt8WeightConfig``, one scale for each token and each row of a weight."""

    name = "torchao"
    version = version("torchao")
    deviations: Mapping[str, str] = DEVIATIONS
    metadata: Metadata = "full"
    backends: Mapping[str, Arithmetic] = {"cpu": "quantized-activations"}

    def load(self, path: Path, backend: str) -> TransformersModel:
        """The model of transformers' GGUF loader, its Linear layers quantized."""
        model = load_model(path)
        quantize_(model, Int8DynamicActivationInt8WeightConfig())
        return TransformersModel(model)
