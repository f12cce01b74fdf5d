"""What README says can be done can be done, word for word."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_runs_and_its_faults_are_found(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The text between ``# mine.py`` and the end of its block, run by the command below it."""
    (example,) = re.findall(r"```python\n# mine\.py\n(.*?)```", README, re.DOTALL)
    (tmp_path / "mine.py").write_text(example)
    (options,) = re.findall(r"^\$ PYTHONPATH=\. pytest (--impl=mine:Mine.*)$", README, re.MULTILINE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options.split()]
    chosen = ["-k", "q8_0 and (byte_identical or refused)", f"--cache={pytestconfig.getoption('--cache')}", str(ROOT)]
    run = subprocess.run(
        [*command, *chosen, f"--rootdir={ROOT}", f"-c{ROOT / 'pyproject.toml'}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([".", str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.OK, run.stdout + run.stderr
    assert re.search(r"not met +bytes\.quantize \[q8_0\]", run.stdout), run.stdout
    assert re.search(r"not met +refusal\.weights \[q8_0-NaN", run.stdout), run.stdout
    assert "not offered     bytes.dequantize" in run.stdout, run.stdout


@pytest.mark.parametrize("program", ["pytest", "impl", "suite"])
def test_every_option_in_it_exists(program: str) -> None:
    """Options, and the subcommands of ``python -m``."""
    pattern = r"pytest\b(.*)" if program == "pytest" else rf"python -m {program} (.*?)[`\n]"
    used = {word for line in re.findall(pattern, README) for word in re.findall(r"(?<!\w)--[a-z-]+", line)}
    helps = [
        subprocess.run([sys.executable, "-m", program, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    ]
    commands = re.findall(rf"python -m {program} ([a-z]+)", README)
    for command in sorted(set(commands)):
        arguments = [sys.executable, "-m", program, command, "--help"]
        helps.append(subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True))
    assert used or program == "suite"
    assert not {option for option in used if not any(option in each.stdout for each in helps)}


def test_every_tox_environment_in_it_exists() -> None:
    environments = set(re.findall(r"\[testenv:(\w+)\]", (ROOT / "tox.ini").read_text()))
    named = {name for names in re.findall(r"tox -e ([\w,]+)", README) for name in names.split(",")}
    assert named == environments


def test_every_path_in_it_exists() -> None:
    places = README[README.index("## Where things are") :]
    paths = re.findall(r"^\| `([\w./*]+)`", places, re.MULTILINE)
    assert len(paths) > 5
    assert not [path for path in paths if not list(ROOT.glob(path.rstrip("/")))]


def test_every_outcome_is_explained() -> None:
    from suite.kit.results import Outcome

    assert {str(outcome) for outcome in Outcome} <= set(re.findall(r"^\| ([a-z ]+) \|", README, re.MULTILINE))
