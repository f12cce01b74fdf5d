"""Plots stand where arithmetic says, and say what they cannot show."""

from itertools import pairwise

import pytest

from suite.kit.results import Series
from suite.report.step_plot import BOTTOM, LEFT, LINE_HEIGHT, MOST_TICKS, RIGHT, TOP, step_plot
from suite.report.tensor_grid import CELL, tensor_grid


def test_a_decade_is_a_decade_high() -> None:
    plot = step_plot([Series("f32", (0.01, 0.1, 1.0))])
    middle = (LEFT + RIGHT) / 2
    expected = f"{LEFT:.1f},{BOTTOM:.1f} {middle:.1f},{(TOP + BOTTOM) / 2:.1f} {RIGHT:.1f},{TOP:.1f}"
    assert plot.lines[0].runs == (expected,)
    assert [(tick.at, tick.text) for tick in plot.heights] == [
        (BOTTOM, "1e-2"),
        ((TOP + BOTTOM) / 2, "0.1"),
        (TOP, "1"),
    ]
    assert [tick.text for tick in plot.steps] == ["0", "1", "2"]
    assert plot.notes == ()


def test_lines_break_where_the_axis_has_no_place_and_a_note_says_so() -> None:
    plot = step_plot([Series("q8_0", (1.0, 0.0, 2.0, 3.0, float("inf"), float("nan"), 1.0))])
    assert [len(run.split()) for run in plot.lines[0].runs] == [1, 2, 1]
    assert plot.notes == (
        "q8_0: 1 of 7 steps are 0, which a logarithmic axis has no place for",
        "q8_0: 2 of 7 steps are not a finite number",
    )


@pytest.mark.parametrize("values", [(0.0, 0.0), (float("nan"),)])
def test_nothing_to_draw_is_a_plot_with_a_note(values: tuple[float, ...]) -> None:
    plot = step_plot([Series("own", values)])
    assert plot.lines[0].runs == ()
    assert len(plot.notes) == 1


def test_one_step_and_one_value_have_a_place() -> None:
    plot = step_plot([Series("own", (1.0,))])
    assert plot.lines[0].runs == (f"{LEFT:.1f},{BOTTOM:.1f}",)


@pytest.mark.parametrize("level", [1.0001, 5.0, 9.999])
def test_names_of_lines_close_together_stay_apart_and_inside(level: float) -> None:
    plot = step_plot([Series(name, (level * (1 + i / 1e4), 1.0, 10.0, level)) for i, name in enumerate("abcde")])
    heights = sorted(line.label_at for line in plot.lines)
    assert all(below - above >= LINE_HEIGHT - 1e-9 for above, below in pairwise(heights))
    assert heights[-1] <= BOTTOM


def test_a_wide_axis_has_few_ticks() -> None:
    plot = step_plot([Series("f32", (1e-9, 1e9))])
    assert len(plot.heights) <= MOST_TICKS + 1


def test_a_grid_has_a_row_for_each_kind_and_a_column_for_each_layer() -> None:
    names = ("token_embd.weight", "blk.0.attn_q.weight", "blk.2.attn_q.weight", "blk.0.attn_v.weight")
    grid = tensor_grid(Series("share", (0.0, 0.25, 1.0, None), names))
    assert [row.kind for row in grid.rows] == ["attn_q", "attn_v", "token_embd"]
    assert [row.summary for row in grid.rows] == ["2 differ, 100.0% at most", "not compared", "identical"]
    first, third = grid.rows[0].cells
    assert third.at - first.at == 2 * CELL
    assert [first.share, third.share] == [0.25, 1.0]
    assert first.title == "blk.0.attn_q.weight: 25.0% of its bytes differ"
    assert (grid.identical, grid.total) == (1, 4)


def test_a_row_that_is_mixed_says_how() -> None:
    names = tuple(f"blk.{layer}.ffn_down.weight" for layer in range(4))
    (row,) = tensor_grid(Series("share", (0.0, 0.0004, None, None), names)).rows
    assert row.summary == "1 identical, 1 differ, under 0.1% at most, 2 not compared"
