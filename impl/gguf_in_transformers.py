"""A GGUF file as a model of transformers, by transformers' own loader, which dequantizes everything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from impl.errors import InputError

LOADER_DEVIATIONS: Mapping[str, str] = {
    "metadata.no-keys": "transformers falls over where it looks for the architecture: list index out of range",
    "metadata.required-key": (
        "transformers has a default for every key: where a weight does not fit it, the weight is named, not the key; "
        "the head size is derived, and an epsilon of 1e-6 taken, without a word"
    ),
}
"""Of every engine that loads files this way."""


@dataclass(frozen=True)
class TransformersModel:
    """A loaded model; nothing of one call is left for the next."""

    model: PreTrainedModel

    @torch.inference_mode()
    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Float32[len(tokens), vocabulary], row i predicting token i + 1."""
        return self.model(torch.tensor([list(tokens)]), use_cache=False).logits[0].numpy()

    @torch.inference_mode()
    def generate(self, prompt: Sequence[int], n: int) -> list[int]:
        """The ``n`` tokens that transformers' greedy search appends, with its cache of keys and values."""
        inputs = torch.tensor([list(prompt)])
        mask = torch.ones_like(inputs)
        return self.model.generate(inputs, attention_mask=mask, max_new_tokens=n)[0, len(prompt) :].tolist()


def load_model(path: Path) -> PreTrainedModel:
    """The file's model in float32 with eager attention, on the CPU, ready for inference.

    Raises ``InputError`` where the file has no tensor for a weight of the model that its keys describe, or one of
    another shape: of the former the loader itself says nothing, and ``from_pretrained`` fills it with random
    numbers. Other errors are transformers' own.
    """
    # What from_pretrained(folder, gguf_file=...) does, which asks for one more package, accelerate.
    config = AutoConfig.for_model(**load_gguf_checkpoint(str(path))["config"])
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config)
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=empty)["tensors"]
    _require_weights(path, dict(empty.named_parameters()), tensors)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    model.load_state_dict(tensors, strict=False)
    # No stop token, penalty or sampling has a say in what is generated.
    model.generation_config = GenerationConfig(do_sample=False)
    return model.eval()


def _require_weights(path: Path, expected: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> None:
    faults = [
        f"{name} is {list(found[name].shape) if name in found else 'absent'}, expected {list(weight.shape)}"
        for name, weight in expected.items()
        if name not in found or found[name].shape != weight.shape
    ]
    if faults:
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        raise InputError(f"{path}: the model that transformers makes of the keys: {faults[0]}{more}")
