"""``python -m suite audit``: its options and its exit codes."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from impl.errors import InputError
from suite.audit.audit import Audit, audit_file
from suite.audit.records import as_json, as_sarif
from suite.audit.text import as_text, verdict

HELP = "audit a GGUF file against the checkpoint that it claims to come from"
EPILOG = (
    "exit code: 0 clean, notes aside; 1 findings, among them whatever is wrong with the file's own header: counts "
    "and offsets beyond its end, an unknown version, a file cut short; 2 unusable input: no such file, one that does "
    "not begin with GGUF, one part of a split file, a checkpoint that cannot be read"
)
FORMATS: Mapping[str, Callable[[Audit], str]] = {"text": as_text, "json": as_json, "sarif": as_sarif}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options of the audit."""
    parser.epilog = EPILOG
    parser.add_argument("file", type=Path, help="the GGUF file")
    parser.add_argument("--source", required=True, metavar="CHECKPOINT", help="a folder, or a checkpoint's name")
    parser.add_argument("--quick", action="store_true", help="headers alone: no tensor's values are looked at")
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="write the report there, the verdict to the terminal"
    )


def run(options: argparse.Namespace) -> int:
    """Audit and report; 0 for a clean file, 1 for findings. Raises ``InputError`` for unusable input."""
    audit = audit_file(options.file, source_folder(options.source, options.cache), quick=options.quick)
    report = FORMATS[options.format](audit)
    if options.output is None:
        sys.stdout.write(report)
    else:
        _write(options.output, report)
        print(f"{audit.coverage}\n{verdict(audit)}")
    return 0 if audit.is_clean else 1


def source_folder(name: str, cache: Path) -> Path:
    """The folder of a checkpoint; one that is named is built on its first use. Raises ``InputError``."""
    if (Path(name) / "config.json").is_file():
        return Path(name)
    # Here, because a folder needs nothing of what builds the named ones.
    from suite.kit.checkpoints import find_checkpoint

    return find_checkpoint(name, cache).folder


def _write(path: Path, report: str) -> None:
    try:
        path.write_text(report, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
