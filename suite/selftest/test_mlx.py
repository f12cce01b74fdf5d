"""The MLX backend on MLX's CPU device: blocks repacked exactly, the plain forward pass, and errors of one line."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from impl.errors import InputError
from impl.protocol import Device
from impl.reference import Reference
from impl.reference.blocks import FORMATS, dequantize
from impl.reference.llama import Llama, load
from impl.reference.mlx import CHUNK, MlxOperations, PackedMatrix
from impl.reference.mlx_blocks import GROUP_SIZE, REPACKINGS, affine_groups
from impl.reference.mlx_device import OLDEST, describe, open_device
from impl.reference.operations import Array, Matrix
from suite.kit.selection import is_left_out
from suite.selftest.test_engine import TOKENS, VARIANTS, VOCABULARY, Small, plain_logits

ROOT = Path(__file__).parents[2]
CPU = mx.Device(mx.cpu)


def random_blocks(type: str, rows: int = 7, blocks: int = 5) -> NDArray[np.uint8]:
    """Rows of blocks with every code in them and finite scales."""
    random = np.random.default_rng(3)
    records = np.zeros((rows, blocks), FORMATS[type].layout)
    for name in records.dtype.names:
        shape = records[name].shape
        is_code = np.issubdtype(records[name].dtype, np.integer)
        records[name] = random.integers(-128, 256, shape).astype(np.int16) if is_code else random.normal(0, 9, shape)
    return records.view(np.uint8).reshape(rows, -1)


@pytest.mark.parametrize("type", REPACKINGS)
def test_repacked_blocks_stand_for_exactly_the_same_weights(type: str) -> None:
    blocks = random_blocks(type)
    groups = affine_groups(blocks, type)
    parts = (mx.array(part) for part in (groups.codes, groups.scales, groups.biases))
    weights = mx.dequantize(*parts, group_size=GROUP_SIZE, bits=groups.bits, stream=CPU)
    assert np.array_equal(np.array(weights), dequantize(blocks, type))


@pytest.mark.parametrize("type", sorted(FORMATS.keys() - {"q8_1", "q8_k"}))
def test_a_matrix_stays_packed_where_mlx_has_its_type_and_only_there(type: str) -> None:
    format = FORMATS[type]
    blocks = np.zeros((2, 256 // format.values * format.bytes), np.uint8)
    matrix = MlxOperations(CPU).matrix(blocks, type)
    assert isinstance(matrix, PackedMatrix) == (type in ("q4_0", "q4_1", "q8_0"))
    if isinstance(matrix, PackedMatrix):
        assert matrix.codes.dtype == mx.uint32
        assert matrix.codes.nbytes == 2 * 256 * matrix.bits // 8


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_a_plain_float64_forward_pass(variant: str, tmp_path: Path) -> None:
    small = VARIANTS[variant]
    logits = load(small.write(tmp_path), "mlx-cpu").logits(TOKENS[:40])
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, plain_logits(small, TOKENS[:40]), rtol=0, atol=1e-4)


TYPES = [GGMLQuantizationType.F32, GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0]


@pytest.mark.parametrize("type", TYPES)
def test_logits_depend_on_no_later_token_to_the_bit(type: GGMLQuantizationType, tmp_path: Path) -> None:
    model = load(Small(matrices=type).write(tmp_path), "mlx-cpu")
    whole = model.logits(TOKENS)
    for length in (1, 5, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, len(TOKENS)):
        assert np.array_equal(model.logits(TOKENS[:length]), whole[:length]), length


@pytest.mark.parametrize("type", TYPES)
def test_generating_with_a_cache_picks_what_one_pass_over_everything_picks(
    type: GGMLQuantizationType, tmp_path: Path
) -> None:
    model = load(Small(matrices=type).write(tmp_path), "mlx-cpu")
    generated = model.generate(TOKENS[:5], 2 * CHUNK)
    whole = model.logits([*TOKENS[:5], *generated])
    assert len(set(generated)) > 3
    assert generated == whole[4:-1].argmax(axis=1).tolist()


@dataclass(frozen=True)
class Counting:
    """Operations that note how many positions each product by one matrix is for."""

    operations: MlxOperations
    matrix: Matrix
    positions: list[int] = field(default_factory=list)

    def linear(self, x: Array, weight: Matrix, bias: Array | None = None) -> Array:
        """As the backend's."""
        if weight is self.matrix:
            self.positions.append(len(x))
        return self.operations.linear(x, weight, bias)

    def __getattr__(self, operation: str) -> object:
        return getattr(self.operations, operation)


def counting(folder: Path) -> tuple[Llama, list[int]]:
    """A model, and for how many positions its head is computed each time."""
    model = load(Small().write(folder), "mlx-cpu")
    operations = Counting(model.operations, model.weights.output)
    return replace(model, operations=operations), operations.positions


