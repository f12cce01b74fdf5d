"""The reference's block formats beside ggml's C library and gguf-py: MB/s of float32, and ratios within one run.

A thread more or less is a CPU more or less that this process may use.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

from impl.catalogue import resolve
from impl.protocol import Implementation

COLUMNS = 4096
ROWS = 4096
"""A square matrix of a model of 7 B weights: beside it, what a thread costs to start is small."""
ROUNDS = 5
SIZES = (1, 4, 16, 64)
"""Millions of values, for what the cost depends on."""

ALL_SIZES = ("q8_0", "q4_k")
TYPES = tuple(type for type in resolve("reference").types if type in resolve("ggml").types)


@dataclass(frozen=True)
class Contender:
    """An implementation on a number of CPUs."""

    implementation: str
    threads: int = 1

    def __str__(self) -> str:
        return f"{self.implementation}, {self.threads} threads" if self.threads > 1 else self.implementation


GGML, GGUF_PY = Contender("ggml"), Contender("gguf-py")
REFERENCE, TWO_THREADS = Contender("reference"), Contender("reference", 2)
CONTENDERS = (GGML, GGUF_PY, REFERENCE, TWO_THREADS)
RATIOS: Mapping[str, tuple[Contender, Contender]] = {
    "reference / ggml": (REFERENCE, GGML),
    "2 threads / 1": (TWO_THREADS, REFERENCE),
}


@dataclass
class Speeds:
    """MB of float32 per second, by what was done and by whom."""

    measured: dict[str, dict[Contender, float]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """A table: one line for each thing that was done."""
        yield f"{'MB/s of float32':<28}" + "".join(f"{name:>22}" for name in (*map(str, CONTENDERS), *RATIOS))
        for what, speeds in self.measured.items():
            cells = [f"{speeds[each]:,.0f}" if each in speeds else "" for each in CONTENDERS]
            cells += [f"{speeds[a] / speeds[b]:.2f}" if {a, b} <= speeds.keys() else "" for a, b in RATIOS.values()]
            yield f"{what:<28}" + "".join(f"{cell:>22}" for cell in cells)


@pytest.fixture(scope="module")
def speeds(pytestconfig: pytest.Config) -> Iterator[Speeds]:
    measured = Speeds()
    yield measured
    terminal = pytestconfig.pluginmanager.getplugin("terminalreporter")
    with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        terminal.line("")
        for line in measured.lines():
            terminal.line(line)


@pytest.mark.parametrize("contender", CONTENDERS, ids=str)
@pytest.mark.parametrize("type", TYPES)
def test_quantize(type: str, contender: Contender, benchmark: BenchmarkFixture, speeds: Speeds) -> None:
    implementation = _offering(contender, "types", type)
    weight = _weight(ROWS)
    what = f"quantize {type}"
    _measure(what, contender, lambda: implementation.quantize(weight, type), weight, benchmark, speeds)


@pytest.mark.parametrize("contender", CONTENDERS, ids=str)
@pytest.mark.parametrize("type", TYPES)
def test_dequantize(type: str, contender: Contender, benchmark: BenchmarkFixture, speeds: Speeds) -> None:
    implementation = _offering(contender, "readable_types", type)
    weight = _weight(ROWS)
    blocks = resolve("reference").quantize(weight, type)
    _measure(
        f"dequantize {type}", contender, lambda: implementation.dequantize(blocks, type), weight, benchmark, speeds
    )


@pytest.mark.parametrize("contender", [GGML, REFERENCE, TWO_THREADS], ids=str)
@pytest.mark.parametrize("millions", SIZES)
@pytest.mark.parametrize("type", ALL_SIZES)
def test_cost_against_size(
    type: str, millions: int, contender: Contender, benchmark: BenchmarkFixture, speeds: Speeds
) -> None:
    implementation = _offering(contender, "types", type)
    weight = _weight(millions * 2**20 // COLUMNS)
    what = f"quantize {type}, {millions} M values"
    _measure(what, contender, lambda: implementation.quantize(weight, type), weight, benchmark, speeds, rounds=2)


def _weight(rows: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((rows, COLUMNS), dtype=np.float32)


def _offering(contender: Contender, attribute: str, type: str) -> Implementation:
    implementation = resolve(contender.implementation)
    offered = getattr(implementation, attribute, getattr(implementation, "types", ()))
    if type not in offered:
        pytest.skip(f"{contender} does not offer {type}")
    if contender.threads > len(os.sched_getaffinity(0)):
        pytest.skip(f"{contender.threads} threads on {len(os.sched_getaffinity(0))} CPUs")
    return implementation


def _measure(
    what: str,
    contender: Contender,
    work: Callable[[], object],
    weight: NDArray[np.float32],
    benchmark: BenchmarkFixture,
    speeds: Speeds,
    rounds: int = ROUNDS,
) -> None:
    benchmark.group = what
    with _on_cpus(contender.threads):
        benchmark.pedantic(work, rounds=rounds, warmup_rounds=1)
    if benchmark.stats is not None:
        speeds.measured.setdefault(what, {})[contender] = weight.nbytes / benchmark.stats.stats.min / 1e6


@contextmanager
def _on_cpus(count: int) -> Iterator[None]:
    """Let this process use so many of its CPUs."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
