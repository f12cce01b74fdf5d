"""The contract between the suite and an implementation under test.

An implementation is any object with a ``name``, a ``version`` and any subset of the capabilities
below. They are duck-typed: nothing here needs to be imported by who implements them. A capability
whose methods are missing is *not offered*; its claims are reported as such and never as passed.

A program in any language is one too, by a manifest that says how to run it (``impl.manifest``).

Types are named as GGML names them, in lower case: ``f32``, ``f16``, ``bf16``, ``q8_0``, ``q4_k`` …
Recipes are a type's name (that type for every matrix, with the field's fallback where a row is not
a multiple of the block; 1-D tensors stay F32) or a named mix such as ``q4_k_m``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Arithmetic = Literal["dequantized", "quantized-activations"]
"""How an engine multiplies by a quantized matrix.

``dequantized``: weights to float32, activations stay float32 (what Metal does).
``quantized-activations``: each activation row is quantized block by block to Q8_0, Q8_1 or Q8_K to
match the type of the weight (what ggml and candle do on the CPU).
"""

Metadata = Literal["minimal", "full"]
"""``minimal``: the eight keys candle's quantized_llama reads; ``full``: everything other readers need."""


@dataclass(frozen=True)
class Device:
    """What computes; any object with these attributes does."""

    kind: Literal["cpu", "metal", "cuda"]
    name: str
    """As the library that drives it tells it, e.g. ``Apple M3 Pro``."""


class Implementation(Protocol):
    """What every implementation says of itself."""

    name: str
    """Short and unique; it stands in test ids and in the report."""
    version: str
    """Of the program under test, not of its adapter."""
    deviations: Mapping[str, str]
    """Claim id to reason (with a link where there is one). Such a claim is a strict expected failure.

    ``id[case]``, with the case as the report names it, is that case alone: ``bytes.quantize[q4_k]``. What depends on
    the weights ends in the checkpoint's name: ``logits.ordering@smollm2``.

    Optional; a missing attribute means no deviations.
    """
    metadata: Metadata
    """The least that a file must say for this implementation's engine.

    Optional; a missing attribute means ``full``.
    """
    default_backends: Sequence[str]
    """The backends of its engine that run where none is asked for; others need a package or device of their own.

    Optional; a missing attribute means all of ``backends``.
    """

    def device(self, backend: str) -> Device | None:
        """What a backend of its engine computes on here, as the library that drives it tells it.

        Raises where library or device are absent, in one line. Optional; None, or no such method, means the CPU.
        """


@runtime_checkable
class Quantizer(Protocol):
    """Turns rows of float32 into rows of blocks."""

    types: Sequence[str]
    """The block types offered."""

    def quantize(
        self, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None = None
    ) -> NDArray[np.uint8]:
        """Quantize ``weight`` (float32[rows, cols]) to uint8[rows, bytes per row].

        ``importance`` is float32[cols], one weight per column. Optional: a quantizer that knows none leaves the
        parameter out. Raises for a row that is not a multiple of the block, naming shape and block size, and for
        NaN or Inf in either argument.
        """


@runtime_checkable
class Dequantizer(Protocol):
    """Turns rows of blocks back into rows of float32.

    The types offered are those of ``readable_types``, or of ``types`` where that attribute is missing.
    """

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """Dequantize uint8[rows, bytes per row] to float32[rows, cols]."""


@runtime_checkable
class Converter(Protocol):
    """Turns a Hugging Face checkpoint folder into one GGUF file."""

    recipes: Sequence[str]
    """The recipes offered."""

    def convert(
        self,
        checkpoint: Path,
        output: Path,
        recipe: str,
        metadata: Metadata = "full",
        importance: Path | None = None,
    ) -> None:
        """Write the GGUF ``output``; on any error leave nothing at that path.

        ``importance`` is a file of column weights in either form of llama.cpp's ``imatrix`` tool. Optional: an
        implementation that takes none leaves the parameter out.
        """


class Model(Protocol):
    """A GGUF file loaded by an engine."""

    def logits(self, tokens: Sequence[int], rows: slice = slice(None)) -> NDArray[np.float32]:
        """Float32[rows, vocabulary], row i predicting token i + 1. Leaves no state behind.

        ``rows`` says which are wanted, of all that there are tokens. Optional: a model that always gives every row
        leaves the parameter out.
        """

    def generate(self, prompt: Sequence[int], n: int) -> list[int]:
        """The ``n`` tokens that greedy decoding appends to ``prompt``; no stop token ends it early."""


@runtime_checkable
class Engine(Protocol):
    """Runs a GGUF file."""

    backends: Mapping[str, Arithmetic]
    """Each backend's name and its arithmetic, e.g. ``{"cpu": "quantized-activations"}``."""

    def load(self, path: Path, backend: str) -> Model:
        """Load a GGUF file. A missing required key is an error naming the key."""


CAPABILITIES: Mapping[str, type] = {
    "quantizer": Quantizer,
    "dequantizer": Dequantizer,
    "converter": Converter,
    "engine": Engine,
}


def offered(implementation: object) -> tuple[str, ...]:
    """The names of the capabilities that an implementation offers, in the order of ``CAPABILITIES``."""
    return tuple(name for name, capability in CAPABILITIES.items() if isinstance(implementation, capability))


def takes_importance(method: Callable[..., object]) -> bool:
    """Whether an implementation's ``quantize`` or ``convert`` weighs columns by an importance."""
    return "importance" in signature(method).parameters
