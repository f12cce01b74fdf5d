"""Files made once: by how many, under what name, and what an error leaves."""

import multiprocessing
import time
from pathlib import Path

import pytest

from suite.kit.artifacts import ArtifactStore, written_beside


def _write(text: str, path: Path) -> None:
    path.write_text(text)


def _build_slowly(folder: Path) -> None:
    def builder(path: Path) -> None:
        with (folder / "builds").open("a") as file:
            file.write("built\n")
        path.write_text("half")
        time.sleep(0.3)
        path.write_text("whole")

    assert ArtifactStore(folder / "store").build("slow", {}, builder).read_text() == "whole"


def test_processes_that_ask_together_get_one_build(tmp_path: Path) -> None:
    processes = [multiprocessing.Process(target=_build_slowly, args=(tmp_path,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "builds").read_text() == "built\n"


def test_other_parts_label_or_suffix_are_another_file(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    asked = [("a", {"x": "1"}, ""), ("a", {"x": "2"}, ""), ("b", {"x": "1"}, ""), ("a", {"x": "1"}, ".npy")]
    paths = [
        store.build(label, parts, lambda path, n=n: _write(str(n), path), suffix)
        for n, (label, parts, suffix) in enumerate(asked)
    ]
    assert [path.read_text() for path in paths] == ["0", "1", "2", "3"]


def test_labels_that_read_alike_are_different_files(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    paths = {store.build(label, {}, lambda path: _write("x", path), ".gguf") for label in ("a/b", "a:b", "../a b")}
    assert len(paths) == 3
    assert {path.parent for path in paths} == {tmp_path}


def test_order_of_parts_is_no_part_of_the_key(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    first = store.build("a", {"x": "1", "y": "2"}, lambda path: _write("first", path))
    second = store.build("a", {"y": "2", "x": "1"}, lambda path: _write("second", path))
    assert first == second
    assert second.read_text() == "first"


def test_failed_build_reaches_each_asker_and_leaves_nothing(tmp_path: Path) -> None:
    def builder(path: Path) -> None:
        path.write_text("half")
        path.with_suffix(".extra").write_text("more")
        raise ValueError("out of blocks")

    for _ in range(2):
        with pytest.raises(ValueError, match="out of blocks"):
            ArtifactStore(tmp_path).build("a", {}, builder, ".gguf")
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []
    good = ArtifactStore(tmp_path).build("a", {}, lambda path: _write("good", path), ".gguf")
    assert good.read_text() == "good"


def test_builder_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="artifact silent: nothing was written"):
        ArtifactStore(tmp_path).build("silent", {}, lambda path: None)


def test_written_beside_keeps_the_old_file_until_the_new_is_whole(tmp_path: Path) -> None:
    output = tmp_path / "model.gguf"
    output.write_text("old")
    with pytest.raises(ValueError, match="stop"), written_beside(output) as unfinished:
        unfinished.write_text("half")
        raise ValueError("stop")
    assert output.read_text() == "old"
    with written_beside(output) as unfinished:
        unfinished.write_text("new")
        assert output.read_text() == "old"
        assert unfinished.name == output.name
    assert output.read_text() == "new"
    assert list(tmp_path.iterdir()) == [output]
