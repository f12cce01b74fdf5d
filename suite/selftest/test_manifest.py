"""A program in any language, run as its manifest says; what a program does wrong is told from what it refuses."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import psutil
import pytest

from impl.catalogue import resolve
from impl.errors import FellOver, InputError
from impl.protocol import offered, takes_importance
from impl.reference.blocks import dequantize, quantize
from suite.kit.independent import llama_quantize_program
from suite.kit.tensors import compare_files, open_gguf

ROOT = Path(__file__).parents[2]
WEIGHT = np.random.default_rng(3).standard_normal((4, 64), dtype=np.float32)

PROGRAM = """
import os, sys, time
from pathlib import Path
import numpy as np

deed, input, output, *rest = sys.argv[1:]

def blocks():
    x = np.fromfile(input, "<f4").reshape(-1, 32)
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    codes = np.trunc(x * (np.float32(1) / scale) + np.copysign(np.float32(0.5), x)).astype(np.int8)
    return np.hstack([scale.astype("<f2").view(np.uint8), codes.view(np.uint8)]).tobytes()

match deed:
    case "right":
        Path(output).write_bytes(blocks())
    case "garbage on stdout":
        os.write(1, b"\\xff\\x00\\x1b[2J garbage " * 100_000)
        Path(output).write_bytes(blocks())
    case "wrong length":
        Path(output).write_bytes(blocks() + b"?")
        print("all is well", flush=True)
    case "half a file":
        Path(output).write_bytes(blocks()[: 2 * 68])
    case "no file":
        pass
    case "exit 3":
        print("reading", flush=True)
        print("row 2, column 5 is NaN", file=sys.stderr)
        sys.exit(3)
    case "silence":
        time.sleep(3600)
    case "endless output":
        while True:
            print("y" * 1000)
    case "leak":
        kept = []
        while True:
            kept.append(bytearray(os.urandom(1 << 20)) * 16)
    case "abort":
        os.abort()
    case "child that stays":
        child = os.fork()
        if child == 0:
            time.sleep(3600)
        Path("child").write_text(str(child))
        Path(output).write_bytes(blocks())
    case "arguments":
        raise SystemExit(repr(rest))
    case "logits":
        tokens = [int(token) for token in rest[0].split(",")]
        np.array([[token, 1, 2] for token in tokens], "<f4").tofile(output)
    case "half the logits":
        rows = len(rest[0].split(","))
        np.ones(3 * rows if rows == 1 else 2 * rows, "<f4").tofile(output)
    case "generate":
        np.arange(int(rest[0]), dtype="<i4").tofile(output)
"""


def manifest(folder: Path, **changes: object) -> Path:
    """Write the program and a manifest for it; None drops a key."""
    (folder / "program.py").write_text(PROGRAM)
    content = {
        "name": "written-in-anything",
        "version": "0.1",
        "types": ["q8_0"],
        "commands": {"quantize": [sys.executable, "program.py", "right", "{input}", "{output}"]},
    }
    content = {key: value for key, value in {**content, **changes}.items() if value is not None}
    path = folder / "program.toml"
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in content.items()))
    return path


def toml(value: object) -> str:
    """A value as TOML, which is JSON but for its tables."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def doing(folder: Path, deed: str, *arguments: str | list[str], **changes: object) -> object:
    """The implementation whose program does ``deed`` when it is asked to quantize."""
    command = [sys.executable, "program.py", deed, "{input}", "{output}", *arguments]
    return resolve(str(manifest(folder, commands={"quantize": command}, **changes)))


def test_a_program_quantizes_as_any_implementation(tmp_path: Path) -> None:
    program = resolve(str(manifest(tmp_path)))
    assert offered(program) == ("quantizer",)
    assert (program.name, program.version, program.types) == ("written-in-anything", "0.1", ("q8_0",))
    assert np.array_equal(program.quantize(WEIGHT, "q8_0"), quantize(WEIGHT, "q8_0"))
    strided = np.asfortranarray(WEIGHT)
    assert np.array_equal(program.quantize(strided, "q8_0"), quantize(WEIGHT, "q8_0"))


FALLS_OVER: Mapping[str, str] = {
    "wrong length": r"quantize: wrote 273 bytes, expected 68 bytes for each of 4 rows; exit code 0: all is well$",
    "half a file": r"quantize: wrote 136 bytes, expected 68 bytes for each of 4 rows; exit code 0$",
    "no file": r"quantize: wrote 0 bytes, expected 68 bytes for each of 4 rows; exit code 0$",
    "silence": r"quantize: still running after 2 s, its time limit$",
    "endless output": r"quantize: still running after 2 s, its time limit: y+( / y+)*$",
    "leak": r"quantize: uses more than 300 MiB, its memory limit$",
    "abort": r"quantize: killed by SIGABRT$",
}
"""What a program does, and the end of the error."""


