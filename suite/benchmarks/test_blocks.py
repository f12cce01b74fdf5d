"""The reference's block formats beside ggml's C library and gguf-py: MB/s of float32, and ratios within one run.

A thread more or less is a CPU more or less that this process may use. Whoever is compared takes turns with the
one it is compared with, round by round, so that a machine that slows down does so for both.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
import pytest
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

from impl.catalogue import resolve

COLUMNS = 4096
ROWS = 4096
"""A square matrix of a model of 7 B weights: beside it, what a thread costs to start is small."""
FEWEST_ROUNDS, MOST_ROUNDS = 5, 30
SECONDS = 1.0
"""About how long the rounds of a contender take in all, where their number leaves a choice."""
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
MACHINE, WHOLE_MACHINE = Contender("no implementation"), Contender("no implementation", 2)
COMPARED_WITH: Mapping[Contender, Contender] = {REFERENCE: GGML, TWO_THREADS: REFERENCE, WHOLE_MACHINE: MACHINE}
RATIOS: Mapping[str, tuple[Contender, ...]] = {
    "reference / ggml": (REFERENCE,),
    "2 threads / 1": (TWO_THREADS, WHOLE_MACHINE),
}
"""By the name of a column, who is compared in it."""

Work = Callable[[Contender], object]
"""What a contender does in a round, on the CPUs it is allowed."""


def _hash(_: NDArray[np.float32], part: NDArray[np.float32]) -> None:
    sha256(part).digest()


MACHINE_WORK: Mapping[str, Callable[[NDArray[np.float32], NDArray[np.float32]], None]] = {
    "SHA-256": _hash,
    "copy to new memory": np.copyto,
}
"""What is bound by the CPU and what by memory: called with rows of new memory and as many of the matrix."""


@dataclass
class Speeds:
    """By what was done and by whom: MB of float32 per second, and how many times those of whom it is compared with.

    Both are of the fastest round.
    """

    measured: dict[str, dict[Contender, float]] = field(default_factory=dict)
    ratios: dict[str, dict[Contender, float]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """A table: one line for each thing that was done."""
        yield f"{'MB/s of float32':<32}" + "".join(f"{name:>22}" for name in (*map(str, CONTENDERS), *RATIOS))
        for what, speeds in self.measured.items():
            ratios = self.ratios.get(what, {})
            cells = [f"{speeds[each]:,.0f}" if each in speeds else "" for each in CONTENDERS]
            cells += ["".join(f"{ratios[each]:.2f}" for each in column if each in ratios) for column in RATIOS.values()]
            yield f"{what:<32}" + "".join(f"{cell:>22}" for cell in cells)


@pytest.fixture(scope="module")
def speeds(pytestconfig: pytest.Config) -> Iterator[Speeds]:
    measured = Speeds()
    yield measured
    terminal = pytestconfig.pluginmanager.getplugin("terminalreporter")
    with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        terminal.line("")
        for line in measured.lines():
            terminal.line(line)


@pytest.mark.parametrize("what", MACHINE_WORK)
def test_machine(what: str, benchmark: BenchmarkFixture, speeds: Speeds) -> None:
    """What this machine's second CPU adds where only CPUs count, and where only memory does."""
    _skip_without_cpus(WHOLE_MACHINE)
    weight = _weight(ROWS)

    def work(contender: Contender) -> None:
        new = np.empty_like(weight)
        parts = (np.array_split(rows, contender.threads) for rows in (new, weight))
        with ThreadPoolExecutor(contender.threads) as pool:
            list(pool.map(MACHINE_WORK[what], *parts))

    _measure(f"machine: {what}", WHOLE_MACHINE, work, weight.nbytes, benchmark, speeds)


@pytest.mark.parametrize("contender", CONTENDERS, ids=str)
@pytest.mark.parametrize("type", TYPES)
def test_quantize(type: str, contender: Contender, benchmark: BenchmarkFixture, speeds: Speeds) -> None:
    _skip_without(contender, "types", type)
    weight = _weight(ROWS)
    _measure(f"quantize {type}", contender, _quantizing(weight, type), weight.nbytes, benchmark, speeds)


@pytest.mark.parametrize("contender", CONTENDERS, ids=str)
@pytest.mark.parametrize("type", TYPES)
def test_dequantize(type: str, contender: Contender, benchmark: BenchmarkFixture, speeds: Speeds) -> None:
    _skip_without(contender, "readable_types", type)
    weight = _weight(ROWS)
    blocks = resolve("reference").quantize(weight, type)

    def work(contender: Contender) -> None:
        resolve(contender.implementation).dequantize(blocks, type)

    _measure(f"dequantize {type}", contender, work, weight.nbytes, benchmark, speeds)


@pytest.mark.parametrize("contender", [GGML, REFERENCE, TWO_THREADS], ids=str)
@pytest.mark.parametrize("millions", SIZES)
@pytest.mark.parametrize("type", ALL_SIZES)
def test_cost_against_size(
    type: str, millions: int, contender: Contender, benchmark: BenchmarkFixture, speeds: Speeds
) -> None:
    _skip_without(contender, "types", type)
    weight = _weight(millions * 2**20 // COLUMNS)
    what = f"quantize {type}, {millions} M values"
    _measure(what, contender, _quantizing(weight, type), weight.nbytes, benchmark, speeds, fewest_rounds=2)


def _weight(rows: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((rows, COLUMNS), dtype=np.float32)


def _quantizing(weight: NDArray[np.float32], type: str) -> Work:
    return lambda contender: resolve(contender.implementation).quantize(weight, type)


def _skip_without(contender: Contender, attribute: str, type: str) -> None:
    implementation = resolve(contender.implementation)
    if type not in getattr(implementation, attribute, getattr(implementation, "types", ())):
        pytest.skip(f"{contender} does not offer {type}")
    _skip_without_cpus(contender)


def _skip_without_cpus(contender: Contender) -> None:
    if contender.threads > len(os.sched_getaffinity(0)):
        pytest.skip(f"{contender.threads} threads on {len(os.sched_getaffinity(0))} CPUs")


def _measure(
    what: str,
    contender: Contender,
    work: Work,
    float32_bytes: int,
    benchmark: BenchmarkFixture,
    speeds: Speeds,
    fewest_rounds: int = FEWEST_ROUNDS,
) -> None:
    """Let ``contender`` do ``work``, in turns with the one it is compared with."""
    other = COMPARED_WITH.get(contender)
    seconds = min(_seconds(work, contender) for _ in range(2))
    rounds = round(min(max(SECONDS / seconds, fewest_rounds), MOST_ROUNDS))
    of_the_other: list[float] = []

    def others_turn() -> None:
        if other is not None:
            of_the_other.append(_seconds(work, other))

    benchmark.group = what
    benchmark.pedantic(_seconds, (work, contender), setup=others_turn, rounds=rounds)
    if benchmark.stats is None:
        return
    fastest = benchmark.stats.stats.min
    speeds.measured.setdefault(what, {})[contender] = float32_bytes / fastest / 1e6
    if other is not None:
        speeds.ratios.setdefault(what, {})[contender] = min(of_the_other) / fastest


def _seconds(work: Work, contender: Contender) -> float:
    """How long the contender takes, on as many CPUs as it has threads."""
    with _on_cpus(contender.threads):
        started = time.perf_counter()
        work(contender)
        return time.perf_counter() - started


@contextmanager
def _on_cpus(count: int) -> Iterator[None]:
    """Let this process use so many of its CPUs."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
