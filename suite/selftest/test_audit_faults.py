"""Each fault planted in a correct file is found by the rule meant for it, in words that name the cause."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from impl.catalogue import resolve
from suite.__main__ import main
from suite.audit.audit import audit_file
from suite.kit import surgery
from suite.kit.checkpoints import find_checkpoint
from suite.kit.rows import gguf_row_order, in_gguf_order
from suite.selftest import gguf_edits as edits
from suite.selftest.gguf_edits import edited
from suite.selftest.small_checkpoint import write_checkpoint

FREQ_BASE = "llama.rope.freq_base"
COVERAGE = "values.coverage"
BYTE = r"byte ([\d,]+) of the file is (0x..), (0x..) would be right"
Change = Callable[[Path, Path], object]
"""Writes the faulty file, its second argument, from the correct one."""


@dataclass(frozen=True)
class Fault:
    """What is done to a correct Q8_0 file, and what the audit must say of it: the rules broken, and a pattern."""

    change: Change
    rules: tuple[str, ...]
    words: str


def _edit(edit: edits.Edit) -> Change:
    return partial(edited, edit=edit)


def _key(key: str, content: object) -> Change:
    return partial(surgery.set_key, key=key, content=content)


def _flip(name: str, offset: int, bits: int) -> Change:
    return _edit(edits.flipped(name, offset, bits))


def _rows(name: str, order: Callable[[np.ndarray], np.ndarray]) -> Change:
    """Put the rows of a tensor in the order that ``order`` gives their numbers."""

    def edit(data: bytearray, tensors: dict) -> None:
        tensor = tensors[name]
        place = slice(tensor.offset, tensor.offset + tensor.size)
        rows = np.frombuffer(bytes(data[place]), np.uint8).reshape(tensor.shape[0], -1)
        data[place] = order(rows).tobytes()

    return _edit(edit)


FAULTS: Mapping[str, Fault] = {
    "noperm": Fault(
        surgery.without_permutation,
        ("values.permutation",),
        "2 attn_q and 2 attn_k: the rows are in the checkpoint's order; the 4 q/k tensors match once permuted",
    ),
    "one k unpermuted": Fault(
        _rows("blk.1.attn_k.weight", lambda rows: rows[np.argsort(gguf_row_order(32, 2))]),
        ("values.permutation",),
        "1 attn_k: the rows are in the checkpoint's order; it matches once permuted",
    ),
    "permuted twice": Fault(
        _rows("blk.0.attn_q.weight", lambda rows: in_gguf_order(rows, 8)),
        ("values.permutation",),
        "1 attn_q: the rows were permuted twice",
    ),
    "no freq_base": Fault(
        partial(surgery.drop_key, key=FREQ_BASE),
        ("metadata.missing",),
        r"llama.rope.freq_base is absent: readers use 10000, config.json says 31000 \(rope_theta\)",
    ),
    "freq_base of another type": Fault(
        _edit(edits.in_key(FREQ_BASE, 0, "I", 5)),
        ("metadata.type",),
        "llama.rope.freq_base is a INT32, expected a FLOAT32: candle takes 10000, llama.cpp refuses",
    ),
    "no architecture": Fault(
        partial(surgery.drop_key, key="general.architecture"),
        ("metadata.missing",),
        "general.architecture is absent: every reader refuses the file",
    ),
    "no head size": Fault(
        partial(surgery.drop_key, key="llama.attention.key_length"),
        ("metadata.missing",),
        "llama.attention.key_length is absent: readers use 12, config.json says 16",
    ),
    "head_count 7": Fault(
        _key("llama.attention.head_count", 7),
        ("metadata.value",),
        r"llama.attention.head_count is 7, config.json says 8 \(num_attention_heads\)",
    ),
    "eps 1e-6": Fault(
        _key("llama.attention.layer_norm_rms_epsilon", 1e-6),
        ("metadata.value",),
        "llama.attention.layer_norm_rms_epsilon is 1e-06, config.json says 3e-06",
    ),
    "a token too few": Fault(
        _key("tokenizer.ggml.token_type", [1] * 263),
        ("metadata.vocabulary",),
        "tokenizer.ggml.token_type has 263 items, the embedding 264 rows",
    ),
    "neox": Fault(
        surgery.neox, ("metadata.value", "values.permutation"), "general.architecture is qwen2, config.json says llama"
    ),
    "a missing tensor": Fault(
        partial(surgery.drop_tensor, name="blk.1.ffn_up.weight"),
        ("tensors.missing", COVERAGE),
        r"blk.1.ffn_up.weight: absent, the checkpoint has it as \[512, 96\]",
    ),
    "a renamed tensor": Fault(
        _edit(edits.replaced(b"blk.1.ffn_up.weight", b"blk.9.ffn_up.weight")),
        ("tensors.missing", "tensors.unexpected", COVERAGE),
        "blk.9.ffn_up.weight: the checkpoint has no such tensor",
    ),
    "a duplicated tensor": Fault(
        _edit(edits.replaced(b"blk.1.ffn_up.weight", b"blk.0.ffn_up.weight")),
        ("container.duplicate", "tensors.missing", COVERAGE),
        "blk.0.ffn_up.weight: found twice, expected once",
    ),
    "a transposed shape": Fault(
        _edit(edits.in_info("blk.0.ffn_up.weight", 4, "QQ", 512, 96)),
        ("tensors.shape", COVERAGE),
        r"blk.0.ffn_up.weight: has shape \[96, 512\], expected \[512, 96\]",
    ),
    "a swapped pair": Fault(
        _edit(edits.holding("blk.0.attn_v.weight", "blk.1.attn_v.weight", swap=True)),
        ("values.misplaced",),
        "blk.0.attn_v.weight and blk.1.attn_v.weight are swapped",
    ),
    "gate and up swapped": Fault(
        _edit(edits.holding("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", swap=True)),
        ("values.misplaced",),
        "blk.0.ffn_gate.weight and blk.0.ffn_up.weight are swapped",
    ),
    "norms swapped": Fault(
        _edit(edits.holding("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", swap=True)),
        ("values.misplaced",),
        "blk.0.attn_norm.weight and blk.0.ffn_norm.weight are swapped",
    ),
    "a tensor of another layer": Fault(
        _edit(edits.holding("blk.1.ffn_down.weight", "blk.0.ffn_down.weight")),
        ("values.misplaced",),
        "blk.1.ffn_down.weight: holds the checkpoint's blk.0.ffn_down.weight",
    ),
    "a flipped byte": Fault(
        _flip("blk.1.ffn_up.weight", 5 * 102 + 34 + 7, 0x80),
        ("values.damaged",),
        r"blk.1.ffn_up.weight: 1 of 1,536 blocks far from the checkpoint: row 5, block 1: byte [\d,]+ of the file is",
    ),
    "a flipped bit that hardly matters": Fault(
        _flip("blk.1.ffn_up.weight", 34 + 7, 0x01),
        ("values.stray",),
        "blk.1.ffn_up.weight: 1 of 1,536 blocks not as requantizing gives them, .*: row 0, block 1: byte",
    ),
    "a flipped bit of a norm": Fault(
        _flip("blk.0.attn_norm.weight", 44, 0x01),
        ("values.damaged",),
        "blk.0.attn_norm.weight: 1 of 3 blocks far from the checkpoint: row 0, block 0: byte",
    ),
    "a NaN scale": Fault(
        _edit(edits.overwritten("blk.0.attn_q.weight", 34 * 4, b"\x00\x7e")),
        ("values.finite",),
        r"blk.0.attn_q.weight: 1 of 384 blocks with a NaN or infinite scale: row 1, block 1",
    ),
    "an infinite scale": Fault(
        _edit(edits.overwritten("token_embd.weight", 0, b"\x00\x7c")),
        ("values.finite",),
        "token_embd.weight: 1 of 792 blocks with a NaN or infinite scale: row 0, block 0",
    ),
    "half a file": Fault(
        _edit(edits.cut(lambda size: size // 2)),
        ("container.truncated", COVERAGE),
        r"the file ends at byte [\d,]+ of [\d,]+: \d+ of 21 tensors are cut off, the first is",
    ),
    "a few bytes short": Fault(
        _edit(edits.cut(lambda size: size - 40)),
        ("container.truncated", COVERAGE),
        "1 of 21 tensors are cut off",
    ),
    "an offset past the end": Fault(
        _edit(edits.in_info("blk.0.ffn_up.weight", 24, "Q", 1 << 40)),
        ("container.offset", COVERAGE),
        "blk.0.ffn_up.weight: found offset 1099511627776, expected [0-9]+: past the end of the file",
    ),
    "an offset at another tensor": Fault(
        _edit(edits.in_info("blk.0.attn_q.weight", 24, "Q", 0)),
        ("container.offset", "values.envelope"),
        "blk.0.attn_q.weight: found offset 0, expected [0-9]+: it overlaps the tensor before",
    ),
    "a count of 2^63": Fault(
        _edit(edits.set_number(edits.TENSOR_COUNT, "Q", 1 << 63)),
        ("container.count", COVERAGE),
        r"found 9223372036854775808 tensors, where [0-9]+ bytes are left of the file",
    ),
}


@pytest.fixture(scope="module")
def correct(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("audit") / "correct.gguf"
    resolve("reference").convert(tiny_checkpoint, output, "q8_0", "full")
    return output


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_named(
    fault: str, correct: Path, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected, faulty = FAULTS[fault], tmp_path / "faulty.gguf"
    expected.change(correct, faulty)
    assert main(["audit", str(faulty), "--source", str(tiny_checkpoint)]) == 1
    printed = capsys.readouterr()
    assert re.search(expected.words, printed.out), printed.out
    assert printed.err == ""
    audit = audit_file(faulty, tiny_checkpoint)
    assert {finding.rule for finding in audit.findings if finding.breaks} == set(expected.rules), printed.out


@pytest.mark.parametrize("fault", ["a flipped byte", "a flipped bit that hardly matters", "a flipped bit of a norm"])
def test_the_flipped_byte_is_named_to_the_byte(
    fault: str, correct: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    FAULTS[fault].change(correct, tmp_path / "faulty.gguf")
    (finding,) = [each for each in audit_file(tmp_path / "faulty.gguf", tiny_checkpoint).findings if each.breaks]
    (offset, *values), size = re.search(BYTE, finding.message).groups(), finding.size
    place = int(offset.replace(",", ""))
    assert (finding.offset, size) == (place, 1)
    right, found = (path.read_bytes()[place] for path in (correct, tmp_path / "faulty.gguf"))
    assert [int(value, 16) for value in values] == [found, right] and found != right


def test_where_all_else_is_requantized_alike_the_bytes_decide_and_not_the_error(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """A Q4_0 block's scale is not the one of least error: another byte often comes nearer than the one flipped."""
    resolve("reference").convert(tiny_checkpoint, tmp_path / "correct.gguf", "q4_0", "full")
    for block in range(0, 60, 5):
        flip = edits.flipped("blk.1.ffn_up.weight", 18 * block + 5, 0x01)
        faulty = edited(tmp_path / "correct.gguf", tmp_path / "faulty.gguf", flip)
        (finding,) = [each for each in audit_file(faulty, tiny_checkpoint).findings if each.breaks]
        assert faulty.read_bytes()[finding.offset] == (tmp_path / "correct.gguf").read_bytes()[finding.offset] ^ 0x01


