"""What claims are measured on: each file, each pass through an engine, made once and shared by all workers."""

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from torch import nn

from impl.catalogue import resolve
from impl.errors import InputError
from impl.protocol import Converter, Engine, Implementation, Metadata, Model, offered
from suite.kit import importance, independent, reference_run
from suite.kit.artifacts import ArtifactStore
from suite.kit.checkpoints import Checkpoint
from suite.kit.devices import device_of, keyed_by_device
from suite.kit.logits import LogitsComparison, compare_logits
from suite.kit.memory import given_back
from suite.kit.own_file import write_own_file
from suite.kit.reference_run import Recording
from suite.kit.results import Undecided
from suite.kit.selection import require_importance, require_member
from suite.kit.snapshots import RecordedLogits, summarize
from suite.kit.source import Source
from suite.kit.tensors import open_gguf
from suite.report.environment import versions

ARTICLES_SHAPES = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class Runs:
    """The checkpoint, its reference run, and everything made from it in this session.

    ``store`` lives as long as the session, so that a file never outlives the code that made it.
    ``recordings`` are the folders to look for the recorded reference run in; one that is in none of them
    is generated and kept in the last. ``steps`` is how many of its steps are measured; None for all.
    """

    checkpoint: Checkpoint
    store: ArtifactStore
    recordings: tuple[Path, ...]
    steps: int | None = None

    @cached_property
    def source(self) -> Source:
        """The checkpoint's own tensors."""
        return Source(self.checkpoint.folder)

    @property
    def has_the_articles_shapes(self) -> bool:
        """Whether the article's sizes and counts apply, whatever the weights."""
        return all(self.source.config.get(key) == value for key, value in ARTICLES_SHAPES.items())

    @cached_property
    def recording(self) -> Recording:
        """The recorded continuation, or as many of its steps as are measured."""
        return replace(self._whole_recording, continuation=self._whole_recording.continuation[: self.steps])

    @property
    def window(self) -> int | None:
        """The number of steps measured where these are not all; None where they are."""
        if self.steps is None:
            return None
        measured = len(self.recording.continuation)
        return None if measured == len(self._whole_recording.continuation) else measured

    @cached_property
    def _whole_recording(self) -> Recording:
        """The recorded continuation, generated where no folder has it yet."""
        digest = reference_run.checkpoint_digest(self.checkpoint.folder)
        paths = [reference_run.recording_path(each, self.checkpoint.label, digest) for each in self.recordings]
        for path in paths:
            if path.is_file():
                return reference_run.load(path)
        with FileLock(self.store.folder / "recording.lock"):
            if not paths[-1].is_file():
                reference_run.save(reference_run.record(self.checkpoint.folder), paths[-1])
        return reference_run.load(paths[-1])

    @cached_property
    def reference_logits(self) -> NDArray[np.float32]:
        """Float32[steps, vocabulary] of the reference run, verified against the recording."""

        @given_back()
        def run(output: Path) -> None:
            logits = reference_run.teacher_force(self.checkpoint.folder, self.recording)
            reference_run.verify(self.recording, logits)
            _save(output, logits)

        return _mapped(self.store.build("reference-logits", {}, run, ".npy"))

    @cached_property
    def noise_floor(self) -> NDArray[np.float64]:
        """Float64[steps]: how far the float32 reference is from the same model in float64, step by step."""

        @given_back()
        def run(output: Path) -> None:
            folder = self.checkpoint.folder
            _save(output, reference_run.noise_floor(folder, self.recording, self.reference_logits))

        return _mapped(self.store.build("noise-floor", {}, run, ".npy"))

    def engine_file(self, engine: Engine, recipe: str, *, by_importance: bool = False) -> Path:
        """The checkpoint as the implementation converts it, with the least metadata that its engine needs."""
        # Without a key for the head size, readers derive it; and a full file's vocabulary takes seconds to read.
        derived = self.source.head_size * self.source.heads["attn_q"] == self.source.config["hidden_size"]
        metadata = getattr(engine, "metadata", "full") if derived else "full"
        return self.file(engine, recipe, metadata, by_importance=by_importance)

    def file(
        self,
        implementation: Implementation,
        recipe: str,
        metadata: Metadata = "minimal",
        *,
        by_importance: bool = False,
    ) -> Path:
        """The checkpoint as the implementation converts it; the reference's file for one that converts nothing.

        ``by_importance`` gives it an importance matrix collected over the reference run.
        """
        converter = implementation if "converter" in offered(implementation) else resolve("reference")
        require_member(converter, "recipes", recipe)
        if by_importance:
            require_importance(converter, "convert")
        return self._converted(converter, recipe, metadata, by_importance)

    def _converted(self, converter: Converter, recipe: str, metadata: Metadata, by_importance: bool) -> Path:
        matrix = {"importance": self._importance_matrix} if by_importance else {}

        def run(output: Path) -> None:
            converter.convert(self.checkpoint.folder, output, recipe, metadata, **matrix)

        name = f"{converter.name}-{recipe}-{metadata}{'-imatrix' if by_importance else ''}"
        return self.store.build(name, {}, run, ".gguf")

    def edited(self, file: Path, edit: str, surgery: Callable[[Path, Path], None]) -> Path:
        """``file`` after ``surgery(source, output)``; ``edit`` names what was done."""
        return self.store.build(f"{file.stem}-{edit}", {}, lambda output: surgery(file, output), ".gguf")

    def independent_file(self, type: str, *, pure: bool = False, with_importance: bool = False) -> Path:
        """The checkpoint quantized by llama.cpp's own quantizer (ik_llama.cpp), from a file the suite wrote.

        ``type`` as that program calls it, e.g. ``Q4_K_M``; ``pure`` switches its mixes off;
        ``with_importance`` gives it an importance matrix collected over the reference run.
        """
        own = self.store.build("own-f32", {}, lambda output: write_own_file(self.source, output), ".gguf")
        matrix = self._importance_matrix if with_importance else None

        def run(output: Path) -> None:
            independent.llama_quantize(own, output, type, imatrix=matrix, pure=pure)

        suffix = f"{'-pure' if pure else ''}{'-imatrix' if with_importance else ''}"
        file = self.store.build(f"independent-{type}{suffix}", {}, run, ".gguf")
        _require_readable(file, type)
        return file

    @cached_property
    def _importance_matrix(self) -> Path:
        @given_back()
        def run(output: Path) -> None:
            importances = importance.column_importances(self.checkpoint.folder, self.recording)
            importance.write_imatrix(importances, output, dataset="reference run")

        return self.store.build("importance", {}, run, ".dat")

    def logits(self, engine: Engine, backend: str, file: Path) -> NDArray[np.float32]:
        """Float32[steps, vocabulary] of an engine on a file, teacher-forced over the recorded continuation."""

        @given_back()
        def run(output: Path) -> None:
            _save(output, _rows(engine.load(file, backend), self.recording.tokens, self.recording.positions))

        return _mapped(self.store.build(f"logits-{engine.name}-{backend}-{file.stem}", {}, run, ".npy"))

    def logits_of_prompt_alone(self, engine: Engine, backend: str, file: Path) -> NDArray[np.float32]:
        """Float32[vocabulary] at the last position of the prompt, with nothing after it."""

        @given_back()
        def run(output: Path) -> None:
            _save(output, _rows(engine.load(file, backend), self.recording.prompt, slice(-1, None)))

        return _mapped(self.store.build(f"prompt-{engine.name}-{backend}-{file.stem}", {}, run, ".npy"))[0]

    def against_reference(self, engine: Engine, backend: str, file: Path) -> LogitsComparison:
        """An engine's logits on a file held against the reference run."""

        def run(output: Path) -> None:
            compare_logits(self.reference_logits, self.logits(engine, backend, file)).save(output)

        name = f"comparison-{engine.name}-{backend}-{file.stem}"
        return LogitsComparison.load(self.store.build(name, {}, run, ".npz"))

    def torch_against_reference(self, name: str, quantized: Callable[[Path], nn.Module]) -> LogitsComparison:
        """A transformers model made from the checkpoint by ``quantized(folder)``, held against the reference run."""

        @given_back()
        def run(output: Path) -> None:
            _save(output, reference_run.logits_of_steps(quantized(self.checkpoint.folder), self.recording))

        logits = _mapped(self.store.build(f"logits-torch-{name}", {}, run, ".npy"))
        return compare_logits(self.reference_logits, logits)

    def snapshot_name(self, engine: Engine, backend: str, recipe: str) -> str:
        """What a snapshot is called: checkpoint, implementation, backend on its device, recipe, and any window."""
        keyed = keyed_by_device(backend, device_of(engine, backend))
        window = f"-first-{self.window}" if self.window else ""
        return f"{self.checkpoint.label}-{engine.name}-{keyed}-{recipe}{window}"

    def summary(self, engine: Engine, backend: str, recipe: str) -> RecordedLogits:
        """What a snapshot keeps of an engine's logits on a recipe's file."""
        file = self.engine_file(engine, recipe)
        device = device_of(engine, backend)
        metadata = {
            "checkpoint": self.recording.checkpoint,
            "steps": str(len(self.recording.continuation)),
            "implementation": f"{engine.name} {engine.version}",
            "backend": backend,
            "device": f"{device.kind}, {device.name}" if device else "cpu",
            "arithmetic": engine.backends[backend],
            "recipe": recipe,
            "noise_floor": repr(float(self.noise_floor.max())),
            "versions": json.dumps(versions()),
        }
        step_maxima = self.against_reference(engine, backend, file).step_maxima
        return summarize(self.logits(engine, backend, file), step_maxima, metadata)


def _require_readable(file: Path, type: str) -> None:
    """ik_llama.cpp has types of its own, which its mixes use for some shapes and no other reader knows."""
    try:
        open_gguf(file)
    except InputError as error:
        raise Undecided(f"the independent {type} file has no counterpart in GGUF: {error}") from error


def _rows(model: Model, tokens: Sequence[int], rows: slice) -> NDArray[np.float32]:
    """Some rows of a model's logits; a model that can be asked for them alone computes no others."""
    if "rows" in inspect.signature(model.logits).parameters:
        return model.logits(tokens, rows=rows)
    return model.logits(tokens)[rows]


def _save(output: Path, array: NDArray) -> None:
    with output.open("wb") as stream:
        np.save(stream, array)


def _mapped(path: Path) -> NDArray:
    return np.load(path, mmap_mode="r")
