"""An implementation that crashes, exits, hangs or leaks costs the call that did it, and the run goes on."""

import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from impl.conversation import THROUGH_THE_PIPE
from impl.errors import FellOver, InputError
from impl.isolated import Isolated
from impl.process import Limits
from impl.protocol import offered
from impl.reference.blocks import dequantize, quantize
from suite.kit.artifacts import ArtifactStore
from suite.kit.smoke import smoke_lines

ROOT = Path(__file__).parents[2]
MIB = 2**20

MODULE = """
import ctypes, os, sys, time
import numpy as np
from impl.errors import InputError
from impl.reference.blocks import dequantize, quantize


class Model:
    def __init__(self, scale, alive):
        self.scale, self.alive = scale, alive
        alive.append(scale)

    def __del__(self):
        self.alive.remove(self.scale)

    def logits(self, tokens, rows=slice(None)):
        if tokens == [13]:
            ctypes.string_at(0)
        return np.full((len(tokens), 4), self.scale, np.float32)[rows]


class Misbehaving:
    name = "misbehaving"
    version = "1"
    types = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "f16", "bf16")
    backends = {"cpu": "dequantized"}
    default_backends = ()
    deviations = {}

    def __init__(self):
        self.alive = []

    def quantize(self, weight, type, importance=None):
        assert weight.__class__ is np.ndarray
        print("garbage on standard output", flush=True)
        os.write(1, b"\\xff\\x00 more of it\\n")
        print("garbage on standard error", file=sys.stderr)
        match type:
            case "q4_0":
                ctypes.string_at(0)
            case "q4_1":
                sys.stderr.write("about to leave\\n")
                sys.stderr.flush()
                os._exit(0)
            case "q5_0":
                time.sleep(3600)
            case "q5_1":
                leak = []
                while True:
                    leak.append(bytearray(os.urandom(1 << 20)) * 16)
            case "f16":
                sys.exit(3)
            case "bf16":
                raise MemoryError("no more")
        return quantize(weight, type, importance)

    def dequantize(self, blocks, type):
        if type == "q4_0":
            raise LookupError("two\\nlines")
        if type == "q4_1":
            raise InputError("refused")
        if type == "q5_0":
            return lambda: "no array"
        return dequantize(blocks, type)

    def load(self, path, backend):
        return Model(float(path.name) if path.name != "alive" else len(self.alive), self.alive)


class SegfaultsAlways:
    name = "always"
    version = "1"
    types = ("q8_0",)

    def quantize(self, weight, type, importance=None):
        ctypes.string_at(0)


class FallsOverAsItIsMade:
    name = "never"
    version = "1"

    def __init__(self):
        os.abort()
"""

ENDINGS = {
    "q4_0": "killed by SIGSEGV",
    "q4_1": r"exit code 0: .*about to leave",
    "q5_1": "uses more than 600 MiB, its memory limit",
    "f16": "exit code 3",
    "bf16": r"exit code 1: .*MemoryError: no more",
}
"""How the process ends that is asked to quantize to each type."""

WEIGHT = np.random.default_rng(7).standard_normal((4, 64), dtype=np.float32)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "ill_behaved.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return "ill_behaved"


@pytest.fixture
def misbehaving(module: str) -> Isolated:
    return Isolated(f"{module}:Misbehaving", Limits(seconds=100, memory=600 * MIB))


def test_it_offers_what_the_implementation_offers(misbehaving: Isolated) -> None:
    assert offered(misbehaving) == ("quantizer", "dequantizer", "engine")
    assert (misbehaving.name, misbehaving.types[:2]) == ("misbehaving", ("q8_0", "q4_0"))
    assert not hasattr(misbehaving, "recipes")


@pytest.mark.parametrize("type", ENDINGS)
def test_a_call_that_ends_the_process_says_how_and_the_next_call_works(misbehaving: Isolated, type: str) -> None:
    with pytest.raises(FellOver, match=ENDINGS[type]) as error:
        misbehaving.quantize(WEIGHT, type)
    assert f"misbehaving: quantize(float32[4, 64], '{type}'): " in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert np.array_equal(misbehaving.quantize(WEIGHT, "q8_0"), quantize(WEIGHT, "q8_0"))


def test_falling_over_never_passes_for_a_refusal() -> None:
    assert not issubclass(FellOver, Exception)


def test_a_process_that_hangs_is_gone_at_its_time_limit(module: str) -> None:
    impatient = Isolated(f"{module}:Misbehaving", Limits(seconds=2))
    start = time.monotonic()
    with pytest.raises(FellOver, match=r"'q5_0'\): still running after 2 s, its time limit: garbage"):
        impatient.quantize(WEIGHT, "q5_0")
    # The start of the process comes on top.
    assert time.monotonic() - start < 30
    assert np.array_equal(impatient.quantize(WEIGHT, "q8_0"), quantize(WEIGHT, "q8_0"))


def test_what_it_prints_reaches_no_terminal(misbehaving: Isolated, capfd: pytest.CaptureFixture) -> None:
    misbehaving.quantize(WEIGHT, "q8_0")
    assert capfd.readouterr() == ("", "")


def test_what_it_raises_is_raised_with_the_same_name_and_message(misbehaving: Isolated) -> None:
    blocks = quantize(WEIGHT, "q4_0")
    with pytest.raises(Exception, match="two\nlines") as error:
        misbehaving.dequantize(blocks, "q4_0")
    assert type(error.value).__name__ == "LookupError"
    assert "in dequantize" in str(error.value.__cause__)
    with pytest.raises(InputError, match=r"^refused$"):
        misbehaving.dequantize(blocks, "q4_1")


