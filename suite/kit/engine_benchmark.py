"""How fast engines are, in tokens per second, side by side in one run."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from impl.catalogue import resolve
from impl.errors import InputError
from impl.protocol import Engine
from suite.kit.devices import device_of
from suite.kit.memory import given_back
from suite.kit.reference_run import plain_prompt

RECIPES = ("f32", "q8_0", "q4_0")
ENGINES = (("reference", "cpu"), ("reference", "cpu-dequantized"), ("reference", "mlx"), ("llama-cpp", "cpu"))
"""Implementation and backend; one that is not installed here is named and passed over."""

GENERATED = 8
"""Tokens to decode: enough to time, few enough for MLX on a CPU."""


@dataclass(frozen=True)
class Speed:
    """Tokens per second: of the prompt, all at once, and of what is generated after it, one by one."""

    prompt: float
    decode: float


def run_engine_benchmark(checkpoint: Path, vocabulary: int) -> int:
    """Print a line for each recipe and engine; 1 where no engine could be timed."""
    prompt, timed = plain_prompt(vocabulary), 0
    print(f"{'recipe':<8}{'engine':<28}{'prompt':>10}{'decode':>10}   tokens/s, prompt of {len(prompt)}, on")
    with tempfile.TemporaryDirectory() as folder:
        for recipe in RECIPES:
            file = Path(folder) / f"{recipe}.gguf"
            resolve("reference").convert(checkpoint, file, recipe)
            timed += sum(_print_line(recipe, *names, file, prompt) for names in ENGINES)
    return 0 if timed else 1


def _print_line(recipe: str, implementation: str, backend: str, file: Path, prompt: list[int]) -> bool:
    label = f"{recipe:<8}{implementation + ' ' + backend:<28}"
    try:
        engine = resolve(implementation)
        device = device_of(engine, backend)
        speed = measure(engine, backend, file, prompt)
    except InputError as error:
        print(f"{label}  {error}")
        return False
    where = f"{device.kind}, {device.name}" if device else "cpu"
    print(f"{label}{speed.prompt:>10.1f}{speed.decode:>10.1f}   {where}")
    return True


@given_back()
def measure(engine: Engine, backend: str, file: Path, prompt: list[int]) -> Speed:
    """The speed of one backend on one file, its first pass, which may compile kernels, not counted."""
    model = engine.load(file, backend)
    model.logits(prompt)
    reading = _seconds(lambda: model.logits(prompt))
    # What decoding takes beyond its first token, which needs the whole prompt read.
    first, all = (_seconds(lambda n=n: model.generate(prompt, n)) for n in (1, 1 + GENERATED))
    return Speed(len(prompt) / reading, GENERATED / (all - first))


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