@pytest.mark.parametrize("deed", FALLS_OVER)
def test_a_program_that_breaks_its_word_falls_over(tmp_path: Path, deed: str, capfd: pytest.CaptureFixture) -> None:
    hangs = "its time limit" in FALLS_OVER[deed]
    program = doing(tmp_path, deed, time_limit_seconds=2 if hangs else 100, memory_limit_mib=300)
    with pytest.raises(FellOver, match=r"^written-in-anything: " + FALLS_OVER[deed]) as error:
        program.quantize(WEIGHT, "q8_0")
    assert len(str(error.value)) < 600
    assert capfd.readouterr() == ("", "")


def test_an_exit_code_is_a_refusal_and_its_last_lines_are_the_message(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        doing(tmp_path, "exit 3").quantize(WEIGHT, "q8_0")
    assert str(error.value) == "written-in-anything: quantize: exit code 3: reading / row 2, column 5 is NaN"
    assert "program.py 'exit 3'" in str(error.value.__cause__)


def test_what_a_program_prints_neither_shows_nor_matters(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    program = doing(tmp_path, "garbage on stdout")
    assert np.array_equal(program.quantize(WEIGHT, "q8_0"), quantize(WEIGHT, "q8_0"))
    assert capfd.readouterr() == ("", "")


def test_what_a_program_leaves_running_is_ended(tmp_path: Path) -> None:
    program = doing(tmp_path, "child that stays", time_limit_seconds=60)
    assert np.array_equal(program.quantize(WEIGHT, "q8_0"), quantize(WEIGHT, "q8_0"))
    child = int((tmp_path / "child").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    program = resolve(str(manifest(tmp_path, commands={"quantize": ["./absent", "{input}", "{output}"]})))
    with pytest.raises(FellOver, match=r"^written-in-anything: quantize: \./absent: cannot be started: No such file"):
        program.quantize(WEIGHT, "q8_0")


def test_arguments_reach_the_program_as_they_are_and_no_shell_sees_them(tmp_path: Path) -> None:
    types = {"q8_0": "$(touch seen) *; 'q8'"}
    optional = ["--importance", "{importance}"]
    program = doing(tmp_path, "arguments", "{type}", "{rows}x{columns}", "{{}}", optional, types=types)
    with pytest.raises(InputError) as error:
        program.quantize(WEIGHT, "q8_0")
    assert str(error.value).endswith(repr([types["q8_0"], "4x64", "{}"]))
    with pytest.raises(InputError, match=r"'--importance', '/.*importance\.f32'\]$"):
        program.quantize(WEIGHT, "q8_0", np.ones(64, np.float32))
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize("argument", [[], [["--importance", "{importance}"]]], ids=["without", "with"])
def test_importance_is_taken_where_the_template_takes_it(argument: list, tmp_path: Path) -> None:
    commands = {
        "quantize": ["program", "{input}", "{output}", "{type}", *argument],
        "convert": ["program", "{f32}", "{output}", "{recipe}", *argument],
    }
    program = resolve(str(manifest(tmp_path, commands=commands, recipes=["q8_0"])))
    assert [takes_importance(program.quantize), takes_importance(program.convert)] == [bool(argument)] * 2


def test_a_type_that_is_not_offered_is_refused_without_running(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'q4_0' is not among its types: q8_0"):
        doing(tmp_path, "silence").quantize(WEIGHT, "q4_0")


def engine(folder: Path, logits: str, **commands: list[str]) -> object:
    start = [sys.executable, "program.py"]
    command = [*start, logits, "{file}", "{output}", "{tokens}"]
    changes = {"types": None, "backends": {"cpu": "dequantized"}}
    return resolve(str(manifest(folder, commands={"logits": command, **commands}, **changes)))


def test_a_program_is_an_engine_and_generates_only_where_it_is_said_how(tmp_path: Path) -> None:
    program = engine(tmp_path, "logits")
    assert offered(program) == ("engine",)
    model = program.load(tmp_path / "model.gguf", "cpu")
    assert model.logits([4, 5]).tolist() == [[4, 1, 2], [5, 1, 2]]
    assert not hasattr(model, "generate")
    generate = [sys.executable, "program.py", "generate", "{file}", "{output}", "{count}", "{tokens}"]
    assert engine(tmp_path, "logits", generate=generate).load(tmp_path, "cpu").generate([1], 3) == [0, 1, 2]


def test_a_refusal_to_load_shows_when_a_file_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"logits: exit code 3: .*NaN"):
        engine(tmp_path, "exit 3").load(tmp_path / "model.gguf", "cpu")


def test_half_the_logits_are_noticed(tmp_path: Path) -> None:
    model = engine(tmp_path, "half the logits").load(tmp_path / "model.gguf", "cpu")
    with pytest.raises(FellOver, match=r"logits: wrote 16 bytes, expected 12 bytes for each of 2 rows"):
        model.logits([1, 2])


REFUSED: Mapping[str, tuple[Mapping[str, object], str]] = {
    "no name": ({"name": None}, "name: missing, expected a string"),
    "a number for a version": ({"version": 1}, "version: 1, expected a string"),
    "an unknown key": ({"type": ["q8_0"]}, "type: unknown key"),
    "no commands": ({"commands": None}, "commands: missing, expected a table of quantize"),
    "an unknown command": ({"commands": {"quantise": ["x"]}}, "commands.quantise: unknown key"),
    "a command line for a list": ({"commands": {"quantize": "x {input}"}}, "commands.quantize: expected a list"),
    "an unknown placeholder": (
        {"commands": {"quantize": ["x", "{input}", "{output}", "{kind}"]}},
        "commands.quantize: {kind} is unknown, expected {columns}",
    ),
    "no output": ({"commands": {"quantize": ["x", "{input}"]}}, "commands.quantize: {output} is missing"),
    "a lone brace": ({"commands": {"quantize": ["x", "{input}", "{output}", "{"]}}, "commands.quantize: "),
    "importance that is always given": (
        {"commands": {"quantize": ["x", "{input}", "{output}", "{importance}"]}},
        "commands.quantize: {importance} has no value in some calls",
    ),
    "no source": (
        {"commands": {"convert": ["x", "{output}"]}, "recipes": ["q8_0"]},
        "commands.convert: one of {checkpoint}, {f32} is missing",
    ),
    "no types": ({"types": None}, "types: missing, expected because of commands.quantize"),
    "an unknown arithmetic": ({"backends": {"cpu": "fast"}}, "backends.cpu: 'fast', expected dequantized or"),
    "unknown metadata": ({"metadata": "some"}, "metadata: 'some', expected minimal or full"),
    "no time": ({"time_limit_seconds": 0}, "time_limit_seconds: 0, expected a positive number"),
    "deviations without reason": ({"deviations": {"rope.neox": True}}, "deviations: "),
}
"""What is changed in a manifest, and the start of the refusal after its path."""


@pytest.mark.parametrize("fault", REFUSED)
def test_a_mistake_in_a_manifest_is_refused_by_its_key(tmp_path: Path, fault: str) -> None:
    changes, refusal = REFUSED[fault]
    path = manifest(tmp_path, **changes)
    with pytest.raises(InputError) as error:
        resolve(str(path))
    assert str(error.value).startswith(f"{path}: {refusal}")
    assert len(str(error.value).splitlines()) == 1


def test_a_manifest_that_is_absent_or_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(InputError, match=r"absent\.toml: cannot be read: No such file"):
        resolve(str(tmp_path / "absent.toml"))
    with pytest.raises(InputError, match=r"bad\.toml: no TOML: "):
        resolve(str(tmp_path / "bad.toml"))


@pytest.fixture
def our_own_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """``python -m impl`` by a manifest."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    start = [sys.executable, "-m", "impl"]
    matrix = ["{input}", "{output}", "--type", "{type}", "--rows", "{rows}"]
    convert = ["{checkpoint}", "{output}", "--recipe", "{recipe}", "--metadata", "{metadata}"]
    commands = {
        "quantize": [*start, "quantize", *matrix, ["--importance", "{importance}"]],
        "dequantize": [*start, "dequantize", *matrix],
        "convert": [*start, "convert", *convert, ["--importance", "{importance}"]],
        "logits": [*start, "logits", "{file}", "--tokens", "{tokens}", "--backend", "{backend}", "--raw", "{output}"],
    }
    backends = {"cpu": "quantized-activations"}
    changes = {"types": ["q8_0", "q4_k"], "recipes": ["q8_0"], "backends": backends, "commands": commands}
    return resolve(str(manifest(tmp_path, **changes)))


def test_our_own_program_quantizes_and_dequantizes_as_its_library(our_own_program: object) -> None:
    weight = np.random.default_rng(5).standard_normal((3, 256), dtype=np.float32)
    importance = np.random.default_rng(6).random(256, dtype=np.float32)
    blocks = our_own_program.quantize(weight, "q4_k", importance)
    assert np.array_equal(blocks, quantize(weight, "q4_k", importance))
    assert not np.array_equal(blocks, quantize(weight, "q4_k"))
    assert np.array_equal(our_own_program.dequantize(blocks, "q4_k"), dequantize(blocks, "q4_k"))
    weight[1, 7] = np.nan
    with pytest.raises(InputError, match=r"exit code 2: error: weight: nan in row 1, column 7"):
        our_own_program.quantize(weight, "q4_k")


def test_our_own_program_converts_and_runs_as_its_library(
    our_own_program: object, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    reference = resolve("reference")
    own, expected = tmp_path / "own.gguf", tmp_path / "expected.gguf"
    our_own_program.convert(tiny_checkpoint, own, "q8_0", "full")
    reference.convert(tiny_checkpoint, expected, "q8_0", "full")
    assert own.read_bytes() == expected.read_bytes()
    logits = our_own_program.load(own, "cpu").logits([1, 2, 3])
    assert np.abs(logits - reference.load(own, "cpu").logits([1, 2, 3])).max() < 1e-3
    with pytest.raises(InputError, match=r"config\.json"):
        our_own_program.convert(tmp_path, tmp_path / "none.gguf", "q8_0")
    assert not (tmp_path / "none.gguf").exists()


def test_llama_quantize_converts_by_a_manifest(tiny_checkpoint: Path, tmp_path: Path) -> None:
    command = [str(llama_quantize_program()), ["--imatrix", "{importance}"], "{f32}", "{output}", "{recipe}", "2"]
    changes = {"types": None, "recipes": {"q8_0": "Q8_0"}, "commands": {"convert": command}}
    program = resolve(str(manifest(tmp_path, **changes)))
    own, expected = tmp_path / "own.gguf", tmp_path / "expected.gguf"
    program.convert(tiny_checkpoint, own, "q8_0")
    resolve("reference").convert(tiny_checkpoint, expected, "q8_0")
    comparison = compare_files(own, expected)
    assert len(comparison.identical) == len(open_gguf(own).tensors)
    with pytest.raises(InputError, match="'q4_0' is not among its recipes: q8_0"):
        program.convert(tiny_checkpoint, own, "q4_0")


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_run_gives_each_claim_about_a_program_its_verdict(
    workers: tuple[str, ...], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    folders = {deed: tmp_path / deed.replace(" ", "-") for deed in ("right", "exit 3", "wrong length", "silence")}
    for deed, folder in folders.items():
        folder.mkdir()
        command = [sys.executable, "program.py", deed, "{input}", "{output}"]
        manifest(folder, name=folder.name, commands={"quantize": command})
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, "suite/test_refusals.py"),
            *("-k", "infinite and q8_0", "--time-limit=3", "--checkpoint=tiny", f"--report={tmp_path}"),
            f"--cache={pytestconfig.getoption('--cache')}",
            *(f"--impl={folder / 'program.toml'}" for folder in folders.values()),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout[-4000:] + run.stderr[-4000:]
    found: dict[str, set[str]] = {}
    for result in json.loads((tmp_path / "report.json").read_text())["results"]:
        found.setdefault(result["implementation"], set()).add(result["outcome"])
    # Too large a weight may be refused, and an exit code does; the others are no answer.
    assert found == {"right": {"fail"}, "exit-3": {"pass"}, "wrong-length": {"error"}, "silence": {"error"}}


README = (ROOT / "README.md").read_text()
EXAMPLES: Mapping[str, str] = {
    "program": r"program: 3 pass, 0 fail",
    "llama-quantize": r"llama-quantize: 3 pass, 0 fail",
}
"""The manifests in README, and what the command below each ends with."""


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_in_readme_run(example: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The text of the block that begins ``# NAME.toml``, by the options of the command with ``--impl=NAME.toml``."""
    (text,) = re.findall(rf"```toml\n# {example}\.toml\n(.*?)```", README, re.DOTALL)
    (options,) = re.findall(rf"^\$ pytest (--impl={example}\.toml .*)$", README, re.MULTILINE)
    (tmp_path / f"{example}.toml").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *shlex.split(options)]
    place = [f"--rootdir={ROOT}", f"-c{ROOT / 'pyproject.toml'}", f"--cache={pytestconfig.getoption('--cache')}"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    run = subprocess.run(
        [*command, *place, str(ROOT / "suite")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    assert re.search(EXAMPLES[example], run.stdout), run.stdout[-4000:]
