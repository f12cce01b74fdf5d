"""The article's PyTorch side: int8 in torch itself, on the checkpoint the GGUF files are made from.

``dynamic_int8`` is ``torch.ao.quantization.quantize_dynamic``: every Linear gets int8 weights with one scale
per matrix, and quantizes its whole input with one scale at run time. ``weight_only_int8`` keeps the first
half of that, which isolates the error of the weights. ``per_token_int8`` is torchao's successor, with one
scale per token and one per row of the weights.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.ao.nn.quantized import dynamic

from impl.errors import InputError
from suite.kit.reference_run import Recording, load_model


@dataclass(frozen=True)
class Int8Layers:
    """What ``dynamic_int8`` made of a model."""

    linear_layers: int
    """Linear layers that became int8."""
    schemes: frozenset[torch.qscheme]
    head_is_separate: bool
    """The head is an int8 copy, although its checkpoint ties it to the embedding."""
    embedding_dtype: torch.dtype


def default_engine() -> str:
    """The engine torch has selected on this machine; ``none`` where it selected none."""
    return torch.backends.quantized.engine


def supported_engines() -> tuple[str, ...]:
    """The engines of this build of torch."""
    return tuple(torch.backends.quantized.supported_engines)


def dynamic_int8(checkpoint: Path, engine: str) -> nn.Module:
    """The checkpoint with ``engine`` packed int8 Linear layers; ``InputError`` for an engine torch lacks."""
    if engine not in supported_engines():
        known = ", ".join(supported_engines())
        raise InputError(f"torch int8 engine {engine}: not in this build of torch; expected one of {known}")
    model = load_model(checkpoint)
    with _selected(engine):
        return _quantized(model)


def weight_only_int8(checkpoint: Path, engine: str) -> nn.Module:
    """The model of ``dynamic_int8`` with its int8 weights dequantized; activations stay float32."""
    model = dynamic_int8(checkpoint, engine)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, dynamic.Linear):
            model.set_submodule(name, _dequantized(layer))
    return model


def per_token_int8(checkpoint: Path) -> nn.Module:
    """The checkpoint through torchao's ``Int8DynamicActivationInt8WeightConfig``."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    model = load_model(checkpoint)
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model


def layers_of(model: nn.Module) -> Int8Layers:
    """Count and describe the int8 layers of a ``dynamic_int8`` model."""
    layers = [layer for layer in model.modules() if isinstance(layer, dynamic.Linear)]
    return Int8Layers(
        linear_layers=len(layers),
        schemes=frozenset(layer.weight().qscheme() for layer in layers),
        head_is_separate=isinstance(model.get_output_embeddings(), dynamic.Linear),
        embedding_dtype=model.get_input_embeddings().weight.dtype,
    )


@torch.inference_mode()
def prefix_dependence(model: nn.Module, recording: Recording) -> float:
    """max|diff| of the last prompt position's logits, prompt alone against the whole sequence.

    A causal model's later tokens must not matter: float32 gives exactly 0.
    """
    position = len(recording.prompt) - 1
    alone, within = (
        model(torch.tensor([tokens]), use_cache=False).logits[0, position].clone()
        for tokens in (list(recording.prompt), recording.tokens)
    )
    return float((alone - within).abs().max())


def state_dict_bytes(model: nn.Module) -> int:
    """Size in bytes of the file that ``torch.save(model.state_dict())`` would write."""
    counter = _ByteCounter()
    torch.save(model.state_dict(), counter)
    return counter.count


def error_without_engine() -> str:
    """Torch's own error for ``quantize_dynamic`` while no engine is selected.

    Builds that always have an engine refuse already to select none.
    """
    try:
        with _selected("none"):
            _quantized(nn.Sequential(nn.Linear(8, 8)))
    except RuntimeError as error:
        return str(error)
    raise AssertionError("quantize_dynamic: no error although no engine is selected")


def _dequantized(layer: dynamic.Linear) -> nn.Linear:
    linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias() is not None, device="meta")
    linear.weight = nn.Parameter(layer.weight().dequantize(), requires_grad=False)
    if layer.bias() is not None:
        linear.bias = nn.Parameter(layer.bias(), requires_grad=False)
    return linear


def _quantized(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        # That torch.ao.quantization is deprecated is known here.
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8, inplace=True)


@contextmanager
def _selected(engine: str) -> Iterator[None]:
    previous = default_engine()
    try:
        torch.backends.quantized.engine = engine
        yield
    finally:
        torch.backends.quantized.engine = previous


class _ByteCounter(io.RawIOBase):
    """A file that keeps nothing but the number of bytes written."""

    count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | memoryview) -> int:
        size = memoryview(data).nbytes
        self.count += size
        return size
