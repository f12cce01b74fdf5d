"""Torch's int8 on a model of two layers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from impl.errors import InputError
from suite.kit import reference_run, torch_int8
from suite.kit.reference_run import Recording

ENGINE = torch_int8.supported_engines()[0]
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tied, as the article's model is."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        attention_bias=True,
        initializer_range=0.2,
    )
    folder = tmp_path_factory.mktemp("tied")
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def recording(checkpoint: Path) -> Recording:
    return reference_run.record(checkpoint, 16)


@pytest.fixture(scope="module")
def dynamic(checkpoint: Path) -> nn.Module:
    return torch_int8.dynamic_int8(checkpoint, ENGINE)


def test_every_linear_layer_and_the_tied_head_become_int8(dynamic: nn.Module) -> None:
    layers = torch_int8.layers_of(dynamic)
    assert layers.linear_layers == 2 * 7 + 1
    assert layers.schemes == {torch.per_tensor_affine}
    assert layers.head_is_separate
    assert layers.embedding_dtype == torch.float32


def test_float32_model_has_no_int8_layer(checkpoint: Path) -> None:
    layers = torch_int8.layers_of(reference_run.load_model(checkpoint))
    assert layers.linear_layers == 0
    assert not layers.head_is_separate


def test_weight_only_holds_the_int8_weights_and_the_float32_embedding(checkpoint: Path, dynamic: nn.Module) -> None:
    float32 = reference_run.load_model(checkpoint)
    weight_only = torch_int8.weight_only_int8(checkpoint, ENGINE)
    for name, layer in float32.named_modules():
        if isinstance(layer, nn.Linear):
            replaced, int8 = weight_only.get_submodule(name), dynamic.get_submodule(name)
            assert torch.equal(replaced.weight, int8.weight().dequantize())
            assert layer.bias is None or torch.equal(replaced.bias, layer.bias)
            assert 0 < (replaced.weight - layer.weight).abs().max() <= int8.weight().q_scale()
    assert torch.equal(weight_only.get_parameter(EMBEDDING), float32.get_parameter(EMBEDDING))


def test_prefix_dependence_is_zero_in_float32_and_per_token_and_not_in_dynamic_int8(
    checkpoint: Path, recording: Recording, dynamic: nn.Module
) -> None:
    exact = (
        reference_run.load_model(checkpoint),
        torch_int8.weight_only_int8(checkpoint, ENGINE),
        torch_int8.per_token_int8(checkpoint),
    )
    assert [torch_int8.prefix_dependence(model, recording) for model in exact] == [0, 0, 0]
    with torch.inference_mode():
        alone, whole = (
            dynamic(torch.tensor([tokens])).logits[0, len(recording.prompt) - 1]
            for tokens in (recording.prompt, recording.tokens)
        )
    assert torch_int8.prefix_dependence(dynamic, recording) == (alone - whole).abs().max() > 0


def test_logits_of_dynamic_int8_come_from_the_whole_sequence(recording: Recording, dynamic: nn.Module) -> None:
    with torch.inference_mode():
        whole = dynamic(torch.tensor([recording.tokens])).logits[0].numpy()
    start = len(recording.prompt) - 1
    assert np.array_equal(reference_run.logits_of_steps(dynamic, recording), whole[start : start + 16])


def test_state_dict_bytes_are_those_of_the_file(dynamic: nn.Module, tmp_path: Path) -> None:
    torch.save(dynamic.state_dict(), tmp_path / "model.pt")
    size = (tmp_path / "model.pt").stat().st_size
    # The archive repeats its own name in every entry.
    assert torch_int8.state_dict_bytes(dynamic) == pytest.approx(size, rel=0.05)
    assert torch_int8.state_dict_bytes(nn.Linear(1000, 1000)) > 4_004_000


@pytest.mark.parametrize("engine", torch_int8.supported_engines())
def test_engine_is_selected_while_quantizing_and_put_back(
    engine: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch_int8.default_engine()
    monkeypatch.setattr(torch.ao.quantization, "quantize_dynamic", lambda *_, **__: torch_int8.default_engine())
    assert torch_int8.dynamic_int8(checkpoint, engine) == engine
    assert torch_int8.default_engine() == before


def test_without_an_engine_torch_names_the_missing_engine_and_the_engine_is_put_back() -> None:
    before = torch_int8.default_engine()
    assert "NoQEngine" in torch_int8.error_without_engine()
    assert torch_int8.default_engine() == before


def test_engine_that_torch_lacks_is_refused(checkpoint: Path) -> None:
    with pytest.raises(InputError, match="engine abacus: not in this build of torch"):
        torch_int8.dynamic_int8(checkpoint, "abacus")
