"""Engines on a device of their own: what computed, that it computes what a CPU does, and what it keeps quantized.

Collected only where a backend names its device.
"""

import numpy as np
import pytest

from impl.protocol import Engine
from suite.claims import claim
from suite.kit.bounds import float32_bound
from suite.kit.devices import counterpart_on_cpu, machine_has_metal, peak_memory, require_device
from suite.kit.logits import compare_logits
from suite.kit.results import HardwareAbsent, Measure, NotOffered, Undecided
from suite.kit.runs import Runs
from suite.kit.selection import require_member
from suite.test_logits import BY_ERROR

KEPT_QUANTIZED = ("q8_0", "q4_0", "q4_1")
"""The types that MLX multiplies by as they are."""
PAGES_OUTWEIGH = 1 << 26
"""Float32 weights of fewer bytes are smaller than what a GPU's allocator adds to their many small tensors."""


@claim("device.metal")
def test_metal_computes_where_metal_is_named(runs: Runs, engine: Engine, backend: str, measured: Measure) -> None:
    """On a machine with Metal, the logits of an f32 file differ in some bit from those of MLX's CPU device.

    The two sum in different orders: equal bits would mean that one device computed both. An engine that names
    Metal on a machine without it fails.
    """
    device = require_device(engine, backend)
    if device.kind != "metal" and not machine_has_metal():
        raise HardwareAbsent(f"no Metal device; {backend} computed on {device.kind}, {device.name}")
    if backend == "mlx-cpu":
        raise NotOffered(f"{backend} asks for the CPU")
    assert device.kind == "metal", f"{backend} computes on {device.kind} although this machine has Metal"
    assert machine_has_metal(), f"{backend} names {device.name} on a machine without Metal"
    require_member(engine, "backends", "mlx-cpu")
    file = runs.engine_file(engine, "f32")
    comparison = compare_logits(runs.logits(engine, "mlx-cpu", file), runs.logits(engine, backend, file))
    measured("worst step against MLX's CPU device", comparison.worst)
    assert np.isfinite(comparison.worst)
    assert not comparison.bit_identical, "the same bits as on MLX's CPU device"


@claim("device.equals-cpu")
@pytest.mark.parametrize("recipe", BY_ERROR)
def test_a_device_gives_the_logits_of_the_cpu(
    runs: Runs, engine: Engine, backend: str, recipe: str, measured: Measure
) -> None:
    """A device's logits are those of the engine's own CPU backend of the same arithmetic, up to float32 rounding.

    Either may be as far from the exact logits as any float32 program, so the bound is twice that of one.
    """
    require_device(engine, backend)
    cpu = counterpart_on_cpu(engine, backend)
    file = runs.engine_file(engine, recipe)
    comparison = compare_logits(runs.logits(engine, cpu, file), runs.logits(engine, backend, file))
    measured.each(f"{recipe}, against {cpu}", comparison.figures)
    comparison.require_within(2 * float32_bound(float(runs.noise_floor.max())))


@claim("device.packed")
@pytest.mark.parametrize("recipe", KEPT_QUANTIZED)
def test_what_mlx_keeps_quantized_is_never_dequantized(
    runs: Runs, engine: Engine, backend: str, recipe: str, measured: Measure
) -> None:
    """Loading a file of a type that MLX keeps quantized and computing with it takes less than half the memory of
    its weights in float32, at any moment: no weight is dequantized on the way, all at once or one by one."""
    device = require_device(engine, backend)
    file = runs.engine_file(engine, recipe)
    float32 = sum(4 * int(np.prod(shape)) for shape in runs.source.gguf_shapes().values())
    if device.kind != "cpu" and float32 < PAGES_OUTWEIGH:
        raise Undecided(f"weights of {float32} bytes: the pages they lie in on a GPU outweigh them")
    with peak_memory() as peak:
        engine.load(file, backend).logits([0])
    measured(f"{recipe}: peak memory, bytes", peak())
    measured("weights in float32, bytes", float32)
    assert peak() < float32 / 2
