"""From the tensors that differ to what was done to them: each ends in one finding that names the cause.

A cause is a hypothesis that fits: the file's rows are held against the checkpoint's as they would be under it, and
they match when they are as near as the tensor's type gets. A few rows, drawn once, decide.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from suite.audit.rules import Finding
from suite.audit.values import Comparison, Oracle
from suite.audit.weights import Source, blocks_of
from suite.kit.names import layer_of
from suite.kit.rows import gguf_row_order

ROWS = 48
"""Rows that decide whether a hypothesis fits."""
NEAR = 1.5
"""A hypothesis fits up to so many times the error of our own quantization; the weights of another tensor are at least
1.6 times as far even in the coarsest type."""
LEAST = 2.0**-8
"""As a share of the weights; for types whose own error is 0, or no larger than the checkpoint's rounding."""
UNPERMUTED = "the rows are in the checkpoint's order"


@dataclass(frozen=True)
class Examined:
    """A tensor with wrong rows, and those of its rows that are looked at."""

    comparison: Comparison
    file_rows: NDArray[np.float32]
    rows: NDArray[np.intp]

    @property
    def name(self) -> str:
        """The tensor's."""
        return self.comparison.tensor.name

    def distance(self, weights: NDArray[np.float32]) -> float:
        """How far the rows of the file are from ``weights``, in units of what a match may differ by."""
        scale = np.sqrt(np.square(weights, dtype=np.float64).mean())
        difference = np.sqrt(np.square(self.file_rows - weights, dtype=np.float64).mean())
        near = max(NEAR * self.comparison.own_error, LEAST) * scale
        return float(difference / near) if near else float(np.inf * difference) if difference else 0.0


def explain(file: Path, wrong: Sequence[Comparison], source: Source, oracle: Oracle) -> Iterator[Finding]:
    """One finding for each group of tensors with wrong rows that have one cause."""
    examined = [_examined(file, comparison, oracle) for comparison in wrong]
    orders = {each.name: cause for each in examined if (cause := _row_order(each, source))}
    yield from _permutations(orders)
    others = [each for each in examined if each.name not in orders]
    holds = {each.name: other for each in others if (other := _held_tensor(each, source))}
    yield from _misplacements(holds)
    for each in others:
        if each.name not in holds:
            yield _beyond_envelope(each, source)


def _examined(file: Path, comparison: Comparison, oracle: Oracle) -> Examined:
    tensor = comparison.tensor
    count = tensor.size // tensor.row_bytes
    rows = np.sort(np.random.default_rng(0).choice(count, min(count, ROWS), replace=False))
    return Examined(comparison, oracle.dequantize(blocks_of(file, tensor, rows), tensor.type.name), rows)


def _row_order(each: Examined, source: Source) -> str:
    """What was done to the order of a q's or k's rows; empty where no such cause fits."""
    expected = source.order(each.name)
    if expected is None:
        return ""
    is_vector = len(each.comparison.tensor.shape) == 1
    own = source.in_own_order(each.name)
    found = {
        cause: each.distance(own[:, order] if is_vector else own[order[each.rows]])
        for cause, order in _possible_orders(expected, source.checkpoint.heads[each.name.split(".")[-2]])
    }
    cause = min(found, key=found.__getitem__)
    return cause if found[cause] <= 1 else ""


