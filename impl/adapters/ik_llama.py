"""ik_llama.cpp, prebuilt in the wheel ik-llama-cpp-python: its ``llama-quantize`` and its engine."""

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from ik_llama_cpp import _ctypes_api as api
from ik_llama_cpp import find_quantize_bin
from ik_llama_cpp._internals import IkContext, IkModel, make_batch_range
from numpy.typing import NDArray

from impl.errors import InputError
from impl.output import written_whole
from impl.protocol import Arithmetic, Metadata
from impl.reference.convert import convert

PURE: Mapping[str, str] = {
    "f16": "F16",
    "bf16": "BF16",
    "q8_0": "Q8_0",
    "q4_0": "Q4_0",
    "q4_1": "Q4_1",
    "q5_0": "Q5_0",
    "q5_1": "Q5_1",
    "q2_k": "Q2_K",
    "q3_k": "Q3_K_S",
    "q4_k": "Q4_K_S",
    "q5_k": "Q5_K_S",
    "q6_k": "Q6_K",
}
"""By type, what llama-quantize calls a file with it as the first choice; ``--pure`` makes it the only one."""

MIXES: Mapping[str, str] = {
    name.lower(): name for name in ("Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M")
}

SHAPES = "llama.cpp takes it for 0 and refuses the first tensor whose shape does not follow, by its name"
TWO_KEYS = "llama-quantize always writes general.quantization_version and general.file_type, 64 bytes"
DEVIATIONS: Mapping[str, str] = {
    "causality.alone[cpu-q4_k_m]": (
        "many rows at once are multiplied by K-quants repacked, with activations quantized for those: the position "
        "differs by 1.29 on smollm2 from the prompt alone"
    ),
    **{f"conversion.file-size[{recipe}]": TWO_KEYS for recipe in ("q8_0", "q4_k", "q4_0")},
    "logits.f32": "values are kept in float16 unless flash attention is used: 0.019 at the worst step on smollm2",
    "metadata.no-keys": "the first key that llama.cpp misses is general.architecture",
    "metadata.required-key[cpu-llama.attention.head_count]": SHAPES,
    "metadata.required-key[cpu-llama.attention.head_count_kv]": (
        "llama.cpp takes it for head_count and refuses the first attn_k, whose shape does not follow, by its name"
    ),
    "metadata.required-key[cpu-llama.rope.dimension_count]": "llama.cpp takes the head size where it is missing",
}

LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
POSITIONS = 512
"""In one pass: llama.cpp's own default for ``n_ubatch``."""


class IkLlama:
    """Its quantizer as a converter, from an F32 file that ``impl.reference.convert`` writes, and its engine."""

    name = "ik-llama"
    version = version("ik-llama-cpp-python")
    deviations: Mapping[str, str] = DEVIATIONS
    recipes: Sequence[str] = ("f32", *PURE, *MIXES)
    metadata: Metadata = "full"
    backends: Mapping[str, Arithmetic] = {"cpu": "quantized-activations"}

    def convert(
        self,
        checkpoint: Path,
        output: Path,
        recipe: str,
        metadata: Metadata = "full",
        importance: Path | None = None,
    ) -> None:
        """Write the GGUF ``output``; ``importance`` is an importance matrix for llama-quantize.

        Raises ``InputError`` for an unknown recipe, for what ``impl.reference.convert`` refuses, and with the
        last line of llama-quantize's output where it fails. ``f32`` is the F32 file itself.
        """
        if recipe not in self.recipes:
            raise InputError(f"recipe {recipe!r}: unknown to {self.name}, expected one of {', '.join(self.recipes)}")
        if recipe == "f32":
            convert(checkpoint, output, "f32", metadata)
            return
        options = ["--pure"] if recipe in PURE else []
        options += ["--imatrix", str(importance)] if importance else []
        with written_whole(output) as unfinished, TemporaryDirectory() as scratch:
            float32 = Path(scratch, "f32.gguf")
            convert(checkpoint, float32, "f32", metadata)
            type = PURE.get(recipe) or MIXES[recipe]
            _quantize([*options, str(float32), str(unfinished), type, str(_threads())])

    def load(self, path: Path, backend: str) -> "IkLlamaModel":
        """Load a GGUF file; ``InputError`` with llama.cpp's own words where it does not."""
        with _log() as lines:
            try:
                return IkLlamaModel(IkModel(str(path)))
            except RuntimeError as error:
                said = "".join(lines).splitlines()
                reason = next((line for line in said if "error loading model:" in line), str(error))
                raise InputError(f"{path}: {reason}") from error


@dataclass(frozen=True)
class IkLlamaModel:
    """A loaded model. Each sequence has a context of its own, so that none finds another's cache.

    Attention without flash attention, which wants AVX-VNNI, and keys and values in float16, since values in
    float32 want flash attention.
    """

    model: IkModel

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Float32[len(tokens), vocabulary], row i predicting token i + 1."""
        context = self._context(len(tokens))
        return np.concatenate(
            [
                self._decoded(context, list(tokens[start : start + POSITIONS]), start)
                for start in range(0, len(tokens), POSITIONS)
            ]
        )

    def generate(self, prompt: Sequence[int], n: int) -> list[int]:
        """The ``n`` tokens of the largest logit, one by one, over llama.cpp's cache."""
        context, tokens, seen = self._context(len(prompt) + n), list(prompt), 0
        for _ in range(n):
            following = self._decoded(context, tokens[seen:], seen)[-1]
            seen = len(tokens)
            tokens.append(int(following.argmax()))
        return tokens[len(prompt) :]

    def _context(self, positions: int) -> IkContext:
        with _log():
            return IkContext(self.model, n_ctx=positions, n_threads=_threads(), flash_attn=False)

    def _decoded(self, context: IkContext, tokens: list[int], start: int) -> NDArray[np.float32]:
        batch = make_batch_range(tokens, pos_start=start)
        try:
            for position in range(len(tokens)):
                batch.logits[position] = 1
            with _log():
                failed = context.decode(batch)
        finally:
            api.llama_batch_free(batch)
        if failed:
            raise RuntimeError(f"llama_decode returns {failed} for {len(tokens)} tokens")
        rows = (context.get_logits(position) for position in range(len(tokens)))
        return np.array([np.ctypeslib.as_array(row, (self.model.n_vocab,)) for row in rows])


def _quantize(arguments: Sequence[str]) -> None:
    done = subprocess.run(
        [find_quantize_bin(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "")
        raise InputError(f"llama-quantize: exit code {done.returncode}: {last}")


def _threads() -> int:
    # What limits OpenMP in this process limits llama.cpp, whose own default is four.
    return int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))


@contextmanager
def _log() -> Iterator[list[str]]:
    """What llama.cpp says meanwhile, which it would print."""
    pieces: list[str] = []
    listener = LOG(lambda level, text, _: pieces.append(text.decode(errors="replace")))
    set_listener = api._lib.llama_log_set
    set_listener.argtypes, set_listener.restype = [ctypes.c_void_p, ctypes.c_void_p], None
    set_listener(ctypes.cast(listener, ctypes.c_void_p), None)
    try:
        yield pieces
    finally:
        set_listener(None, None)
