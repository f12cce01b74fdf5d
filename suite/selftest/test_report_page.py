"""The page is whole by itself, well formed, and says every outcome in words."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from suite.__main__ import main
from suite.kit.results import Outcome
from suite.report import figures
from suite.report.document import footer, write_json
from suite.report.matrix import subjects
from suite.report.page import render
from suite.report.terminal import SHORT, summary_lines
from suite.selftest.small_report import RESULTS, of_two_implementations, small_report

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Elements(HTMLParser):
    """Collects text and attributes; refuses an element that is not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += f" {data}"


def read(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    elements.close()
    assert elements.open == []
    elements.text = re.sub(r"\s+", " ", elements.text)
    return elements


@pytest.fixture(scope="module")
def page() -> str:
    return render([small_report()])


def test_it_is_well_formed_and_refers_to_nothing_outside_itself(page: str) -> None:
    elements = read(page)
    assert not {name for name, _ in elements.attributes} & {"src", "href", "srcset", "onclick", "onload"}
    assert not re.search(r"<script|<iframe|@import|url\(|https?://", page)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in elements.attributes


def test_its_sections_stand_in_the_order_that_a_reader_asks(page: str) -> None:
    assert re.findall(r"<h2>(.*?)</h2>", page) == [
        "What was tested",
        "Failures and errors",
        "Claims",
        "Declared deviations",
        "Figures beside the article's",
        "Plots",
        "Not exercised",
        "Versions and digests",
    ]


def test_the_verdict_counts_every_outcome_as_itself(page: str) -> None:
    verdict = "mine 0.1: 2 pass, 1 fail, 1 error, 1 deviation, 2 not offered, 1 hardware absent, 1 undecided"
    assert verdict in read(page).text
    assert "no implementation: 1 pass, 0 fail, 0 error" in read(page).text
    assert "incomplete" not in read(page).text
    assert "its weights went through Q4_1" in read(page).text


def test_the_matrix_shows_sign_and_word_of_every_outcome(page: str) -> None:
    cell = re.search(r"<summary><code>bytes\.quantize</code>.*?<td>(.*?)</td>", page, re.DOTALL)[1]
    assert re.findall(r">([^<]+)</span>", cell) == ["✗ 1 fail", "– 2 not offered"]
    for sign in ("✓ pass", "≠ deviation", "∅ hardware absent", "? undecided", "! error"):
        assert f">{sign}</span>" in page


def test_a_failure_shows_its_message_and_a_command_to_copy(page: str) -> None:
    assert "<pre>q8_0 &lt;differs&gt; from ggml\n  on 3 of 4 inputs</pre>" in page
    command = (
        "pytest &#39;suite/test_byte_identical.py::test_quantized[mine-q8_0]&#39; "
        "&#39;--checkpoint=/a folder&#39; --impl=mine:Mine"
    )
    assert f'<pre class="command">{command}</pre>' in page


def test_figures_stand_beside_the_articles(page: str) -> None:
    text = read(page).text
    assert re.search(r"identical tensors 212 212 equal", text)
    assert re.search(r"attn_q that differ 20 30 \+50\.0 %", text)
    assert re.search(r"step 0 cpu 0\.416 0\.500 \+20\.2 %", text)
    assert re.search(r"bytes that differ q8_0 not finite", text)


def test_what_was_not_exercised_and_what_deviates_have_their_reasons(page: str) -> None:
    text = read(page).text
    assert "4 cases: not offered, hardware absent, undecided" in text
    for reason in ("no Metal here", "nothing recorded", "mine does not offer q4_k q4_k, iq1_s", "keeps every output"):
        assert reason in text
    assert re.search(r"\d+ of \d+ claims were not selected .*conversion\.names", text)


def test_an_incomplete_run_says_so_and_is_no_green_verdict() -> None:
    report = small_report(complete=False)
    text = read(render([report])).text
    assert text.count("incomplete run: 1 of 11 cases without a verdict") == 3
    assert "a::lost" in text
    assert [subject.colour for subject in subjects([report])] == ["fail", "other"]
    assert [subject.colour for subject in subjects([small_report()])] == ["fail", "pass"]


def test_a_run_in_which_nothing_passed_is_no_green_verdict() -> None:
    undecided = tuple(result for result in RESULTS if result.outcome is Outcome.UNDECIDED)
    report = replace(small_report(), results=undecided, footer=footer(undecided, (), went_through=True))
    assert [subject.colour for subject in subjects([report])] == ["other"]


def test_a_stopped_run_is_incomplete_though_all_it_knows_of_has_a_verdict() -> None:
    report = replace(small_report(), footer=footer(RESULTS, (), went_through=False))
    assert "incomplete run" in read(render([report])).text


def test_runs_of_several_machines_become_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    systems = ("Linux x86_64", "Darwin arm64", "Linux x86_64")
    paths = [tmp_path / f"{position}.json" for position in range(len(systems))]
    for path, system in zip(paths, systems, strict=True):
        write_json(small_report(system=system), path)
    assert main(["report", *map(str, paths), "--into", str(tmp_path / "all")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'all' / 'report.html'}\n"
    page = (tmp_path / "all" / "report.html").read_text()
    for machine in ("Linux x86_64 (1)", "Darwin arm64", "Linux x86_64 (2)"):
        assert f'<th scope="col">mine 0.1 @ {machine}</th>' in page
    read(page)


def test_runs_on_several_checkpoints_are_told_apart_by_them() -> None:
    report = small_report()
    tiny = replace(report, header={**report.header, "checkpoint": {**report.header["checkpoint"], "name": "tiny"}})
    names = [subject.name for subject in subjects([report, tiny]) if subject.implementation]
    assert names == ["mine 0.1 @ Linux x86_64, smollm2", "mine 0.1 @ Linux x86_64, tiny"]


def test_a_file_that_is_no_report_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    assert main(["report", str(path), "--into", str(tmp_path / "all")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path}: found no report of this suite")
    assert not (tmp_path / "all").exists()


def test_the_terminal_shows_the_matrix_of_several_implementations_and_counts_none_as_another() -> None:
    lines = list(summary_lines(of_two_implementations()))
    header = next(position for position, line in enumerate(lines) if line.split() == ["mine", "other"])
    matrix = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines[header + 1 :] if line[:1].isalpha()}
    assert matrix["bytes.noperm"].split() == ["pass", "FAIL"]
    assert re.split(r"\s{2,}", matrix["bytes.quantize"]) == ["1 FAIL 2 n/o"]
    assert matrix["refusal.weights"] == "ERROR"
    assert "(FAIL fail, dev deviation, n/o not offered, hw hardware absent, und undecided, ERROR error)" in lines
    assert len(set(SHORT.values())) == len(Outcome)


def test_the_terminal_shows_no_matrix_of_one_implementation() -> None:
    assert not [line for line in summary_lines(small_report()) if line.startswith("(FAIL")]


@pytest.mark.parametrize(
    ("measured", "article", "expected"),
    [
        (3, 3, "equal"),
        (0.0, 0.0, "equal"),
        (0.5, 0.4, "+25.0 %"),
        (0.3, 0.4, "-25.0 %"),
        (50.0, 4.0, "+1,150.0 %"),
        (1.0, 0.0, "no ratio"),
        (float("nan"), 1.0, "no ratio"),
        (float("inf"), 1.0, "no ratio"),
    ],
)
def test_relative_differences(measured: float, article: float, expected: str) -> None:
    assert figures.relative_difference(measured, article) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(143041952, "143,041,952"), (0.5, "0.500"), (4.39e-5, "4.39e-05"), (0, "0"), (float("inf"), "not finite")],
)
def test_numbers(value: float, expected: str) -> None:
    assert figures.number(value) == expected


def test_a_figure_stands_in_the_column_of_who_measured_it() -> None:
    report = of_two_implementations()
    columns = subjects([report])
    assert [subject.implementation for subject in columns] == ["mine", "other", ""]
    (row,) = figures.rows("logits.ordering", columns[1::-1])
    assert (row.measured, row.article) == ((None, 0.5), 0.416)
    read(render([report]))