def _possible_orders(expected: NDArray[np.intp], heads: int) -> Iterator[tuple[str, NDArray[np.intp]]]:
    rows = len(expected)
    yield UNPERMUTED, np.arange(rows)
    yield "the rows were permuted twice", expected[expected]
    yield "the rows were permuted backwards", np.argsort(expected)
    for other in range(1, rows // 2):
        if rows % (2 * other) == 0 and other != heads:
            yield f"the rows were permuted with {other} heads instead of {heads}", gguf_row_order(rows, other)


def _permutations(orders: Mapping[str, str]) -> Iterator[Finding]:
    for cause in dict.fromkeys(orders.values()):
        names = [name for name, found in orders.items() if found == cause]
        parts = _counted_parts(names)
        cure = f"; {_all(names)} once permuted" if cause == UNPERMUTED else ""
        yield Finding("values.permutation", f"{parts}: {cause}{cure}", names)


def _held_tensor(each: Examined, source: Source) -> str:
    """The checkpoint's other tensor that stands in place of this one; empty where none does."""
    shapes = source.checkpoint.expected_shapes
    alike = [name for name, shape in shapes.items() if shape == each.comparison.tensor.shape and name != each.name]
    found = {name: each.distance(source.rows(name, each.rows)) for name in alike}
    nearest = min(found, key=found.__getitem__, default="")
    return nearest if nearest and found[nearest] <= 1 else ""


def _misplacements(holds: Mapping[str, str]) -> Iterator[Finding]:
    swapped = {name: other for name, other in holds.items() if holds.get(other) == name}
    pairs = [(name, other) for name, other in swapped.items() if name < other]
    same_layer = [(a, b) for a, b in pairs if layer_of(a) == layer_of(b) >= 0]
    for kind in dict.fromkeys((a.split(".")[-2], b.split(".")[-2]) for a, b in same_layer):
        alike = [(a, b) for a, b in same_layer if (a.split(".")[-2], b.split(".")[-2]) == kind]
        message = f"{kind[0]} and {kind[1]} are swapped in {len(alike)} layers"
        if len(alike) == 1:
            message = f"{alike[0][0]} and {alike[0][1]} are swapped"
        yield Finding("values.misplaced", message, [name for pair in alike for name in pair])
    for a, b in pairs:
        if (a, b) not in same_layer:
            yield Finding("values.misplaced", f"{a} and {b} are swapped", (a, b))
    for name, other in holds.items():
        if name not in swapped:
            yield Finding("values.misplaced", f"{name}: holds the checkpoint's {other}", (name,))


def _beyond_envelope(each: Examined, source: Source) -> Finding:
    comparison = each.comparison
    tensor = comparison.tensor
    rows = tensor.size // tensor.row_bytes
    message = (
        f"{each.name}: {len(comparison.wrong_rows)} of {rows} rows are beyond what {tensor.type.label} allows, the "
        f"first is row {comparison.wrong_rows[0]}; the error is {comparison.file_error:.2%} of the weights, "
        f"quantizing the checkpoint gives {comparison.own_error:.2%}{_transformation(each, source)}"
    )
    first = tensor.offset + int(comparison.wrong_rows[0]) * tensor.row_bytes
    return Finding("values.envelope", message, (each.name,), first, tensor.row_bytes)


def _transformation(each: Examined, source: Source) -> str:
    """What arithmetic makes the checkpoint's weights the file's, said after a semicolon; empty where none does."""
    weights = source.rows(each.name, each.rows)
    if each.distance(weights) <= 1:
        # It is the checkpoint's own but for a few rows.
        return ""
    factor = float((each.file_rows * weights).sum() / np.square(weights).sum()) if weights.any() else 1.0
    shift = float((each.file_rows - weights).mean())
    hypotheses = {
        f"it is the checkpoint's times {factor:.4g}": factor * weights,
        f"it is the checkpoint's plus {shift:.4g}": weights + np.float32(shift),
    }
    if len(set(each.comparison.tensor.shape)) == 1 and len(each.comparison.tensor.shape) == 2:
        hypotheses["it is the checkpoint's transposed"] = source.rows(each.name)[:, each.rows].T
    found = {cause: each.distance(hypothesis) for cause, hypothesis in hypotheses.items()}
    cause = min(found, key=found.__getitem__)
    return f"; {cause}" if found[cause] <= 1 else ""


def _counted_parts(names: Sequence[str]) -> str:
    parts = [name.split(".")[-2] + (" bias" if name.endswith(".bias") else "") for name in names]
    return " and ".join(f"{parts.count(part)} {part}" for part in dict.fromkeys(parts))


def _all(names: Sequence[str]) -> str:
    return f"the {len(names)} q/k tensors match" if len(names) > 1 else "it matches"
