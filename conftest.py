"""pytest wiring: options, what each test runs for, fixtures and hooks. The logic is in ``suite.kit``."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from syrupy.assertion import SnapshotAssertion

from impl.protocol import Converter, Dequantizer, Engine, Implementation, Quantizer
from suite.audit.plugin import AuditSummary
from suite.claims import ALL_QUESTIONS, Question, required
from suite.kit import checkpoints, selection, verdicts
from suite.kit.results import Measure
from suite.kit.session import Session
from suite.kit.snapshots import LogitsSnapshots, require_recorded

if TYPE_CHECKING:
    # What measures imports torch, which a controller of workers has no use for.
    from suite.kit.runs import Runs

SESSION = pytest.StashKey[Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    option = parser.getgroup("gguf-conformance").addoption
    option(
        "--impl",
        action="append",
        metavar="NAME",
        help="what to test: a built-in name, module:Class or a manifest's path (repeatable)",
    )
    option(
        "--require",
        default=Question.RIGHT,
        choices=[*Question, ALL_QUESTIONS],
        help="which questions decide the exit code: right (default), that and another one, or all",
    )
    option("--backend", action="append", metavar="NAME", help="only this backend of the engines (repeatable)")
    option(
        "--checkpoint",
        default="smollm2",
        metavar="NAME",
        help="smollm2 (default), tiny, hub:ORG/NAME or a folder",
    )
    option(
        "--cache",
        type=Path,
        default=checkpoints.default_cache(),
        metavar="DIR",
        help="where checkpoints are kept",
    )
    option(
        "--steps",
        type=selection.count,
        metavar="N",
        help="measure only the first N steps of the reference run [all]",
    )
    option(
        "--time-limit",
        type=selection.count,
        metavar="SECONDS",
        help="what one call of an implementation may take [300, or what its manifest says]",
    )
    option(
        "--no-isolation",
        action="store_true",
        help="run every implementation in the suite's own process, for a debugger",
    )
    option("--gguf", type=Path, metavar="FILE", help="audit this file, and run nothing else")
    option("--source", metavar="CHECKPOINT", help="the checkpoint that --gguf claims to come from")
    option("--report", type=Path, metavar="DIR", help="write report.json and report.html there")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "claim(claim): the claim of suite.claims that a test decides")
    selection.check_options(config)
    config.stash[SESSION] = Session(config)
    config.pluginmanager.register(config.stash[SESSION])
    if config.getoption("--gguf") is not None:
        config.pluginmanager.register(AuditSummary(config))


def pytest_report_header(config: pytest.Config) -> list[str]:
    return list(selection.header_lines(config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return selection.is_left_out(collection_path, config) or None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    selection.parametrize(metafunc)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("claim"):
            verdicts.describe(item, marker.args[0])
            selection.expect_declared_deviation(item, marker.args[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    verdicts.explain(item, call, item.config.stash[SESSION].options_for)
    report = yield
    verdicts.decide(call, report, required(item.config.getoption("--require")))
    return report


@pytest.fixture(scope="session")
def runs(pytestconfig: pytest.Config) -> "Runs":
    return pytestconfig.stash[SESSION].runs


@pytest.fixture(scope="session")
def tiny_checkpoint(pytestconfig: pytest.Config) -> Path:
    return checkpoints.find_checkpoint("tiny", pytestconfig.getoption("--cache")).folder


@pytest.fixture
def measured(request: pytest.FixtureRequest, runs: "Runs") -> Measure:
    claim = request.node.get_closest_marker("claim").args[0]
    return Measure(claim, runs.has_the_articles_shapes, request.node.user_properties, runs.window)


@pytest.fixture(scope="session")
def quantizer(implementation: Implementation) -> Quantizer:
    return selection.require(implementation, "quantizer")


@pytest.fixture(scope="session")
def dequantizer(implementation: Implementation) -> Dequantizer:
    return selection.require(implementation, "dequantizer")


@pytest.fixture(scope="session")
def converter(implementation: Implementation) -> Converter:
    return selection.require(implementation, "converter")


@pytest.fixture(scope="session")
def engine(implementation: Implementation, backend: str) -> Engine:
    return selection.require_backend(selection.require(implementation, "engine"), backend)


@pytest.fixture
def logits_snapshot(snapshot: SnapshotAssertion, pytestconfig: pytest.Config) -> Callable[[str], SnapshotAssertion]:
    def recorded(name: str) -> SnapshotAssertion:
        require_recorded(name, updating=pytestconfig.getoption("update_snapshots"))
        return snapshot(name=name, extension_class=LogitsSnapshots)

    return recorded
