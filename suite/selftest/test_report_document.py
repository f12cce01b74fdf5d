"""``report.json`` follows its schema, reads back as it was, and one that was cut or edited is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from impl.errors import InputError
from suite.kit.results import Outcome
from suite.report.document import SCHEMA_FILE, read_json, write_json
from suite.selftest.small_report import small_report

SCHEMA = json.loads(SCHEMA_FILE.read_text())


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "new" / "report.json"
    write_json(small_report(), path)
    return path


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_report_follows_the_schema(written: Path) -> None:
    jsonschema.validate(json.loads(written.read_text()), SCHEMA, jsonschema.Draft202012Validator)


def test_the_schema_knows_every_outcome() -> None:
    assert SCHEMA["properties"]["results"]["items"]["properties"]["outcome"]["enum"] == [str(each) for each in Outcome]


def test_a_report_is_json_for_strict_readers_too(written: Path) -> None:
    """RFC 8259 has neither Infinity nor NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    document = json.loads(written.read_text(), parse_constant=refuse)
    assert document["results"][1]["figures"][0]["measured"] == "inf"


def test_a_report_reads_back_as_it_was(written: Path) -> None:
    assert read_json(written) == small_report()


def test_the_footer_counts() -> None:
    assert small_report().incompleteness == ""
    lost = small_report(complete=False)
    assert lost.incompleteness == "incomplete run: 1 of 11 cases without a verdict"
    assert lost.footer["without_verdict"] == ["a::lost"]


def drop_a_result(document: dict) -> None:
    del document["results"][3]


def claim_another_outcome(document: dict) -> None:
    document["results"][1]["outcome"] = "skipped"


def come_from_another_version(document: dict) -> None:
    document["version"] = 1


def be_something_else(document: dict) -> None:
    del document["schema"]


def lose_the_footer(document: dict) -> None:
    del document["footer"]


def measure_text(document: dict) -> None:
    document["results"][0]["figures"][0]["measured"] = "many"


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (drop_a_result, "found 9 results, expected the 10 of its footer"),
        (claim_another_outcome, r"\$\.results\[1\]\.outcome: 'skipped'"),
        (come_from_another_version, "found version 1, expected gguf-conformance/report version 2"),
        (be_something_else, "found no report of this suite"),
        (lose_the_footer, "'footer' is a required property"),
        (measure_text, r"\$\.results\[0\]\.figures\[0\]\.measured"),
    ],
)
def test_what_is_no_whole_report_is_refused_in_one_line(
    written: Path, edit: Callable[[dict], None], found: str
) -> None:
    document = json.loads(written.read_text())
    edit(document)
    written.write_text(json.dumps(document))
    with pytest.raises(InputError, match=found) as refusal:
        read_json(written)
    assert str(refusal.value).startswith(str(written))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "[1, 2", "[]", "null", "\x80"])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"report\.json: (not a readable report|found no report)"):
        read_json(path)
