"""Which implementations run in the suite's own process, and what a call of the others may take."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from impl.catalogue import resolve
from impl.isolated import Isolated
from impl.manifest import read_manifest
from impl.process import Limits
from impl.program import Program
from impl.protocol import Implementation

OURS = ("reference", "impl.reference", "impl.faulty.")
"""What begins so is this project's own, and may fall only over what the whole run would."""


def under_test(spec: str, config: pytest.Config) -> Implementation:
    """The implementation that ``--impl SPEC`` stands for, in a process of its own where it is not ours.

    A manifest's program is in one anyway, with the manifest's limits. ``--time-limit`` goes before any other,
    and ``--no-isolation`` lets a debugger in. Raises ``InputError``, or ``FellOver`` where an implementation
    falls over before it has said what it offers.
    """
    seconds = config.getoption("--time-limit")
    if spec.endswith(".toml"):
        manifest = read_manifest(Path(spec))
        limits = replace(manifest.limits, seconds=seconds) if seconds else manifest.limits
        return Program(replace(manifest, limits=limits))
    if config.getoption("--no-isolation") or spec.startswith(OURS):
        return resolve(spec)
    return Isolated(spec, Limits(seconds) if seconds else Limits(), _threads(config))


def _threads(config: pytest.Config) -> int:
    workers = config.workerinput["workercount"] if hasattr(config, "workerinput") else 1
    return max(1, (os.cpu_count() or 1) // workers)
