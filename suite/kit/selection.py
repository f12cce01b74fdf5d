"""For which implementations, backends and block types a test runs, and what it is when one lacks a capability."""

from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from impl.catalogue import resolve
from impl.errors import InputError
from impl.protocol import Engine, Implementation, offered
from suite.claims import Claim
from suite.kit.checkpoints import require_known
from suite.kit.results import NotOffered

IMPLEMENTATIONS = pytest.StashKey[tuple[Implementation, ...]]()
ORACLE = "ggml"
"""The implementation whose bytes the byte claims compare with, and whose types they ask for."""


def check_options(config: pytest.Config) -> None:
    """Resolve every ``--impl`` before anything is collected; a wrong option ends the run with one line."""
    try:
        require_known(config.getoption("--checkpoint"))
        implementations = tuple(resolve(name) for name in config.getoption("--impl") or ["reference"])
    except InputError as error:
        raise pytest.UsageError(str(error)) from error
    names = [each.name for each in implementations]
    if len(set(names)) < len(names):
        raise pytest.UsageError(f"implementations {', '.join(names)}: expected each to have a name of its own")
    config.stash[IMPLEMENTATIONS] = implementations


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each implementation, and for each of its backends or block types it asks for."""
    if "implementation" not in metafunc.fixturenames:
        return
    implementations = metafunc.config.stash[IMPLEMENTATIONS]
    if "backend" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--backend")
        cases = [(each, name) for each in implementations for name in _backends(each, wanted)]
        _parametrize(metafunc, "backend", cases)
    elif "block_type" in metafunc.fixturenames:
        _parametrize(metafunc, "block_type", list(product(implementations, resolve(ORACLE).types)))
    else:
        ids = [each.name for each in implementations]
        metafunc.parametrize("implementation", implementations, ids=ids, scope="session")


def _backends(implementation: Implementation, wanted: Sequence[str] | None) -> Sequence[str]:
    """The backends to run; one empty name where there is none, so that the claim is still reported."""
    own = tuple(getattr(implementation, "backends", ()))
    return tuple(wanted or own) or ("",)


def _parametrize(metafunc: pytest.Metafunc, name: str, cases: list[tuple[Implementation, str]]) -> None:
    ids = [f"{each.name}-{value}" if value else each.name for each, value in cases]
    metafunc.parametrize(("implementation", name), cases, ids=ids, scope="session")


def expect_declared_deviation(item: pytest.Item, claim: Claim) -> None:
    """Make a claim that the implementation says it deviates from a strict expected failure."""
    implementation = item.callspec.params.get("implementation") if hasattr(item, "callspec") else None
    reason = getattr(implementation, "deviations", {}).get(claim.id)
    if reason is not None:
        item.add_marker(pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True))


def require(implementation: Implementation, capability: str) -> Implementation:
    """The implementation, if it offers the capability; else the claim is *not offered*."""
    if capability not in offered(implementation):
        raise NotOffered(f"{implementation.name} is no {capability}")
    return implementation


def require_backend(engine: Engine, backend: str) -> Engine:
    """The engine, if it has the backend; else the claim is *not offered*."""
    require_member(engine, "backends", backend)
    return engine


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


def header_lines(config: pytest.Config) -> Iterator[str]:
    """What the run is about: the checkpoint and every implementation."""
    yield f"checkpoint: {config.getoption('--checkpoint')}"
    for implementation in config.stash[IMPLEMENTATIONS]:
        yield f"under test: {capabilities_line(implementation)}"
