"""The article's PyTorch side: int8 with one scale per tensor, against 8 bits with one scale per block."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from impl.catalogue import resolve
from suite.claims import claim
from suite.kit import torch_int8
from suite.kit.bounds import LEAK_FACTOR
from suite.kit.memory import given_back
from suite.kit.results import Measure, Undecided
from suite.kit.runs import Runs

ENGINE = "qnnpack"
"""The article's engine, the only one on its machine."""

LATER_TOKENS = 8


@pytest.fixture(autouse=True)
def models_given_back() -> Iterator[None]:
    with given_back():
        yield


@pytest.fixture(scope="module")
def dynamic_model(runs: Runs) -> nn.Module:
    return torch_int8.dynamic_int8(runs.checkpoint.folder, ENGINE)


@claim("torch-int8.layers")
def test_every_linear_layer_gets_one_scale_per_tensor(runs: Runs, dynamic_model: nn.Module, measured: Measure) -> None:
    """``quantize_dynamic`` turns every Linear layer, head included, into int8 with one scale for the whole matrix."""
    layers = torch_int8.layers_of(dynamic_model)
    measured.exactly("linear layers", layers.linear_layers)
    assert layers.linear_layers == 7 * runs.source.layers + 1
    assert layers.schemes == {torch.per_tensor_affine}


@claim("torch-int8.tied-head")
def test_a_tied_head_becomes_a_copy(runs: Runs, dynamic_model: nn.Module) -> None:
    """The head that shared the embedding's weights becomes an int8 copy of its own; the embedding stays float32."""
    if not runs.source.config.get("tie_word_embeddings"):
        raise Undecided("this checkpoint's head is not tied")
    layers = torch_int8.layers_of(dynamic_model)
    assert layers.head_is_separate
    assert layers.embedding_dtype == torch.float32


@claim("torch-int8.no-engine")
def test_without_an_engine_torch_says_so() -> None:
    """With no quantized engine selected, torch refuses with an error of its own that speaks of the engine."""
    assert "engine" in torch_int8.error_without_engine().lower()


@claim("torch-int8.error")
def test_one_scale_per_tensor_costs_more_than_one_per_block(runs: Runs, measured: Measure) -> None:
    """By the median step, Q8_0's error is below that of int8 weights with one scale per tensor, and that below
    the error with activations quantized so as well."""
    q8_0 = runs.against_reference(resolve("reference"), "cpu-dequantized", runs.independent_file("Q8_0"))
    weights = runs.torch_against_reference("weights-only", lambda folder: torch_int8.weight_only_int8(folder, ENGINE))
    both = runs.torch_against_reference(ENGINE, lambda folder: torch_int8.dynamic_int8(folder, ENGINE))
    for label, comparison in {"weights only": weights, ENGINE: both}.items():
        measured.each(label, comparison.figures)
    assert q8_0.median < weights.median < both.median


@claim("torch-int8.size")
def test_the_state_dict_shrinks_to_less_than_half(runs: Runs, dynamic_model: nn.Module, measured: Measure) -> None:
    """The int8 state dict takes less than half of float32's bytes, and more than a quarter: the embedding stays."""
    full = torch_int8.state_dict_bytes(torch_int8.load_model(runs.checkpoint.folder))
    int8 = torch_int8.state_dict_bytes(dynamic_model)
    measured("float32 state dict, bytes", full)
    measured("int8 state dict, bytes", int8)
    assert full / 4 < int8 < full / 2


@claim("causality.torch-dynamic")
@pytest.mark.parametrize("engine_name", [ENGINE, "default engine"])
def test_dynamic_int8_depends_on_later_tokens(runs: Runs, engine_name: str, measured: Measure) -> None:
    """Under ``quantize_dynamic`` later tokens change an earlier position's logits, by ten thousand times what
    float32 rounding does and more: the scale of an activation comes from the whole input."""
    name = torch_int8.default_engine() if engine_name == "default engine" else engine_name
    model = torch_int8.dynamic_int8(runs.checkpoint.folder, name)
    difference = torch_int8.prefix_dependence(model, runs.recording)
    measured(f"{engine_name}: position {len(runs.recording.prompt) - 1}, max|diff|", difference)
    assert difference > LEAK_FACTOR * runs.noise_floor.max()


@claim("causality.torchao")
def test_per_token_int8_does_not_depend_on_later_tokens(runs: Runs, measured: Measure) -> None:
    """torchao's int8 with one scale per token keeps the position's logits the same bits."""
    model = torch_int8.per_token_int8(runs.checkpoint.folder)
    # A few later tokens show a dependence as well as many, and torchao's CPU kernels are slow.
    few = replace(runs.recording, continuation=runs.recording.continuation[:LATER_TOKENS])
    difference = torch_int8.prefix_dependence(model, few)
    measured(f"position {len(runs.recording.prompt) - 1}, max|diff|", difference)
    assert difference == 0