@pytest.mark.parametrize(
    ("rows", "passes"), [(slice(None), 7), (slice(-1, None), 1), (slice(CHUNK - 1, CHUNK + 1), 2), (slice(0), 0)]
)
def test_the_head_is_computed_only_in_passes_whose_rows_are_asked_for(rows: slice, passes: int, tmp_path: Path) -> None:
    model, positions = counting(tmp_path)
    logits = model.logits(TOKENS, rows=rows)
    assert positions == [CHUNK] * passes
    assert logits.shape == (len(range(len(TOKENS))[rows]), VOCABULARY)
    assert np.array_equal(logits, model.logits(TOKENS)[rows])


def test_generating_computes_the_head_for_one_position_a_token(tmp_path: Path) -> None:
    model, positions = counting(tmp_path)
    model.generate(TOKENS[:37], 4)
    assert positions == [1, 1, 1, 1]


def test_the_device_is_mlxs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Reference().device("mlx-cpu")
    assert told == Device("cpu", mx.device_info(CPU)["device_name"])
    monkeypatch.setattr(mx, "device_info", lambda device: {"device_name": "Apple M9"})
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    gpu = mx.Device(mx.gpu)
    monkeypatch.setattr(mx, "default_device", lambda: gpu)
    assert describe(open_device("mlx", None)) == Device("metal", "Apple M9")
    assert describe(open_device("mlx-metal", "metal")) == Device("metal", "Apple M9")
    assert describe(open_device("mlx-cpu", "cpu")) == Device("cpu", "Apple M9")


def test_every_array_is_computed_on_the_device_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An operation left to the default device would ask for one that is not there."""
    model = load(Small(matrices=GGMLQuantizationType.Q8_0).write(tmp_path), "mlx-cpu")
    expected = model.logits(TOKENS)

    def refuse(*arguments: object, **keywords: object) -> None:
        raise AssertionError("computed on no device in particular")

    for operator in ("__add__", "__mul__", "__matmul__", "__getitem__"):
        monkeypatch.setattr(mx.array, operator, refuse)
    for name in ("add", "multiply", "matmul", "sigmoid", "transpose", "reshape", "take", "concatenate", "expand_dims"):
        monkeypatch.setattr(mx, name, _with_stream(getattr(mx, name), refuse))
    for name in ("rms_norm", "rope", "scaled_dot_product_attention"):
        monkeypatch.setattr(mx.fast, name, _with_stream(getattr(mx.fast, name), refuse))
    for name in ("quantized_matmul", "dequantize"):
        monkeypatch.setattr(mx, name, _with_stream(getattr(mx, name), refuse))
    assert np.array_equal(model.logits(TOKENS), expected)
    assert model.generate(TOKENS[:3], 2)


def _with_stream(function: object, refuse: object) -> object:
    def checked(*arguments: object, **keywords: object) -> object:
        return function(*arguments, **keywords) if keywords.get("stream") == CPU else refuse()

    return checked


def absent_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx.core", None)


def old_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "__version__", f"{OLDEST[0]}.{OLDEST[1] - 1}.9")


def no_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx.metal, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("backend", "circumstance", "text"),
    [
        ("mlx", absent_mlx, "MLX does not import"),
        ("mlx-cpu", old_mlx, "MLX is 0.29.9, expected mlx 0.30.4 or newer"),
        ("mlx-metal", no_metal, "has no metal device here"),
    ],
)
def test_what_is_absent_is_named_in_one_line(
    backend: str, circumstance: object, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    circumstance(monkeypatch)
    path = Small().write(tmp_path)
    for ask in (lambda: Reference().device(backend), lambda: Reference().load(path, backend)):
        with pytest.raises(InputError) as refusal:
            ask()
        message = str(refusal.value)
        assert message.startswith(f"backend {backend}: ")
        assert text in message
        assert len(message.splitlines()) == 1


def test_a_run_without_the_device_asked_for_ends_with_one_line() -> None:
    absent = "mlx-cuda" if mx.metal.is_available() or not mx.cuda.is_available() else "mlx-metal"
    run = pytest_run("--checkpoint=tiny", f"--backend={absent}")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    (line,) = run.stderr.strip().splitlines()
    assert line.startswith(f"ERROR: backend {absent}: MLX ")


def test_the_header_names_the_device_and_the_window() -> None:
    run = pytest_run("--checkpoint=tiny", "--backend=mlx-cpu", "--steps=3", "--collect-only", "suite/test_device.py")
    assert run.returncode == pytest.ExitCode.OK, run.stdout
    assert f"device: reference computes mlx-cpu on cpu, {mx.device_info(CPU)['device_name']}" in run.stdout
    assert "window: the first 3 steps of the reference run" in run.stdout


def test_claims_about_devices_are_left_out_where_no_backend_has_one(pytestconfig: pytest.Config) -> None:
    """This run's own configuration: it asks for no backend, and the default ones are the CPU."""
    assert is_left_out(ROOT / "suite" / "test_device.py", pytestconfig)
    assert not is_left_out(ROOT / "suite" / "test_logits.py", pytestconfig)


def test_without_mlx_everything_else_runs() -> None:
    """Nothing that a run without ``--backend=mlx`` touches may import it."""
    code = (
        "import sys; sys.modules['mlx'] = None; import impl.reference.llama; from impl.reference import Reference; "
        "Reference().device('cpu')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def pytest_run(*options: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
