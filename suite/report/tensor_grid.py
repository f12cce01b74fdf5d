"""The plot of a share for each tensor of a file: kinds by layers; the template draws it as inline SVG.

Lengths are in the SVG's own coordinates, as in ``step_plot``.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.kit.results import Series

ROW = 13
CELL = 10
FIRST_CELL = 78
LETTER = 5.8
"""Room for one letter of what a row shows, in words, to its right."""


@dataclass(frozen=True)
class Cell:
    """One tensor; ``share`` of its bytes differ, None where they were not compared."""

    at: float
    title: str
    share: float | None


@dataclass(frozen=True)
class GridRow:
    """The tensors of one kind, layer by layer."""

    kind: str
    cells: tuple[Cell, ...]
    summary: str


@dataclass(frozen=True)
class TensorGrid:
    """Kinds of tensors by layers."""

    rows: tuple[GridRow, ...]
    width: int
    identical: int
    total: int


def tensor_grid(series: Series) -> TensorGrid:
    """The plot of a series with one share of differing bytes for each tensor of a file."""
    kinds: dict[str, dict[int, tuple[str, float | None]]] = {}
    for name, share in zip(series.names, series.values, strict=True):
        layer, kind = _layer_and_kind(name)
        kinds.setdefault(kind, {})[layer] = (name, share)
    rows = tuple(_grid_row(kind, layers) for kind, layers in sorted(kinds.items()))
    return TensorGrid(
        rows=rows,
        width=math.ceil(max(row.cells[-1].at + 2 * CELL + LETTER * len(row.summary) for row in rows)),
        identical=sum(value == 0 for value in series.values),
        total=len(series.values),
    )


def _layer_and_kind(name: str) -> tuple[int, str]:
    """The layer of a tensor and its kind, e.g. 7 and ``attn_q``; those outside the layers stand in the first column."""
    within = re.match(r"blk\.(\d+)\.(.+)", name)
    layer, kind = (int(within[1]), within[2]) if within else (0, name)
    return layer, kind.removesuffix(".weight")


def _grid_row(kind: str, layers: Mapping[int, tuple[str, float | None]]) -> GridRow:
    cells = [
        Cell(FIRST_CELL + CELL * layer, f"{name}: {_share(share)}", share)
        for layer, (name, share) in sorted(layers.items())
    ]
    return GridRow(kind, tuple(cells), _row_summary([cell.share for cell in cells]))


def _share(share: float | None) -> str:
    if share is None:
        return "not compared"
    return "identical" if share == 0 else f"{_percent(share)} of its bytes differ"


def _percent(share: float) -> str:
    return "under 0.1%" if share < 0.001 else f"{share:.1%}"


def _row_summary(shares: Sequence[float | None]) -> str:
    """What a row shows, in words."""
    differing = [share for share in shares if share]
    parts = (
        (shares.count(0), "identical"),
        (len(differing), f"differ, {_percent(max(differing, default=0))} at most"),
        (shares.count(None), "not compared"),
    )
    told = [(count, what) for count, what in parts if count]
    return told[0][1] if len(told) == 1 and not differing else ", ".join(f"{count} {what}" for count, what in told)
