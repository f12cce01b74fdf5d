"""Bad input is refused in one line that names what is wrong, and leaves nothing behind."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from impl.protocol import Converter, Quantizer, takes_importance
from suite.claims import claim
from suite.kit.answers import quantized
from suite.kit.block_inputs import NON_FINITE, TOO_LARGE, BlockInput
from suite.kit.broken_checkpoints import BREAKS, broken_copy
from suite.kit.oracle import read_by_ggml
from suite.kit.selection import require_member


@claim("refusal.checkpoint")
@pytest.mark.parametrize("fault", BREAKS)
def test_a_broken_checkpoint_is_refused(
    tiny_checkpoint: Path, converter: Converter, fault: str, tmp_path: Path
) -> None:
    """A checkpoint that is truncated, incomplete, of another architecture or not finite is refused in one line
    naming the file, tensor or key; no output is left."""
    broken = broken_copy(tiny_checkpoint, tmp_path / "checkpoint", BREAKS[fault])
    output = tmp_path / "output" / "model.gguf"
    output.parent.mkdir()
    _require_refusal(converter, broken, output, "q8_0", BREAKS[fault].names)
    assert not list(output.parent.iterdir()), "a partial file is left behind"


@claim("refusal.output")
@pytest.mark.parametrize("fault", ["unwritable output", "unknown recipe"])
def test_an_impossible_request_is_refused(
    tiny_checkpoint: Path, converter: Converter, fault: str, tmp_path: Path
) -> None:
    """An output that cannot be written and a recipe that does not exist are refused in one line naming them."""
    (tmp_path / "a-file").touch()
    output, recipe, name = {
        "unwritable output": (tmp_path / "a-file" / "model.gguf", "q8_0", "a-file"),
        "unknown recipe": (tmp_path / "model.gguf", "q9_9", "q9_9"),
    }[fault]
    before = sorted(tmp_path.iterdir())
    _require_refusal(converter, tiny_checkpoint, output, recipe, name)
    assert sorted(tmp_path.iterdir()) == before, "a partial file is left behind"


@claim("refusal.weights")
@pytest.mark.parametrize("chosen", NON_FINITE, ids=lambda chosen: chosen.name)
def test_a_weight_that_is_not_finite_is_refused(quantizer: Quantizer, block_type: str, chosen: BlockInput) -> None:
    """One NaN or infinity among the weights is refused in an error that names its row and column."""
    require_member(quantizer, "types", block_type)
    weight = chosen.weight()
    ((row, column),) = np.argwhere(~np.isfinite(weight))
    with pytest.raises(Exception, match=rf"\b{row}\b.*\b{column}\b"):
        quantized(quantizer, weight, block_type, _importance(quantizer, weight))


@claim("refusal.overflow")
@pytest.mark.parametrize("chosen", TOO_LARGE, ids=lambda chosen: chosen.name)
def test_no_weight_becomes_infinite(quantizer: Quantizer, block_type: str, chosen: BlockInput) -> None:
    """A finite weight too large for a block's scale is refused, or comes back finite: never as infinity or NaN."""
    require_member(quantizer, "types", block_type)
    weight = chosen.weight()
    try:
        blocks = quantized(quantizer, weight, block_type, _importance(quantizer, weight))
    except Exception as refusal:
        assert str(refusal), "refused without a word"
        return
    read = read_by_ggml(blocks, block_type)
    row, column = np.unravel_index(np.argmin(np.isfinite(read)), read.shape)
    assert np.isfinite(read).all(), (
        f"{block_type}: {np.count_nonzero(~np.isfinite(read))} weights become infinite or NaN, the first at row {row}, "
        f"column {column}: {weight[row, column]:.6g} reads back as {read[row, column]}"
    )


def _importance(quantizer: Quantizer, weight: NDArray[np.float32]) -> NDArray[np.float32] | None:
    # Some types are quantized with an importance only.
    return np.ones(weight.shape[1], dtype=np.float32) if takes_importance(quantizer.quantize) else None


def _require_refusal(converter: Converter, checkpoint: Path, output: Path, recipe: str, name: str) -> None:
    with pytest.raises(Exception) as refusal:
        converter.convert(checkpoint, output, recipe, "minimal")
    message = str(refusal.value)
    assert name in message, f"the error does not name {name}: {message}"
    assert len(message.splitlines()) == 1, f"the error is {len(message.splitlines())} lines long"
