"""Other people's programs, asked the same question: ik_llama.cpp's quantizer and transformers' GGUF loader."""

import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from impl.errors import InputError
from suite.kit.artifacts import written_beside

TIME_LIMIT = 600
"""Seconds that a program may run."""

LAST_LINES = 5
"""Of a failed program's output that go into the error."""


def llama_quantize_program() -> Path:
    """The ``llama-quantize`` in the wheel ik-llama-cpp-python; ``InputError`` where it is not installed."""
    # Finding the package, unlike importing it, loads no shared library.
    spec = find_spec("ik_llama_cpp")
    folders = (spec and spec.submodule_search_locations) or []
    for folder in folders:
        program = Path(folder) / "bin" / "llama-quantize"
        if program.is_file():
            return program
    raise InputError("llama-quantize: not found; expected the package ik-llama-cpp-python to be installed")


def llama_quantize(source_f32: Path, output: Path, type: str, imatrix: Path | None = None, pure: bool = False) -> None:
    """Quantize a full-metadata F32 GGUF file to ``type`` (``Q8_0``, ``Q4_K_M`` ...) with llama-quantize.

    ``imatrix`` is an importance matrix file; ``pure`` gives every matrix the same type. Runs two threads:
    their number changes no byte. Raises ``InputError`` with the end of the program's output where it fails
    or exceeds ``TIME_LIMIT``.
    """
    options = ["--pure"] if pure else []
    options += ["--imatrix", str(imatrix)] if imatrix else []
    with written_beside(output) as unfinished:
        _run([str(llama_quantize_program()), *options, str(source_f32), str(unfinished), type, "2"])
        if not unfinished.is_file():
            raise InputError(f"llama-quantize {type}: ended without an error but wrote no file")


def transformers_tensors(path: Path) -> Mapping[str, NDArray[np.float32]]:
    """The tensors of a GGUF file as transformers' own loader gives them: checkpoint name to float32 array.

    It dequantizes everything and puts the rows of q and k back. Raises ``InputError`` where it cannot read
    the file or finds no tensor for a weight of the model that the keys describe; the loader itself passes
    over the latter in silence.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    try:
        # from_pretrained would do the same, but asks for one more package, accelerate.
        config = AutoConfig.for_model(**load_gguf_checkpoint(str(path))["config"])
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: transformers cannot load it: {reason}") from error
    missing = [name for name, _ in model.named_parameters() if name not in tensors]
    if missing:
        raise InputError(f"{path}: transformers found no tensor for {', '.join(missing)}")
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _run(command: list[str]) -> None:
    program = Path(command[0]).name
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIME_LIMIT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(f"{program}: still running after {TIME_LIMIT} s: {' '.join(command)}") from error
    except OSError as error:
        raise InputError(f"{program}: cannot be started: {error}") from error
    if done.returncode:
        lines = done.stdout.decode(errors="replace").split("\n")
        last = " / ".join([line.strip() for line in lines if line.strip()][-LAST_LINES:])
        raise InputError(f"{program}: exit code {done.returncode}: {last}")
