"""``torch.ao.quantization.quantize_dynamic`` on a GGUF file's model.

Every Linear gets int8 weights with one scale for the matrix, and quantizes its whole input with one scale at run
time: the article's PyTorch side.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from impl.gguf_in_transformers import LOADER_DEVIATIONS, TransformersModel, load_model
from impl.protocol import Arithmetic, Metadata

ONE_SCALE = "later tokens move the one scale of all activations"
DEVIATIONS: Mapping[str, str] = {
    **LOADER_DEVIATIONS,
    "causality.float32": ONE_SCALE,
    "causality.blocks": ONE_SCALE,
    "causality.alone": f"{ONE_SCALE}: position 36 differs by 6.4 to 16.2 on smollm2 (qnnpack)",
    "logits.f32": "int8 on both sides costs 12.6 at the median step on smollm2, 191 of 270 tokens equal (qnnpack)",
    "logits.ordering@smollm2": "what int8 costs covers what the file's types do: medians 12.1 to 12.6 down to q4_k",
    "logits.mix-and-importance@smollm2": "what int8 costs covers what importance gains: 0.578 nats without, 0.589 with",
    "logits.faults-stand-out[qnnpack-no freq_base]@smollm2": "13.9 at the median step, the correct file 23.1 at worst",
    "generation.f32": "parts from the reference after 14 of 270 tokens on smollm2",
}


class TorchDynamic:
    """An engine whose backends are torch's quantized engines; ``qnnpack`` is the article's."""

    name = "torch-dynamic"
    version = torch.__version__
    deviations: Mapping[str, str] = DEVIATIONS
    metadata: Metadata = "full"
    backends: Mapping[str, Arithmetic] = {
        engine: "quantized-activations" for engine in torch.backends.quantized.supported_engines if engine != "none"
    }
    default_backends: Sequence[str] = ("qnnpack",)

    def load(self, path: Path, backend: str) -> TransformersModel:
        """The model of transformers' GGUF loader, its Linear layers packed for the engine ``backend``."""
        model = load_model(path)
        with _selected(backend), warnings.catch_warnings():
            # That torch.ao.quantization is deprecated is known here.
            warnings.simplefilter("ignore")
            torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8, inplace=True)
        return TransformersModel(model)


@contextmanager
def _selected(engine: str) -> Iterator[None]:
    """Layers are packed for the engine that is selected meanwhile, and keep to it."""
    previous = torch.backends.quantized.engine
    try:
        torch.backends.quantized.engine = engine
        yield
    finally:
        torch.backends.quantized.engine = previous
