"""For which implementations, backends and block types a test runs, and what it is when one lacks a capability."""

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from impl.catalogue import resolve
from impl.errors import FellOver, InputError
from impl.protocol import Converter, Engine, Implementation, Model, Quantizer, offered, takes_importance
from suite.audit import plugin
from suite.claims import Claim
from suite.kit.checkpoints import require_known
from suite.kit.devices import Devices, find_devices
from suite.kit.isolation import under_test
from suite.kit.results import NotOffered
from suite.kit.smoke import smoke_lines

IMPLEMENTATIONS = pytest.StashKey[tuple[Implementation, ...]]()
DEVICES = pytest.StashKey[Devices]()
ABOUT_DEVICES = "test_device.py"
ORACLE = "ggml"
"""The implementation whose bytes the byte claims compare with, and whose types they ask for."""


def check_options(config: pytest.Config) -> None:
    """Resolve every ``--impl`` before anything is collected; a wrong option ends the run with one line."""
    try:
        require_known(config.getoption("--checkpoint"))
        implementations = tuple(under_test(name, config) for name in config.getoption("--impl") or ["reference"])
    except (InputError, FellOver) as error:
        raise pytest.UsageError(str(error)) from error
    names = [each.name for each in implementations]
    if len(set(names)) < len(names):
        raise pytest.UsageError(f"implementations {', '.join(names)}: expected each to have a name of its own")
    config.stash[IMPLEMENTATIONS] = implementations
    try:
        config.stash[DEVICES] = find_devices(_with_backends(config))
    except (InputError, FellOver) as error:
        raise pytest.UsageError(str(error)) from error


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each implementation, and for each of its backends or block types it asks for."""
    if "implementation" not in metafunc.fixturenames:
        return
    implementations = metafunc.config.stash[IMPLEMENTATIONS]
    if "backend" in metafunc.fixturenames:
        _parametrize(metafunc, "backend", _with_backends(metafunc.config))
    elif "block_type" in metafunc.fixturenames:
        _parametrize(metafunc, "block_type", list(product(implementations, resolve(ORACLE).types)))
    else:
        ids = [each.name for each in implementations]
        metafunc.parametrize("implementation", implementations, ids=ids, scope="session")


def _with_backends(config: pytest.Config) -> list[tuple[Implementation, str]]:
    """Every implementation with each of its backends to run."""
    wanted = config.getoption("--backend")
    return [(each, name) for each in config.stash[IMPLEMENTATIONS] for name in _backends(each, wanted)]


def _backends(implementation: Implementation, wanted: Sequence[str] | None) -> Sequence[str]:
    """The backends to run; one empty name where there is none, so that the claim is still reported."""
    own = getattr(implementation, "default_backends", getattr(implementation, "backends", ()))
    return tuple(wanted or own) or ("",)


def _parametrize(metafunc: pytest.Metafunc, name: str, cases: list[tuple[Implementation, str]]) -> None:
    ids = [f"{each.name}-{value}" if value else each.name for each, value in cases]
    metafunc.parametrize(("implementation", name), cases, ids=ids, scope="session")


def expect_declared_deviation(item: pytest.Item, claim: Claim) -> None:
    """Make a claim, or the one case of it, that the implementation says it deviates from a strict expected failure."""
    implementation = item.callspec.params.get("implementation") if hasattr(item, "callspec") else None
    if implementation is None:
        return
    case = item.callspec.id.removeprefix(implementation.name).strip("-")
    reason = _declared(implementation, claim.id, case, item.config.getoption("--checkpoint"))
    if reason is not None:
        failed = (AssertionError, pytest.fail.Exception)
        item.add_marker(pytest.mark.xfail(reason=reason, raises=failed, strict=True))


def _declared(implementation: Implementation, claim: str, case: str, checkpoint: str) -> str | None:
    """The reason for a deviation, by the most exact of the keys that ``impl.protocol`` allows."""
    deviations = getattr(implementation, "deviations", {})
    keys = [f"{claim}[{case}]@{checkpoint}", f"{claim}[{case}]", f"{claim}@{checkpoint}", claim]
    return next((deviations[key] for key in keys if key in deviations), None)


def require(implementation: Implementation, capability: str) -> Implementation:
    """The implementation, if it offers the capability; else the claim is *not offered*."""
    if capability not in offered(implementation):
        raise NotOffered(f"{implementation.name} is no {capability}")
    return implementation


def require_backend(engine: Engine, backend: str) -> Engine:
    """The engine, if it has the backend; else the claim is *not offered*."""
    require_member(engine, "backends", backend)
    return engine


def require_generation(model: Model, engine: Engine) -> Model:
    """The model, if it generates; else the claim is *not offered*."""
    if not hasattr(model, "generate"):
        raise NotOffered(f"{engine.name} generates nothing")
    return model


def require_importance(implementation: Quantizer | Converter, method: str) -> None:
    """Ends a claim as *not offered* where ``quantize`` or ``convert`` knows no importance."""
    if not takes_importance(getattr(implementation, method)):
        raise NotOffered(f"{implementation.name} takes no importance in {method}")


def require_member(implementation: Implementation, attribute: str, wanted: str) -> None:
    """Ends a claim as *not offered* unless ``wanted`` is among the implementation's ``attribute``.

    ``attribute`` is ``types``, ``readable_types``, ``recipes`` or ``backends``.
    """
    substitute = getattr(implementation, "types", ()) if attribute == "readable_types" else ()
    if wanted not in getattr(implementation, attribute, substitute):
        raise NotOffered(f"{implementation.name} does not offer {wanted} among its {attribute}")


def capabilities_line(implementation: Implementation) -> str:
    """One line of the header: name, version and what is offered."""
    return f"{implementation.name} {implementation.version}: {', '.join(offered(implementation)) or 'nothing'}"


def is_left_out(module: Path, config: pytest.Config) -> bool:
    """Whether a test module has nothing to ask in this run: the claims about devices, where no backend has one; the
    audit, where no file is given; all but the audit, where one is."""
    return plugin.is_left_out(module, config) or (module.name == ABOUT_DEVICES and not config.stash[DEVICES])


def count(text: str) -> int:
    """A positive number given as an option."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def header_lines(config: pytest.Config) -> Iterator[str]:
    """What the run is about: the checkpoint and every implementation, or the file that is audited."""
    if (file := config.getoption("--gguf")) is not None:
        yield f"audit: {file} against {config.getoption('--source')}"
        return
    yield f"checkpoint: {config.getoption('--checkpoint')}"
    for implementation in config.stash[IMPLEMENTATIONS]:
        yield f"under test: {capabilities_line(implementation)}"
    for spec, implementation in zip(config.getoption("--impl") or (), config.stash[IMPLEMENTATIONS], strict=False):
        yield from smoke_lines(spec, implementation)
    for (name, backend), device in config.stash[DEVICES].items():
        yield f"device: {name} computes {backend} on {device.kind}, {device.name}"
    if steps := config.getoption("--steps"):
        yield f"window: the first {steps} steps of the reference run"
