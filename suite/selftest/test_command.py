"""The one command of an installed package does what the clone does, from any folder."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from suite.command import SUBCOMMANDS

ROOT = Path(__file__).parents[2]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what a wheel of this tree installs, and nothing of the tree."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip"] if _has_pip() else ["pip"]
    # From a copy: a build leaves files behind, which the next one would take for sources.
    shutil.copytree(ROOT, folder / "tree", ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__"))
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "-w", folder / "dist", folder / "tree"], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--target", folder / "site", wheel], check=True)
    return folder / "site"


def _has_pip() -> bool:
    return subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """The installed command, run in an empty folder."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command: Sequence[str | Path] = [sys.executable, installed / "bin" / "gguf-conformance", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(installed)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def test_nothing_is_installed_among_other_peoples_modules(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} == {
        "bin",
        "gguf_conformance",
    }
    assert not list(installed.rglob("selftest"))


def test_the_suite_runs_from_a_wheel(run: Run, pytestconfig: pytest.Config) -> None:
    chosen = ["-k", "recorded_vectors and q8_0 or minimal or snapshot and q4_0"]
    done = run(
        "run", "-q", "--checkpoint=tiny", "--backend=cpu", *chosen, f"--cache={pytestconfig.getoption('--cache')}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for claim in ("bytes.vectors", "conversion.minimal-keys", "logits.snapshot"):
        assert re.search(rf"pass +{claim}", done.stdout), done.stdout


def test_the_users_own_module_is_found_where_they_are(run: Run, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    (tmp_path / "mine.py").write_text('class Mine:\n    name = "mine"\n    version = "1"\n')
    place = f"--cache={pytestconfig.getoption('--cache')}"
    done = run("run", "-q", "--impl=mine:Mine", "--checkpoint=tiny", "-k", "recorded_vectors and q8_0", place)
    assert "mine: 0 pass" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("command", [each for commands in SUBCOMMANDS.values() for each in commands])
def test_every_subcommand_is_there(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0, done.stderr
    assert command in done.stdout


@pytest.mark.parametrize("module", SUBCOMMANDS)
def test_no_subcommand_is_left_out(module: str) -> None:
    help = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(re.findall(r"^    ([a-z-]+)(?:  |$)", help.stdout, re.MULTILINE)) == set(SUBCOMMANDS[module])


def test_an_unknown_command_is_named_with_the_known_ones(run: Run) -> None:
    done = run("frobnicate")
    assert done.returncode == 2
    assert "audit" in done.stderr
    assert not done.stdout