def test_frequency_divisors_are_computed_and_compared(tmp_path: Path) -> None:
    """Llama 3's scaling, against the file of a converter that computes them by itself."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    folder = write_checkpoint(tmp_path / "c", {"rope_scaling": {**scaling, "original_max_position_embeddings": 64}})
    file = tmp_path / "file.gguf"
    resolve("reference").convert(folder, file, "q8_0", "full")
    audit = audit_file(file, folder)
    assert audit.is_clean and "rope_freqs.weight" in {each.tensor.name for each in audit.comparisons}
    surgery.set_bytes(file, tmp_path / "other.gguf", "rope_freqs.weight", 28, np.float32(7).tobytes())
    surgery.drop_tensor(file, tmp_path / "none.gguf", "rope_freqs.weight")
    for name, rule in (("other", "values."), ("none", "tensors.missing")):
        findings = audit_file(tmp_path / f"{name}.gguf", folder).findings
        assert any(each.rule.startswith(rule) and "rope_freqs.weight" in each.subjects for each in findings)


def test_the_correct_file_is_clean(correct: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(correct), "--source", str(tiny_checkpoint)]) == 0
    assert "21 of 21 tensors compared: 5 exactly, 16 requantized byte for byte" in capsys.readouterr().out


CONVERTERS: Mapping[str, tuple[str, str]] = {
    "NoPermutation": ("values.permutation", "the 4 q/k tensors match once permuted"),
    "KPermutedWithQueryHeads": ("values.permutation", "2 attn_k: the rows were permuted with 8 heads instead of 2"),
    "KPermutedWithQuotient": ("values.permutation", "2 attn_k: the rows were permuted with 4 heads instead of 2"),
    "NoFreqBase": ("metadata.missing", "readers use 10000, config.json says 31000"),
    "QuantizedNorms": ("tensors.type", "output_norm.weight: is F16, expected F32 as every vector"),
}


@pytest.mark.parametrize("converter", CONVERTERS)
@pytest.mark.parametrize("recipe", ["q8_0", "q4_k_m"])
def test_a_faulty_converter_is_seen_through(converter: str, recipe: str, tiny_checkpoint: Path, tmp_path: Path) -> None:
    rule, words = CONVERTERS[converter]
    resolve(f"impl.faulty.converters:{converter}").convert(tiny_checkpoint, tmp_path / "file.gguf", recipe, "full")
    findings = [finding for finding in audit_file(tmp_path / "file.gguf", tiny_checkpoint).findings if finding.breaks]
    assert {finding.rule for finding in findings} == {rule}
    assert any(words in finding.message for finding in findings)


def test_a_tied_head_written_twice_is_found(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    tied = find_checkpoint("tiny-tied", pytestconfig.getoption("--cache")).folder
    for name, rules in (("reference", set()), ("impl.faulty.converters:TiedHeadTwice", {"tensors.tied-head"})):
        file = tmp_path / f"{len(rules)}.gguf"
        resolve(name).convert(tied, file, "q8_0", "full")
        assert {finding.rule for finding in audit_file(file, tied).findings if finding.breaks} == rules
