"""``python -m suite``: checkpoints, reference runs, comparisons, reports, vectors and the benchmark."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from impl.errors import InputError
from suite.audit import command as auditing
from suite.kit.checkpoints import BUILDERS, default_cache, find_checkpoint


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; 0 when all is well, 1 for findings, 2 for unusable input."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m suite", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    named = f"{', '.join(BUILDERS)}, hub:ORG/NAME or a folder"

    checkpoint = commands.add_parser("checkpoint", help="print the folder of a checkpoint, building it on first use")
    checkpoint.set_defaults(run=_checkpoint)
    record = commands.add_parser("record", help="generate the reference run of a checkpoint and record it")
    record.add_argument("--into", type=Path, default=None, metavar="DIR", help="folder [snapshots/reference-runs]")
    record.set_defaults(run=_record)
    for command in (checkpoint, record):
        command.add_argument("name", help=named)
        command.add_argument("--cache", type=Path, default=default_cache(), metavar="DIR")

    compare = commands.add_parser("compare", help="compare two GGUF files tensor by tensor, byte by byte")
    compare.add_argument("a", type=Path)
    compare.add_argument("b", type=Path)
    compare.set_defaults(run=_compare)

    report = commands.add_parser("report", help="combine the report.json of several runs into one page")
    report.add_argument("runs", type=Path, nargs="+", metavar="JSON")
    report.add_argument("--into", type=Path, required=True, metavar="DIR", help="where report.html is written")
    report.set_defaults(run=_report)

    audit = commands.add_parser("audit", help=auditing.HELP)
    auditing.add_arguments(audit)
    audit.add_argument("--cache", type=Path, default=default_cache(), metavar="DIR")
    audit.set_defaults(run=auditing.run)

    vectors = commands.add_parser("vectors", help="record each block type's vectors, for programs in any language")
    vectors.add_argument("--into", type=Path, default=None, metavar="DIR", help="folder [snapshots/vectors]")
    vectors.set_defaults(run=_vectors)

    benchmark = commands.add_parser("benchmark", help="measure the conversion and the whole run: time and memory")
    benchmark.add_argument("--cache", type=Path, default=default_cache(), metavar="DIR")
    benchmark.set_defaults(run=_benchmark)
    engines = commands.add_parser("benchmark-engines", help="measure engines side by side: tokens per second")
    engines.add_argument("name", nargs="?", default="smollm2", help=f"{named} [smollm2]")
    engines.add_argument("--cache", type=Path, default=default_cache(), metavar="DIR")
    engines.set_defaults(run=_benchmark_engines)
    return parser


def _checkpoint(options: argparse.Namespace) -> int:
    print(find_checkpoint(options.name, options.cache).folder)
    return 0


def _record(options: argparse.Namespace) -> int:
    from suite.kit import reference_run
    from suite.kit.session import RECORDINGS

    checkpoint = find_checkpoint(options.name, options.cache)
    recording = reference_run.record(checkpoint.folder)
    path = reference_run.recording_path(options.into or RECORDINGS, checkpoint.label, recording.checkpoint)
    reference_run.save(recording, path)
    print(path)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from suite.kit.tensors import compare_files

    comparison = compare_files(options.a, options.b)
    print(comparison)
    return 0 if comparison.all_identical else 1


def _report(options: argparse.Namespace) -> int:
    from suite.report.document import read_json
    from suite.report.page import write_page

    path = options.into / "report.html"
    write_page([read_json(run) for run in options.runs], path)
    print(path)
    return 0


def _vectors(options: argparse.Namespace) -> int:
    from suite.kit.vectors import FOLDER, write_all

    for path in write_all(options.into or FOLDER):
        print(path)
    return 0


def _benchmark(options: argparse.Namespace) -> int:
    from suite.kit.benchmark import run_benchmark

    return run_benchmark(find_checkpoint("smollm2", options.cache).folder, options.cache)


def _benchmark_engines(options: argparse.Namespace) -> int:
    from suite.kit.engine_benchmark import run_engine_benchmark
    from suite.kit.source import Source

    folder = find_checkpoint(options.name, options.cache).folder
    return run_engine_benchmark(folder, Source(folder).config["vocab_size"])


if __name__ == "__main__":
    sys.exit(main())
