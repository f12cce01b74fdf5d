"""llama.cpp through llama-cpp-python: its engine, and the quantizers of the ggml that it brings."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from llama_cpp import Llama
from numpy.typing import NDArray

from impl.errors import InputError
from impl.ggml_library import GgmlBlocks
from impl.protocol import Arithmetic, Metadata


class LlamaCpp(GgmlBlocks):
    """Quantizer, dequantizer and engine, all on the CPU."""

    name = "llama-cpp"
    version = version("llama-cpp-python")
    deviations: Mapping[str, str] = {}
    metadata: Metadata = "full"
    backends: Mapping[str, Arithmetic] = {"cpu": "quantized-activations"}

    def __init__(self) -> None:
        super().__init__("llama_cpp")

    def load(self, path: Path, backend: str) -> "LlamaCppModel":
        """Load a GGUF file; ``InputError`` where llama.cpp does not: it says why on standard error alone."""
        model = LlamaCppModel(path)
        with closing(model.opened(positions=1)):
            return model


@dataclass(frozen=True)
class LlamaCppModel:
    """A file that llama.cpp loads anew for each sequence, in a context of its length; mapped, that is quick."""

    path: Path

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Float32[len(tokens), vocabulary], row i predicting token i + 1."""
        with closing(self.opened(len(tokens))) as llama:
            llama.eval(list(tokens))
            return np.array(llama.scores[: len(tokens)])

    def generate(self, prompt: Sequence[int], n: int) -> list[int]:
        """The ``n`` tokens of the largest logit, one by one, over llama.cpp's cache."""
        tokens = list(prompt)
        with closing(self.opened(len(tokens) + n)) as llama:
            following = tokens
            for _ in range(n):
                llama.eval(following)
                following = [int(llama.scores[llama.n_tokens - 1].argmax())]
                tokens += following
        return tokens[len(prompt) :]

    def opened(self, positions: int) -> Llama:
        """The model with room for so many positions."""
        try:
            return Llama(str(self.path), n_ctx=positions, n_gpu_layers=0, logits_all=True, verbose=False)
        except ValueError as error:
            raise InputError(f"{self.path}: {error}") from error
