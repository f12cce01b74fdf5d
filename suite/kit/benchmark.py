"""Time and peak memory of what a user waits for, each in a process of its own."""

import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

INTERVAL = 1.0
"""Seconds between two looks at the processes' memory, each of which holds them up."""
SHORT = 0.02
"""The same for what takes a second."""


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
    """A command with its bounds; without bounds it only stands beside another."""

    name: str
    command: Sequence[str]
    seconds: float = math.inf
    peak_bytes: float = math.inf
    interval: float = INTERVAL
    program: str = sys.executable


def run_benchmark(checkpoint: Path, cache: Path) -> int:
    """Measure, print one line each, and return 1 if one failed or went over its bounds."""
    with tempfile.TemporaryDirectory() as scratch:
        conversions = [_conversion_benchmark(checkpoint, Path(scratch), recipe) for recipe in ("q8_0", "q4_k_m")]
        claims = ["-m", "pytest", "-q", "-n", "2", "--backend=cpu", "--backend=cpu-dequantized", f"--cache={cache}"]
        whole = Benchmark("all claims on the CPU", claims, seconds=240, peak_bytes=4e9)
        for conversion in conversions:
            first = _measure(conversion)
            print(f"{conversion.name}, its kernels compiled where they are not yet: {first.seconds:.1f} s")
        audits = _audit_benchmarks(checkpoint, Path(scratch))
        return max(_report(benchmark, _measure(benchmark)) for benchmark in (*audits, *conversions, whole))


def _conversion_benchmark(checkpoint: Path, scratch: Path, recipe: str) -> Benchmark:
    output = str(scratch / f"{recipe}.gguf")
    convert = ["-m", "impl", "convert", str(checkpoint), output, "--recipe", recipe, "--metadata", "minimal"]
    return Benchmark(f"convert smollm2 to {recipe}", convert, seconds=3, peak_bytes=1e9, interval=SHORT)


def _audit_benchmarks(checkpoint: Path, scratch: Path) -> Iterator[Benchmark]:
    """The audit of a file with all its metadata, beside what a user may have taken for one."""
    file, copy = str(scratch / "full.gguf"), str(scratch / "copy.gguf")
    convert = [sys.executable, "-m", "impl", "convert", str(checkpoint), file, "--recipe", "q8_0"]
    subprocess.run(convert, check=True, stdout=subprocess.DEVNULL)
    shutil.copyfile(file, copy)
    audit = ["-m", "suite", "audit", file, "--source", str(checkpoint)]
    yield Benchmark("audit of the q8_0 file", audit, seconds=5, peak_bytes=500e6, interval=SHORT)
    yield Benchmark("audit --quick", [*audit, "--quick"], seconds=0.5, peak_bytes=60e6, interval=SHORT)
    yield Benchmark("beside it, gguf-dump", ["-m", "gguf.scripts.gguf_dump", file], interval=SHORT)
    yield Benchmark("beside it, cmp with a copy", [file, copy], interval=SHORT, program="cmp")


def _report(benchmark: Benchmark, cost: Cost) -> int:
    within = cost.seconds <= benchmark.seconds and cost.peak_bytes <= benchmark.peak_bytes
    verdict = "failed" if cost.returncode else "within bounds" if within else "over its bounds"
    took, held = f"{cost.seconds:.2f} s", f"{cost.peak_bytes / 1e9:.2f} GB"
    if benchmark.seconds < math.inf:
        took, held = f"{took} (at most {benchmark.seconds:g})", f"{held} (at most {benchmark.peak_bytes / 1e9:g})"
    print(f"{benchmark.name}: {took}, {held}: {verdict}")
    return 0 if verdict == "within bounds" else 1


def _measure(benchmark: Benchmark) -> Cost:
    started = time.perf_counter()
    with subprocess.Popen([benchmark.program, *benchmark.command], stdout=subprocess.DEVNULL) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, _memory(process.pid))
            time.sleep(benchmark.interval)
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
