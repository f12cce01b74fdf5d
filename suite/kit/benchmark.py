"""Time and peak memory of the two things a user waits for, each in a process of its own."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

INTERVAL = 1.0
"""Seconds between two looks at the processes' memory, each of which holds them up."""


@dataclass(frozen=True)
class Cost:
    """What a command took, its children included: wall-clock seconds, and the peak of proportional memory.

    Proportional: a page that n processes share counts as 1/n in each, so that the sum is what the machine
    has to have.
    """

    seconds: float
    peak_bytes: int
    returncode: int


@dataclass(frozen=True)
class Benchmark:
    """A command with its bounds."""

    name: str
    command: Sequence[str]
    seconds: float
    peak_bytes: float


def run_benchmark(checkpoint: Path, cache: Path) -> int:
    """Measure, print one line each, and return 1 if one failed or went over its bounds."""
    with tempfile.TemporaryDirectory() as scratch:
        output = str(Path(scratch) / "model.gguf")
        convert = [
            "-m",
            "impl",
            "convert",
            str(checkpoint),
            output,
            "--recipe",
            "q8_0",
            "--metadata",
            "minimal",
        ]
        claims = ["-m", "pytest", "-q", "-n", "2", "--backend=cpu", "--backend=cpu-dequantized"]
        benchmarks = (
            Benchmark("convert smollm2 to q8_0", convert, seconds=3, peak_bytes=1e9),
            Benchmark("all claims on the CPU", [*claims, f"--cache={cache}"], seconds=240, peak_bytes=4e9),
        )
        first = _measure(benchmarks[0].command)
        print(f"first conversion, its kernels compiled where they are not yet: {first.seconds:.1f} s")
        return max(_report(benchmark, _measure(benchmark.command)) for benchmark in benchmarks)


def _report(benchmark: Benchmark, cost: Cost) -> int:
    within = cost.seconds <= benchmark.seconds and cost.peak_bytes <= benchmark.peak_bytes
    verdict = "failed" if cost.returncode else "within bounds" if within else "over its bounds"
    print(
        f"{benchmark.name}: {cost.seconds:.1f} s (at most {benchmark.seconds:.0f}), "
        f"{cost.peak_bytes / 1e9:.2f} GB (at most {benchmark.peak_bytes / 1e9:.0f}): {verdict}"
    )
    return 0 if verdict == "within bounds" else 1


def _measure(command: Sequence[str]) -> Cost:
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, _memory(process.pid))
            time.sleep(INTERVAL)
    return Cost(time.perf_counter() - started, peak, process.returncode)


def _memory(pid: int) -> int:
    """Proportional memory of a process and all its children; 0 for one that has just ended."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return sum(_proportional(each) for each in (parent, *parent.children(recursive=True)))
    return 0


def _proportional(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        memory = process.memory_full_info()
        return getattr(memory, "pss", memory.uss)
    return 0
