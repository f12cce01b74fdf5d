"""The run everything is measured against: transformers, eager attention, float32, CPU, greedy.

The 270 tokens that continue the prompt are recorded once; afterwards one pass over prompt and
continuation (teacher forcing) gives the reference logits and re-verifies the recording.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from impl.errors import InputError
from suite.kit.artifacts import written_beside
from suite.kit.checkpoints import checkpoint_digest

PROMPT = "Please explain what a CPU is."
STEPS = 270

PLAIN_PROMPT_LENGTH = 37
"""Of the prompt for a checkpoint without a chat template: ids 1, 8, 15, ... modulo the vocabulary."""


@dataclass(frozen=True)
class Recording:
    """A greedy continuation of a prompt by one checkpoint."""

    checkpoint: str
    """``checkpoint_digest`` of the folder."""
    prompt: tuple[int, ...]
    continuation: tuple[int, ...]
    versions: Mapping[str, str]
    """Of the packages that generated it."""

    @property
    def tokens(self) -> list[int]:
        """Prompt and continuation, the input of teacher forcing."""
        return [*self.prompt, *self.continuation]

    @property
    def positions(self) -> slice:
        """The positions whose logits predict the continuation: step i is position len(prompt) - 1 + i."""
        start = len(self.prompt) - 1
        return slice(start, start + len(self.continuation))


def recording_path(folder: Path, name: str, digest: str) -> Path:
    """Where the recording of the checkpoint called ``name`` stands, e.g. ``smollm2-0123456789ab.json``."""
    return folder / f"{name}-{digest[:12]}.json"


def save(recording: Recording, path: Path) -> None:
    """Write a recording as JSON, one field a line."""
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(field)}" for key, field in asdict(recording).items())
    with written_beside(path) as unfinished:
        unfinished.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def load(path: Path) -> Recording:
    """Read a recording; ``InputError`` where the file is none."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Recording(
            checkpoint=fields["checkpoint"],
            prompt=tuple(fields["prompt"]),
            continuation=tuple(fields["continuation"]),
            versions=fields["versions"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a recorded reference run: {error!r}") from error


def load_model(checkpoint: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The checkpoint in transformers, on the CPU, with eager attention, ready for inference.

    In float64 transformers still computes norms, softmax and the rotary table in float32.
    """
    return AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=dtype, attn_implementation="eager", local_files_only=True
    ).eval()


@torch.inference_mode()
def record(checkpoint: Path, steps: int = STEPS) -> Recording:
    """Generate ``steps`` tokens greedily; no stop token, penalty or sampling setting has a say."""
    model = load_model(checkpoint)
    # The checkpoint's own generation settings would stop at the end-of-text token.
    model.generation_config = GenerationConfig()
    prompt = _prompt_tokens(checkpoint, model.config.vocab_size)
    inputs = torch.tensor([prompt])
    generated = model.generate(inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=steps)
    return Recording(
        checkpoint=checkpoint_digest(checkpoint),
        prompt=tuple(prompt),
        continuation=tuple(generated[0, len(prompt) :].tolist()),
        versions={package: version(package) for package in ("torch", "transformers")},
    )


def teacher_force(checkpoint: Path, recording: Recording, dtype: torch.dtype = torch.float32) -> NDArray[np.floating]:
    """Logits of ``dtype``[steps, vocabulary] from one pass over prompt and continuation.

    Row i predicts token i of the continuation. Raises ``InputError`` where the recording is of another
    checkpoint.
    """
    digest = checkpoint_digest(checkpoint)
    if recording.checkpoint != digest:
        raise InputError(f"{checkpoint}: digest is {digest}, expected the recording's {recording.checkpoint}")
    return logits_of_steps(load_model(checkpoint, dtype), recording)


@torch.inference_mode()
def logits_of_steps(model: torch.nn.Module, recording: Recording) -> NDArray[np.floating]:
    """Logits [steps, vocabulary] of a transformers model at the recorded steps, in the model's dtype.

    All positions go through the head, not these alone: what quantizes activations over its whole input
    would otherwise answer another question.
    """
    inputs = torch.tensor([recording.tokens])
    return model(inputs, use_cache=False).logits[0, recording.positions].numpy()


def verify(recording: Recording, logits: NDArray[np.float32]) -> None:
    """Check that the recorded tokens are the greedy choice of these logits (float32[steps, vocabulary]).

    Raises ``InputError`` that names the first step where they are not.
    """
    if len(logits) != len(recording.continuation):
        raise InputError(
            f"reference run: found {len(logits)} steps, expected the recorded {len(recording.continuation)}"
        )
    for step, (row, token) in enumerate(zip(logits, recording.continuation, strict=True)):
        if not np.isfinite(row).all():
            raise InputError(f"reference run: step {step}: a logit is not a finite number")
        if row.argmax() != token:
            raise InputError(
                f"reference run: step {step}: the model picks token {row.argmax()}, expected the recorded "
                f"{token}; recorded with {_versions(recording)}: record it anew with the versions in use"
            )


def noise_floor(checkpoint: Path, recording: Recording, logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """How far the float32 reference is from the same model in float64: max|diff| of each step."""
    exact = teacher_force(checkpoint, recording, torch.float64)
    return np.array([np.abs(row - measured).max() for row, measured in zip(exact, logits, strict=True)])


def _prompt_tokens(checkpoint: Path, vocabulary: int) -> list[int]:
    if (checkpoint / "tokenizer_config.json").is_file():
        tokenizer = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
        if tokenizer.chat_template:
            message = {"role": "user", "content": PROMPT}
            return tokenizer.apply_chat_template([message], add_generation_prompt=True)["input_ids"]
    return plain_prompt(vocabulary)


def plain_prompt(vocabulary: int) -> list[int]:
    """The prompt for a checkpoint without a chat template."""
    return [(1 + 7 * position) % vocabulary for position in range(PLAIN_PROMPT_LENGTH)]


def _versions(recording: Recording) -> str:
    return ", ".join(f"{package} {version}" for package, version in recording.versions.items())
