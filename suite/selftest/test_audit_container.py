"""A header is never believed: what is wrong with it is said in one line, whatever it claims."""

import resource
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest

from impl.errors import InputError
from suite.__main__ import main
from suite.audit.audit import audit_file
from suite.audit.ggml_types import TYPES
from suite.audit.scan import scan
from suite.kit.tensors import open_gguf
from suite.selftest import gguf_edits as edits
from suite.selftest.gguf_edits import Edit, edited

ROWS, COLUMNS = 3, 64
MATRIX, VECTOR = "blk.0.matrix.weight", "blk.0.vector.weight"


def _write(path: Path, alignment: int | None = None, shape: tuple[int, ...] = (ROWS, COLUMNS)) -> Path:
    """Two tensors and a key of every sort: a number, a text, texts in an array."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment or gguf.GGUF_DEFAULT_ALIGNMENT)
    writer.add_uint32("x.number", 7)
    writer.add_uint32("x.nummer", 8)
    writer.add_array("x.texts", ["a", "Ġé", ""])
    writer.add_tensor(MATRIX, np.ones(shape, np.float32))
    writer.add_tensor(VECTOR, np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def correct(tmp_path: Path) -> Path:
    return _write(tmp_path / "correct.gguf")


KEY = "container.key"
TENSOR = "container.tensor"
MALFORMED: Mapping[str, tuple[Edit, str, str]] = {
    "version 0": (edits.set_number(edits.VERSION, "I", 0), "container.version", "found version 0"),
    "version 1": (edits.set_number(edits.VERSION, "I", 1), "container.version", "found version 1"),
    "a future version": (edits.set_number(edits.VERSION, "I", 99), "container.version", "found version 99"),
    "big-endian": (edits.set_number(edits.VERSION, "I", 3 << 24), "container.version", "found big-endian"),
    "-1 tensors": (edits.set_number(edits.TENSOR_COUNT, "q", -1), "container.count", "18446744073709551615 tensors"),
    "-1 keys": (edits.set_number(edits.KEY_COUNT, "q", -1), "container.count", "18446744073709551615 keys"),
    "2^63 tensors": (edits.set_number(edits.TENSOR_COUNT, "Q", 1 << 63), "container.count", "9223372036854775808 t"),
    "a key's name of 2^63 bytes": (
        edits.set_number(24, "Q", 1 << 63),
        "container.count",
        "9223372036854775808 bytes of the name of key 1 of 5",
    ),
    "an empty name": (
        edits.replaced(
            struct.pack("<Q", 8) + b"x.number" + struct.pack("<II", 4, 7),
            bytes(8) + struct.pack("<I", 4) + bytes(4) + bytes(8),
        ),
        KEY,
        "the name is empty",
    ),
    "a value of an unknown type": (edits.in_key("x.number", 0, "I", 13), KEY, "found value type 13"),
    "an array of arrays": (edits.in_key("x.texts", 4, "I", 9), KEY, "found an array of type 9"),
    "2^62 texts": (edits.in_key("x.texts", 8, "Q", 1 << 62), "container.count", "4611686018427387904 items"),
    "2^61 numbers": (edits.in_key("x.texts", 4, "IQ", 10, 1 << 61), "container.count", "2305843009213693952 items"),
    "a text of 2^40 bytes in an array": (edits.in_key("x.texts", 16, "Q", 1 << 40), "container.truncated", "x.texts"),
    "a key twice": (edits.replaced(b"x.nummer", b"x.number"), KEY, "x.number: found twice"),
    "alignment 13": (edits.in_key("general.alignment", 4, "I", 13), "container.alignment", "is 13"),
    "alignment 0": (edits.in_key("general.alignment", 4, "I", 0), "container.alignment", "is 0"),
    "alignment 4": (edits.in_key("general.alignment", 4, "I", 4), "container.alignment", "is 4"),
    "alignment as INT32": (edits.in_key("general.alignment", 0, "I", 5), "container.alignment", r"32 (INT32)"),
    "another alignment": (edits.in_key("general.alignment", 4, "I", 1024), "container.offset", "expected"),
    "a tensor's name of 2^63 bytes": (
        edits.replaced(struct.pack("<Q", len(MATRIX)) + b"blk", struct.pack("<Q", 1 << 63) + b"blk"),
        "container.count",
        "9223372036854775808 bytes of the name of tensor 1 of 2",
    ),
    "0 dimensions": (edits.in_info(MATRIX, 0, "I", 0), TENSOR, "found 0 dimensions"),
    "5 dimensions": (edits.in_info(MATRIX, 0, "I", 5), TENSOR, "found 5 dimensions"),
    "a negative dimension": (edits.in_info(MATRIX, 4, "q", -1), TENSOR, "which no file can hold"),
    "more elements than 2^63": (edits.in_info(MATRIX, 4, "QQ", 1 << 40, 1 << 40), TENSOR, "which no file can hold"),
    "more bytes than 2^63": (edits.in_info(MATRIX, 4, "Q", 1 << 60), TENSOR, "which no file can hold"),
    "more bytes than the file": (edits.in_info(MATRIX, 4, "Q", 1 << 40), "container.truncated", "tensors are cut off"),
    "an unknown type": (edits.in_info(MATRIX, 20, "I", 133), TENSOR, "found type 133"),
    "rows that split a block": (
        edits.in_info(MATRIX, 20, "I", 12),
        TENSOR,
        "rows of 64 in Q4_K, expected a multiple of 256",
    ),
    "an offset past the end": (edits.in_info(MATRIX, 24, "Q", 1 << 40), "container.offset", "past the end of the file"),
    "an offset of 2^64 - 1": (edits.in_info(MATRIX, 24, "q", -1), "container.offset", "past the end of the file"),
    "an unaligned offset": (edits.in_info(VECTOR, 12, "IQ", 0, 8), "container.offset", "no multiple of the alignment"),
    "overlapping tensors": (edits.in_info(VECTOR, 12, "IQ", 0, 32), "container.offset", "overlaps the tensor before"),
    "a gap": (edits.in_info(MATRIX, 24, "Q", 32), "container.offset", "leaves a gap after the tensor before"),
    "a tensor twice": (edits.replaced(VECTOR.encode(), MATRIX.encode()), "container.duplicate", "found twice"),
    "data short of one byte": (edits.cut(lambda size: size - 1), "container.truncated", "1 of 2 tensors are cut off"),
    "cut inside the infos": (edits.cut(lambda size: 260), "container.truncated", "the file ends inside"),
    "cut after the version": (edits.cut(lambda size: 8), "container.truncated", "the file ends inside the counts"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_malformed_is_named(case: str, correct: Path, tmp_path: Path) -> None:
    edit, rule, words = MALFORMED[case]
    findings = scan(edited(correct, tmp_path / "malformed.gguf", edit)).findings
    assert [finding for finding in findings if finding.rule.startswith(rule) and words in finding.message], findings
    assert all("\n" not in finding.message for finding in findings)


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_malformed_is_a_finding_and_no_traceback(
    case: str, correct: Path, tmp_path: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(correct, tmp_path / "malformed.gguf", MALFORMED[case][0])
    assert main(["audit", str(tmp_path / "malformed.gguf"), "--source", str(tiny_checkpoint)]) == 1
    assert "0 of 21 tensors could be compared" in capsys.readouterr().out


def test_what_a_name_holds_cannot_write_on_the_terminal(
    correct: Path, tmp_path: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit = edits.replaced(MATRIX.encode(), b"\x1b[2Jx\n" + MATRIX.encode()[6:])
    assert main(["audit", str(edited(correct, tmp_path / "f.gguf", edit)), "--source", str(tiny_checkpoint)]) == 1
    printed = capsys.readouterr().out
    assert r"\x1b[2Jx\n" in printed and "\x1b" not in printed


def test_every_prefix_of_a_file_is_a_finding(correct: Path, tmp_path: Path) -> None:
    whole = correct.read_bytes()
    for size in range(4, len(whole)):
        (tmp_path / "prefix.gguf").write_bytes(whole[:size])
        assert scan(tmp_path / "prefix.gguf").findings, f"nothing found in the first {size} bytes"


def test_no_flipped_bit_of_a_header_ends_in_an_exception(correct: Path, tmp_path: Path) -> None:
    whole = correct.read_bytes()
    for bit in range(4 * 8, scan(correct).tensors[MATRIX].offset * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "damaged.gguf").write_bytes(damaged)
        scan(tmp_path / "damaged.gguf")


@pytest.mark.parametrize(
    "case", ["-1 tensors", "2^63 tensors", "2^62 texts", "2^61 numbers", "more bytes than the file"]
)
def test_a_hostile_count_allocates_nothing(case: str, correct: Path, tmp_path: Path) -> None:
    edited(correct, tmp_path / "hostile.gguf", MALFORMED[case][0])
    limit = 1 << 30
    code = "import sys; from pathlib import Path; from suite.audit.scan import scan; scan(Path(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "hostile.gguf")],
        check=True,
        timeout=20,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize("content", [b"", b"GGU", b"ggml" + bytes(60), b"FUGG" + bytes(60)])
def test_what_is_no_gguf_is_unusable(
    content: bytes, tmp_path: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.gguf").write_bytes(content)
    assert main(["audit", str(tmp_path / "file.gguf"), "--source", str(tiny_checkpoint)]) == 2
    assert capsys.readouterr().err.endswith("not a GGUF file: it does not begin with GGUF\n")


@pytest.mark.parametrize("name", ["absent.gguf", "."])
def test_what_cannot_be_read_is_unusable(
    name: str, tmp_path: Path, tiny_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(tmp_path / name), "--source", str(tiny_checkpoint)]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_part_of_a_split_file_is_refused_and_the_missing_part_named(correct: Path, tmp_path: Path) -> None:
    parts = [tmp_path / f"model-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
    for part in (parts[0], parts[2]):
        part.write_bytes(correct.read_bytes())
    with pytest.raises(InputError, match=r"model-00002-of-00003\.gguf is missing"):
        scan(parts[0])
    parts[1].write_bytes(correct.read_bytes())
    with pytest.raises(InputError, match="merge them first"):
        scan(parts[0])
    single = correct.rename(tmp_path / "model-00001-of-00001.gguf")
    assert not scan(single).findings


@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
def test_any_alignment_is_read_as_the_gguf_package_reads_it(alignment: int, tmp_path: Path) -> None:
    file = _write(tmp_path / "file.gguf", alignment)
    container = scan(file)
    assert not container.findings
    for tensor in open_gguf(file).tensors:
        found = container.tensors[tensor.name]
        assert found.offset == tensor.data_offset
        assert found.size == tensor.n_bytes
        assert list(found.shape) == tensor.shape.tolist()[::-1]
        assert found.type.label == tensor.tensor_type.name
    assert container.keys["x.number"].content == 7
    assert container.keys["x.texts"].items == 3


def test_a_file_of_nothing_is_read_and_nothing_compared_is_no_pass(tmp_path: Path, tiny_checkpoint: Path) -> None:
    (tmp_path / "empty.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(8))
    container = scan(tmp_path / "empty.gguf")
    assert container.has_all_tensors and not container.findings
    assert "values.coverage" in {
        finding.rule for finding in audit_file(tmp_path / "empty.gguf", tiny_checkpoint).findings
    }


def test_a_dimension_of_zero_is_read(tmp_path: Path) -> None:
    assert not scan(_write(tmp_path / "file.gguf", shape=(0, COLUMNS))).findings


def test_the_types_are_those_of_the_gguf_package() -> None:
    for type, (values, size) in gguf.GGML_QUANT_SIZES.items():
        assert (TYPES[type].label, TYPES[type].values, TYPES[type].bytes) == (type.name, values, size)
