"""Each adapter keeps to the contract, and where its package is absent or broken that is said in one line."""

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest

from impl import catalogue
from impl.__main__ import main
from impl.catalogue import BUILT_IN, BuiltIn, resolve
from impl.errors import InputError
from impl.protocol import Implementation, offered
from suite.claims import CLAIMS
from suite.kit import layout, tiny
from suite.kit.tensors import open_gguf

ADAPTERS = [name for name in BUILT_IN if name != "reference"]
PROMPT = [1, 8, 15, 22, 29]


@pytest.fixture(scope="module", params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> Implementation:
    if not BUILT_IN[request.param].is_installed:
        pytest.skip(f"{BUILT_IN[request.param].package} is not installed")
    return resolve(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny"
    tiny.build(folder)
    return folder


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    path = folder.parent / "q8_0.gguf"
    resolve("reference").convert(folder, path, "q8_0", "full")
    return path


def require(adapter: Implementation, capability: str) -> Implementation:
    if capability not in offered(adapter):
        pytest.skip(f"{adapter.name} is no {capability}")
    return adapter


def rows(columns: int = 512) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((3, columns), dtype=np.float32)


def test_an_adapter_has_the_name_that_it_is_asked_for_by(adapter: Implementation) -> None:
    assert adapter.name in ADAPTERS and resolve(adapter.name).name == adapter.name
    assert adapter.version and offered(adapter)


def test_every_declared_deviation_is_of_a_claim_and_says_why(adapter: Implementation) -> None:
    deviations = getattr(adapter, "deviations", {})
    assert {re.split(r"[\[@]", key)[0] for key in deviations} <= set(CLAIMS)
    assert all(len(reason.split()) > 2 for reason in deviations.values())


def test_a_quantizer_gives_rows_of_blocks_of_every_type_it_offers(adapter: Implementation) -> None:
    require(adapter, "quantizer")
    importance = {"importance": np.ones(512, np.float32)} if adapter.name in ("ggml", "llama-cpp") else {}
    for type in adapter.types:
        blocks = adapter.quantize(rows(), type, **importance)
        assert (blocks.dtype, blocks.shape) == (np.uint8, (3, layout.tensor_bytes((512,), type))), type


def test_a_dequantizer_reads_what_the_reference_writes(adapter: Implementation) -> None:
    require(adapter, "dequantizer")
    reference = resolve("reference")
    readable = getattr(adapter, "readable_types", adapter.types)
    for type in (type for type in ("f32", "q4_1", "q8_0") if type in readable):
        read = adapter.dequantize(reference.quantize(rows(), type), type)
        assert (read.dtype, read.shape) == (np.float32, (3, 512)), type
        assert np.abs(read - rows()).max() < {"f32": 1e-7, "q4_1": 0.4, "q8_0": 0.05}[type]


def test_an_unknown_type_is_refused_by_name(adapter: Implementation) -> None:
    require(adapter, "quantizer")
    with pytest.raises(InputError, match="'q9_9'"):
        adapter.quantize(rows(), "q9_9")


def test_a_row_that_is_no_multiple_of_the_block_is_refused(adapter: Implementation) -> None:
    require(adapter, "quantizer")
    with pytest.raises(Exception, match=r"\b(32|40)\b"):
        adapter.quantize(rows(columns=40), "q4_1")


def test_a_converter_writes_a_gguf_of_every_recipe_it_offers(
    adapter: Implementation, folder: Path, tmp_path: Path
) -> None:
    require(adapter, "converter")
    for recipe in adapter.recipes:
        adapter.convert(folder, tmp_path / f"{recipe}.gguf", recipe, "full")
    # Some mixes of ik_llama.cpp have types of its own, which no other reader knows.
    read = {
        recipe: open_gguf(tmp_path / f"{recipe}.gguf") for recipe in ("f32", "f16", "q8_0") if recipe in adapter.recipes
    }
    assert {len(reader.tensors) for reader in read.values()} == {21}
    assert len(list(tmp_path.iterdir())) == len(adapter.recipes)


def test_an_engine_gives_logits_near_the_references_and_generates(adapter: Implementation, file: Path) -> None:
    require(adapter, "engine")
    backend, *_ = getattr(adapter, "default_backends", adapter.backends)
    model = adapter.load(file, backend)
    logits = model.logits(PROMPT)
    expected = resolve("reference").load(file, "cpu").logits(PROMPT)
    assert (logits.dtype, logits.shape) == (np.float32, expected.shape)
    assert np.isfinite(logits).all()
    # Whole tensors quantized to 7 bits are the coarsest arithmetic here; a wrong rotation gives several.
    assert np.abs(logits - expected).max() < 1.5
    generated = model.generate(PROMPT, 4)
    assert [type(token) for token in generated] == [int] * 4
    assert generated[0] == int(logits[-1].argmax())


def test_a_file_that_is_none_is_refused_in_one_line_or_by_the_programs_own_error(
    adapter: Implementation, tmp_path: Path
) -> None:
    require(adapter, "engine")
    (tmp_path / "none.gguf").write_bytes(b"not a GGUF file")
    with pytest.raises(Exception) as refusal:
        adapter.load(tmp_path / "none.gguf", next(iter(adapter.backends)))
    assert len(str(refusal.value).splitlines()) == 1


def listed(name: str, package: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "BUILT_IN", {name: BuiltIn(target, package)})
    monkeypatch.setattr("impl.__main__.BUILT_IN", catalogue.BUILT_IN)


def lines_of_the_list(capsys: pytest.CaptureFixture) -> Sequence[str]:
    assert main(["list"]) == 0
    return capsys.readouterr().out.splitlines()


def test_an_absent_package_is_not_installed_and_the_line_that_installs_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def absent(package: str) -> None:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(catalogue, "distribution", absent)
    for name in ADAPTERS:
        with pytest.raises(InputError, match=rf"'{name}': not installed.*pip install {BUILT_IN[name].wanted}$"):
            resolve(name)
    assert sum("pip install" in line for line in lines_of_the_list(capsys)) == len(ADAPTERS)


def test_a_package_with_a_broken_library_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "broken_adapter.py").write_text("import ctypes\nctypes.CDLL(__file__)\n")
    monkeypatch.syspath_prepend(tmp_path)
    listed("broken", "gguf", "broken_adapter:Adapter", monkeypatch)
    first, second = lines_of_the_list(capsys)
    assert first == "broken: not available here"
    assert "broken_adapter does not import: OSError" in second


def test_a_package_without_its_library_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "empty_adapter.py").write_text(
        "from impl.ggml_library import GgmlBlocks\n"
        "class Adapter(GgmlBlocks):\n"
        "    def __init__(self): super().__init__('json')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    listed("empty", "gguf", "empty_adapter:Adapter", monkeypatch)
    assert "package json: no ggml-base in it" in lines_of_the_list(capsys)[1]