def test_a_reply_that_cannot_be_handed_over_is_no_refusal(misbehaving: Isolated) -> None:
    with pytest.raises(FellOver, match=r"exit code 1: .*pickle"):
        misbehaving.dequantize(quantize(WEIGHT, "q5_0"), "q5_0")


@pytest.mark.parametrize("rows", [1, THROUGH_THE_PIPE // 64])
def test_arrays_of_any_size_and_kind_arrive_as_they_are(misbehaving: Isolated, rows: int, tmp_path: Path) -> None:
    strided = np.random.default_rng(1).standard_normal((64, rows), dtype=np.float32).T
    mapped = np.memmap(tmp_path / "weight", np.float32, "w+", shape=strided.shape)
    mapped[:] = strided
    for weight in (strided, mapped):
        blocks = misbehaving.quantize(weight, "q8_0")
        assert np.array_equal(blocks, quantize(np.ascontiguousarray(weight), "q8_0"))
        assert np.array_equal(misbehaving.dequantize(blocks, "q8_0"), dequantize(blocks, "q8_0"))
        blocks[0, 0] ^= 1


def test_models_live_in_the_process_until_their_handle_goes(misbehaving: Isolated) -> None:
    first, second = (misbehaving.load(Path(name), "cpu") for name in ("1", "2"))
    assert first.logits([5, 6]).tolist() == [[1] * 4] * 2
    assert second.logits([5, 6], rows=slice(1, None)).tolist() == [[2] * 4]
    assert "rows" in inspect.signature(second.logits).parameters
    assert not hasattr(first, "generate")
    del first
    gc.collect()
    assert misbehaving.load(Path("alive"), "cpu").logits([0])[0, 0] == 1


def test_a_model_whose_process_has_ended_says_so(misbehaving: Isolated) -> None:
    model = misbehaving.load(Path("1"), "cpu")
    with pytest.raises(FellOver, match="killed by SIGSEGV"):
        model.logits([13])
    with pytest.raises(FellOver, match="the model's process has ended"):
        model.logits([1])
    assert misbehaving.load(Path("3"), "cpu").logits([1])[0, 0] == 3


def test_one_that_falls_over_as_it_is_made_is_refused_in_one_line(module: str) -> None:
    with pytest.raises(FellOver, match=r"ill_behaved:FallsOverAsItIsMade: at its start: killed by SIGABRT"):
        Isolated(f"{module}:FallsOverAsItIsMade")
    with pytest.raises(InputError, match="has no attribute 'Absent'"):
        Isolated(f"{module}:Absent")


def test_a_file_whose_making_fell_over_is_not_made_again(tmp_path: Path) -> None:
    tried: list[Path] = []

    def fall_over(output: Path) -> None:
        tried.append(output)
        raise FellOver("mine: convert: still running after 300 s, its time limit")

    for _ in range(2):
        with pytest.raises(FellOver, match=r"^mine: convert: still running after 300 s, its time limit$"):
            ArtifactStore(tmp_path).build("file", {}, fall_over)
    assert len(tried) == 1


def test_what_does_not_work_at_all_is_said_first_with_a_command_to_paste(module: str, tmp_path: Path) -> None:
    spec = f"{module}:SegfaultsAlways"
    said, command = smoke_lines(spec, Isolated(spec))
    call = "quantize(float32[2, 256], 'q8_0', float32[256])"
    assert said.startswith(f"{spec} does not work: always: {call}: killed by SIGSEGV")
    pasted = command.removeprefix("  to see it alone: ").replace("python", sys.executable)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    run = subprocess.run(pasted, shell=True, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert run.returncode in (-signal.SIGSEGV, 128 + signal.SIGSEGV), run.stderr.decode()
    assert not list(smoke_lines(f"{module}:Misbehaving", Isolated(f"{module}:Misbehaving")))


EXPECTED = {
    ("misbehaving", "q8_0"): {"pass"},
    ("misbehaving", "q4_0"): {"error"},
    ("misbehaving", "q4_1"): {"error"},
    ("misbehaving", "q5_0"): {"error"},
    ("misbehaving", "tq1_0"): {"not offered"},
    ("reference", "q8_0"): {"pass"},
    ("reference", "q4_0"): {"pass"},
    ("reference", "q5_0"): {"pass"},
}
"""By implementation and type, the outcomes of a claim that takes any refusal for an answer."""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_the_run_goes_on_and_every_other_claim_gets_its_verdict(
    module: str, workers: tuple[str, ...], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    types = " or ".join(sorted({type for _, type in EXPECTED}))
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, "suite/test_refusals.py"),
        *("-k", f"test_no_weight_becomes_infinite and ({types})", "--time-limit=3", "--checkpoint=tiny"),
        *(f"--impl={module}:Misbehaving", "--impl=reference", f"-opythonpath={tmp_path}"),
        *(f"--cache={pytestconfig.getoption('--cache')}", f"--report={tmp_path}"),
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout[-4000:] + run.stderr[-4000:]
    # Errors quote what was printed; nothing else may.
    assert "\ngarbage" not in run.stdout + run.stderr
    found: dict[tuple[str, str], set[str]] = {}
    for result in json.loads((tmp_path / "report.json").read_text())["results"]:
        type = result["case"].split("-")[0]
        found.setdefault((result["implementation"], type), set()).add(result["outcome"])
    assert {case: found.get(case) for case in EXPECTED} == EXPECTED
