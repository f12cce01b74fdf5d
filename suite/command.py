"""``gguf-conformance``: the suite, and every subcommand of ``python -m impl`` and ``python -m suite``, from anywhere.

An installed package keeps the house as one folder, ``gguf_conformance``, so that no module called ``impl`` or
``suite`` stands among other people's.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

HOUSE = Path(__file__).parents[1]

SUBCOMMANDS: Mapping[str, Sequence[str]] = {
    "impl": ("list", "convert", "quantize", "dequantize", "logits", "importance"),
    "suite": ("audit", "checkpoint", "record", "compare", "report", "vectors", "benchmark", "benchmark-engines"),
}
"""Which module's ``__main__`` answers which."""

USAGE = "\n  ".join(
    (
        "usage: gguf-conformance COMMAND …, and one of these with --help to learn more:\n",
        "run: the suite, by the options of pytest and --impl, --checkpoint and others",
        *(command for commands in SUBCOMMANDS.values() for command in commands),
    )
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code is the command's own, 2 where there is none of that name."""
    command, *rest = list(sys.argv[1:] if arguments is None else arguments) or [""]
    # First this house, whatever else is installed; then where a user's own module:Class is looked for.
    sys.path[:0] = [str(HOUSE), str(Path.cwd())]
    if command == "run":
        return _run(rest)
    for module, commands in SUBCOMMANDS.items():
        if command in commands:
            return import_module(f"{module}.__main__").main([command, *rest])
    asked = command in ("-h", "--help")
    print(USAGE, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


def _run(options: Sequence[str]) -> int:
    """pytest with this house's configuration, on all of its claims unless some of its tests are named."""
    import pytest

    tests = [option for option in options if (HOUSE / option.partition("::")[0]).is_file()]
    others = [option for option in options if option not in tests]
    settings = [f"--rootdir={HOUSE}", "-c", str(HOUSE / "pyproject.toml"), "-p", "no:cacheprovider"]
    return int(pytest.main([*settings, *others, *(str(HOUSE / test) for test in tests or ["suite"])]))
