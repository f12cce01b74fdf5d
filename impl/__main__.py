"""``python -m impl``: what the built-in implementations offer, and each of their capabilities on files."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from impl.catalogue import BUILT_IN, resolve
from impl.errors import FellOver, InputError
from impl.output import written_whole
from impl.protocol import Implementation, offered, takes_importance
from impl.raw_files import FLOAT32, UINT8, read_raw, write_raw


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; 0 when all is well, 2 for unusable input."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (InputError, FellOver) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m impl", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="what each built-in implementation offers")
    listing.set_defaults(run=_list)

    convert = commands.add_parser("convert", help="convert a checkpoint folder to a GGUF file")
    convert.add_argument("folder", type=Path)
    convert.add_argument("output", type=Path)
    convert.add_argument("--recipe", default="q8_0", metavar="NAME", help="a type or a mix [q8_0]")
    convert.add_argument("--metadata", default="full", choices=("minimal", "full"), help="which keys [full]")
    convert.add_argument("--importance", type=Path, metavar="FILE", help="an importance matrix to quantize by")
    convert.set_defaults(run=_convert)

    quantize = commands.add_parser("quantize", help="quantize a raw file of float32, little-endian")
    quantize.add_argument("--importance", type=Path, metavar="FILE", help="raw float32, one for each column")
    quantize.set_defaults(run=_quantize)
    dequantize = commands.add_parser("dequantize", help="dequantize a raw file of blocks to float32, little-endian")
    dequantize.set_defaults(run=_dequantize)
    for command in (quantize, dequantize):
        command.add_argument("input", type=Path)
        command.add_argument("output", type=Path)
        command.add_argument("--type", required=True, metavar="NAME", help="the blocks' type")
        command.add_argument("--rows", type=int, required=True, metavar="N", help="how many the matrix has")

    logits = commands.add_parser("logits", help="the most likely next tokens after a prompt")
    logits.add_argument("file", type=Path)
    logits.add_argument("--tokens", type=_token_ids, required=True, metavar="ID,ID…", help="the prompt")
    logits.add_argument("--backend", default="cpu", metavar="NAME", help="[cpu]")
    logits.add_argument("--top", type=int, default=5, metavar="N", help="how many to show [5]")
    logits.add_argument("--output", type=Path, metavar="NPY", help="write float32[tokens, vocabulary] there")
    logits.add_argument("--raw", type=Path, metavar="FILE", help="write them there as raw float32, little-endian")
    logits.set_defaults(run=_logits)

    importance = commands.add_parser("importance", help="measure an importance matrix over tokens")
    importance.add_argument("file", type=Path)
    tokens = importance.add_mutually_exclusive_group(required=True)
    tokens.add_argument("--tokens", type=_token_ids, metavar="ID,ID…", help="what to measure on")
    tokens.add_argument("--tokens-file", type=Path, metavar="FILE", help="the same, ids separated by white space")
    importance.add_argument("--output", type=Path, required=True, metavar="GGUF", help="write it there")
    importance.set_defaults(run=_importance)

    for command in (convert, quantize, dequantize, logits):
        command.add_argument("--impl", default="reference", metavar="NAME", help="name, module:Class or manifest")
    return parser


def _token_ids(text: str) -> list[int]:
    try:
        return [int(token) for token in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no comma-separated list of token ids") from None


def _list(options: argparse.Namespace) -> None:
    for name in BUILT_IN:
        try:
            implementation = resolve(name)
        except InputError as error:
            print(f"{name}: not available here\n  {error}")
            continue
        print(f"{name} {implementation.version}: {', '.join(offered(implementation))}")
        absent = _absent_backends(implementation)
        for attribute in ("types", "readable_types", "recipes", "backends"):
            members = [member for member in getattr(implementation, attribute, ()) if member not in absent]
            if members:
                print(f"  {attribute}: {', '.join(members)}")
        for backend, reason in absent.items():
            print(f"  not available here: {backend}: {reason}")


def _absent_backends(implementation: Implementation) -> dict[str, str]:
    """The backends without their library or device here, and what is said of it."""
    absent = {}
    if hasattr(implementation, "device"):
        for backend in implementation.backends:
            try:
                implementation.device(backend)
            except InputError as error:
                absent[backend] = str(error)
    return absent


def _convert(options: argparse.Namespace) -> None:
    converter = _offering("converter", options.impl)
    importance = {"importance": options.importance} if options.importance else {}
    _require_taken(options.impl, converter.convert, importance)
    start = time.perf_counter()
    converter.convert(options.folder, options.output, options.recipe, options.metadata, **importance)
    seconds = time.perf_counter() - start
    size = options.output.stat().st_size
    print(f"{options.output}: {size} bytes, {seconds:.1f} s")


def _quantize(options: argparse.Namespace) -> None:
    quantizer = _offering("quantizer", options.impl)
    weight = read_raw(options.input, options.rows, FLOAT32)
    importance = {"importance": read_raw(options.importance, 1, FLOAT32)[0]} if options.importance else {}
    _require_taken(options.impl, quantizer.quantize, importance)
    blocks = quantizer.quantize(weight, options.type, **importance)
    with written_whole(options.output) as unfinished:
        write_raw(blocks, unfinished, UINT8)


def _dequantize(options: argparse.Namespace) -> None:
    dequantizer = _offering("dequantizer", options.impl)
    weight = dequantizer.dequantize(read_raw(options.input, options.rows, UINT8), options.type)
    with written_whole(options.output) as unfinished:
        write_raw(weight, unfinished, FLOAT32)


def _logits(options: argparse.Namespace) -> None:
    engine = _offering("engine", options.impl)
    if options.backend not in engine.backends:
        known = ", ".join(engine.backends)
        raise InputError(f"backend {options.backend!r}: unknown to {engine.name}, expected one of {known}")
    logits = engine.load(options.file, options.backend).logits(options.tokens)
    if options.output:
        _save(logits, options.output)
    if options.raw:
        with written_whole(options.raw) as unfinished:
            write_raw(logits, unfinished, FLOAT32)
    last = logits[-1]
    for token in np.argsort(-last, kind="stable")[: options.top]:
        print(f"{token}\t{last[token]:.6f}")


def _importance(options: argparse.Namespace) -> None:
    # With torch, which the other commands need not wait for.
    from impl.reference.collect import collect
    from impl.reference.importance_file import write_importance
    from impl.reference.llama import load

    tokens, dataset = options.tokens, "tokens of the command line"
    if options.tokens_file:
        tokens, dataset = _tokens_in(options.tokens_file), options.tokens_file.name
    matrix = collect(load(options.file, "cpu-dequantized"), tokens, dataset)
    write_importance(matrix, options.output)
    print(f"{options.output}: {len(matrix.columns)} tensors over {len(tokens)} tokens in {matrix.chunks} chunks")


def _tokens_in(file: Path) -> list[int]:
    try:
        return [int(token) for token in file.read_text().split()]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{file}: no token ids separated by white space: {reason}") from error


def _offering(capability: str, spec: str) -> Implementation:
    implementation = resolve(spec)
    if capability not in offered(implementation):
        known = ", ".join(offered(implementation))
        raise InputError(f"implementation {spec!r}: is no {capability}, offers {known}")
    return implementation


def _require_taken(spec: str, method: Callable[..., object], importance: Mapping[str, object]) -> None:
    if importance and not takes_importance(method):
        raise InputError(f"implementation {spec!r}: takes no importance matrix")


def _save(logits: NDArray[np.float32], output: Path) -> None:
    with written_whole(output) as unfinished, unfinished.open("wb") as file:
        np.save(file, logits)


if __name__ == "__main__":
    sys.exit(main())
