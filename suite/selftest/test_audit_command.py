"""The audit from the command line and from pytest: formats, exit codes, unusable checkpoints."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from impl.catalogue import resolve
from suite.__main__ import main
from suite.audit.audit import audit_file
from suite.audit.rules import RULES, Severity
from suite.kit import surgery
from suite.selftest.small_checkpoint import write_checkpoint

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def correct(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("audit") / "correct.gguf"
    resolve("reference").convert(tiny_checkpoint, output, "q8_0", "full")
    return output


@pytest.fixture(scope="module")
def faulty(correct: Path) -> Path:
    output = correct.with_name("faulty.gguf")
    surgery.without_permutation(correct, output)
    return output


def test_json_holds_coverage_every_tensor_and_every_rule(
    faulty: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(faulty), "--source", str(tiny_checkpoint), "--format", "json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["schema_version"] == 1 and record["clean"] is False
    assert record["coverage"]["compared"] == record["coverage"]["expected"] == len(record["tensors"]) == 21
    (finding,) = record["findings"]
    assert finding["rule"] == "values.permutation" and len(finding["subjects"]) == 4
    assert [rule["id"] for rule in record["rules"]] == list(RULES)
    assert [rule["id"] for rule in record["rules"] if not rule["kept"]] == ["values.permutation"]


def test_sarif_points_at_rules_and_bytes(faulty: Path, correct: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    damaged, report = tmp_path / "damaged.gguf", tmp_path / "report.sarif"
    surgery.set_bytes(correct, damaged, "blk.1.ffn_up.weight", 9, b"\x55")
    options = ["--source", str(tiny_checkpoint), "--format", "sarif", "--output", str(report)]
    assert main(["audit", str(damaged), *options]) == 1
    (run,) = json.loads(report.read_text())["runs"]
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert result["ruleId"] == rule["id"] in ("values.damaged", "values.stray")
    assert result["level"] == rule["defaultConfiguration"]["level"]
    (location,) = result["locations"]
    place = location["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "damaged.gguf"
    assert damaged.read_bytes()[place["region"]["byteOffset"]] == 0x55
    assert location["logicalLocations"] == [{"name": "blk.1.ffn_up.weight", "kind": "values"}]


@pytest.mark.parametrize("format", ["text", "json", "sarif"])
def test_the_same_file_gives_the_same_report(
    format: str, faulty: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", str(faulty), "--source", str(tiny_checkpoint), "--format", format]
    reports = {main(command) and capsys.readouterr().out for _ in range(2)}
    assert len(reports) == 1


def test_quick_looks_at_no_value_and_says_so(
    faulty: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(faulty), "--source", str(tiny_checkpoint), "--quick"]) == 0
    assert "headers alone: the values of 21 tensors were not looked at" in capsys.readouterr().out
    assert not audit_file(faulty, tiny_checkpoint, quick=True).comparisons


def test_quick_imports_nothing_heavy(correct: Path, tiny_checkpoint: Path) -> None:
    code = (
        "import sys; from suite.__main__ import main; main(sys.argv[1:]); "
        "print(*{'torch', 'transformers', 'numba', 'gguf', 'libggml', 'tokenizers'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, "audit", str(correct), "--source", str(tiny_checkpoint), "--quick"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == ""


def test_a_note_breaks_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint", {"head_dim": None, "attention_bias": False})
    resolve("reference").convert(folder, tmp_path / "file.gguf", "q8_0", "minimal")
    assert main(["audit", str(tmp_path / "file.gguf"), "--source", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "note     metadata.minimal" in printed and "clean: 0 errors, 0 warnings, 1 note\n" in printed


def _without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def _with_config(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return edit


def _cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _garbage(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)


UNUSABLE = {
    "no config": (_without_config, "no config.json there"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no safetensors there"),
    "cut weights": (_cut, "lies beyond the end of the file"),
    "garbage weights": (_garbage, "not a whole safetensors file"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "not JSON"),
    "another model": (_with_config(model_type="gpt2"), "model_type is not one of llama, mistral"),
    "no heads": (_with_config(num_attention_heads=None), "num_attention_heads is None, expected a positive number"),
    "more layers": (_with_config(num_hidden_layers=3), "no tensor for blk.2.attn_norm.weight"),
    "fewer layers": (_with_config(num_hidden_layers=1), "is unexpected in the model of config.json"),
    "another shape": (_with_config(intermediate_size=100), "expected [100, 64] by config.json"),
    "unknown scaling": (_with_config(rope_scaling={"rope_type": "yarn"}), "rope_type is not one of"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_checkpoint_is_one_line_and_exit_code_2(
    case: str, correct: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    breaking, words = UNUSABLE[case]
    breaking(folder)
    assert main(["audit", str(correct), "--source", str(folder)]) == 2
    printed = capsys.readouterr()
    assert words in printed.err and printed.err.count("\n") == 1 and printed.out == ""


def test_an_output_that_cannot_be_written_is_one_line(
    correct: Path, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--source", str(tiny_checkpoint), "--output", str(tmp_path / "absent" / "report")]
    assert main(["audit", str(correct), *options]) == 2
    assert "cannot be written" in capsys.readouterr().err


def _pytest(*options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_pytest_runs_each_rule_and_nothing_else(faulty: Path, tiny_checkpoint: Path) -> None:
    run = _pytest(f"--gguf={faulty}", f"--source={tiny_checkpoint}", "-n", "0")
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout
    assert f"1 failed, {len(RULES) - 1} passed" in run.stdout
    assert "test_the_file_keeps[values.permutation]" in run.stdout
    assert "21 of 21 tensors compared" in run.stdout and "the 4 q/k tensors match once permuted" in run.stdout


def test_pytest_passes_a_correct_file_on_workers_too(correct: Path, tiny_checkpoint: Path) -> None:
    run = _pytest(f"--gguf={correct}", f"--source={tiny_checkpoint}", "-n", "2")
    assert run.returncode == pytest.ExitCode.OK, run.stdout
    assert f"{len(RULES)} passed" in run.stdout and "clean: 0 errors" in run.stdout


def test_pytest_collects_no_rule_without_a_file() -> None:
    run = _pytest("--collect-only", "-q", "--checkpoint=tiny", "-n", "0", "suite/audit", "suite/test_refusals.py")
    assert "test_audit.py" not in run.stdout and "test_refusals.py" in run.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [([], "--gguf: expected --source with it"), (["--source=nowhere"], "nowhere: no config.json there")],
)
def test_pytest_says_what_is_unusable_in_one_line(options: list[str], words: str, correct: Path) -> None:
    run = _pytest(f"--gguf={correct}", *options)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert words in run.stderr and "Traceback" not in run.stderr


def test_rules_have_statements_and_known_severities() -> None:
    assert all(rule.statement.endswith(".") and rule.severity in Severity for rule in RULES.values())
