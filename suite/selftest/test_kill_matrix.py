"""Every faulty implementation is caught by the claim meant for it, and every claim catches a fault.

One run of the suite for each checkpoint, on the pairs of fault and claim below and no others.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from suite.claims import CAREFUL, CLAIMS, GOOD, IDENTICAL, RIGHT, Question
from suite.report.statements import claims_and_their_tests

ROOT = Path(__file__).parents[2]


class Kill:
    """The question that a fault answers wrongly, the claims that must fail of it and those that must not."""

    def __init__(self, question: Question, *claims: str, spares: tuple[str, ...] = ()) -> None:
        self.question, self.claims, self.spares = question, claims, spares


KILLS: Mapping[str, Mapping[str, Kill]] = {
    "tiny": {
        "converters:NoPermutation": Kill(
            RIGHT, "conversion.permutation", "conversion.values", "conversion.tensors", "logits.f32", "generation.f32"
        ),
        "converters:KPermutedWithQueryHeads": Kill(RIGHT, "conversion.permutation", "conversion.values"),
        "converters:KPermutedWithQuotient": Kill(RIGHT, "conversion.permutation", "conversion.values"),
        "converters:LayersInReverse": Kill(RIGHT, "conversion.order"),
        "converters:QuantizedNorms": Kill(RIGHT, "conversion.one-dimensional", "conversion.fallback"),
        "converters:NoFreqBase": Kill(RIGHT, "conversion.minimal-keys", "conversion.full-keys", "conversion.file-size"),
        "converters:NoTokenizer": Kill(RIGHT, "conversion.full-keys"),
        "converters:StampedFiles": Kill(RIGHT, "conversion.deterministic", "conversion.file-size"),
        "converters:IgnoredRecipe": Kill(RIGHT, "conversion.types", "conversion.fallback", "logits.ordering"),
        "converters:PartialFiles": Kill(CAREFUL, "refusal.checkpoint", "refusal.output"),
        "converters:SilentAboutNames": Kill(CAREFUL, "refusal.checkpoint", "refusal.output"),
        "quantizers:HalfToEven": Kill(
            IDENTICAL,
            "bytes.quantize",
            "bytes.q8_0-file",
            "bytes.noperm",
            "logits.own-equals-independent",
            spares=("blocks.sound", "blocks.error", "conversion.tensors"),
        ),
        "quantizers:TruncatedScale": Kill(IDENTICAL, "bytes.quantize", "bytes.q8_0-file", "bytes.fuzz"),
        "quantizers:AdjacentNibbles": Kill(
            RIGHT,
            "conversion.tensors",
            "blocks.sound",
            "blocks.sound-importance",
            "bytes.quantize",
            "bytes.fuzz",
            "bytes.vectors",
        ),
        "quantizers:PowerOfTwoScale": Kill(
            GOOD, "blocks.error", "bytes.quantize", spares=("blocks.sound", "blocks.rows")
        ),
        "quantizers:ScaleOfTheTensor": Kill(RIGHT, "blocks.sound", "blocks.rows"),
        "quantizers:LostLastRun": Kill(RIGHT, "blocks.sound", "blocks.error"),
        "quantizers:NonFiniteAsZero": Kill(RIGHT, "blocks.non-finite", "refusal.weights"),
        "quantizers:PaddedRows": Kill(CAREFUL, "conversion.indivisible-row"),
        "quantizers:OverflowingScale": Kill(RIGHT, "refusal.overflow"),
        "quantizers:NoImportance": Kill(
            GOOD,
            "blocks.error-importance",
            "bytes.quantize-importance",
            "bytes.fuzz",
            "logits.mix-and-importance",
            spares=("blocks.sound-importance", "blocks.error"),
        ),
        "conduct:OddLastRow": Kill(RIGHT, "conduct.tall"),
        "conduct:RowsBeyond4096": Kill(RIGHT, "conduct.tall"),
        "conduct:ColumnsBeyond4096": Kill(RIGHT, "conduct.wide"),
        "conduct:ChangedInPlace": Kill(RIGHT, "conduct.quantizer"),
        "conduct:SharedBlocks": Kill(RIGHT, "conduct.quantizer"),
        "conduct:BlocksBeyond512": Kill(RIGHT, "conduct.blocks"),
        "conduct:SharedWeights": Kill(RIGHT, "conduct.dequantizer"),
        "quantizers:NoMinimum": Kill(RIGHT, "blocks.values", "bytes.dequantize", "bytes.vectors"),
        "engines:PerTensorActivationScale": Kill(RIGHT, "causality.blocks"),
        "engines:NoCausalMask": Kill(RIGHT, "causality.float32", "causality.alone"),
        "engines:IgnoredFreqBase": Kill(RIGHT, "metadata.freq_base", "logits.faults-stand-out"),
        "engines:AdjacentPairsAlways": Kill(RIGHT, "rope.neox", "rope.neox-bit-for-bit"),
        "engines:CacheNotCleared": Kill(RIGHT, "logits.repeatable"),
        "engines:CacheTooShort": Kill(RIGHT, "generation.cache", "generation.divergence"),
        "engines:SilentAboutKeys": Kill(CAREFUL, "metadata.no-keys", "metadata.required-key"),
    },
    "tiny@mlx": {
        "devices:NamesAnotherDevice": Kill(RIGHT, "device.metal"),
        "devices:HalfPrecisionActivations": Kill(RIGHT, "device.equals-cpu"),
        "devices:DequantizesOnTheWay": Kill(GOOD, "device.packed"),
    },
    "tiny-tied": {
        "converters:TiedHeadTwice": Kill(RIGHT, "conversion.names", "conversion.file-size"),
    },
    "smollm2": {
        "converters:IgnoredRecipe": Kill(IDENTICAL, "conversion.mix"),
        "converters:QuantizedNorms": Kill(IDENTICAL, "bytes.q4_k-against-imatrix"),
    },
}
"""By checkpoint, with the backend after @ where it is not a default one, and by fault."""

ABOUT_NO_IMPLEMENTATION = {claim for claim in CLAIMS if claim.startswith(("checkpoint.", "torch-int8."))} | {
    "causality.torch-dynamic",
    "causality.torchao",
}
RECORDED_BY_NAME = {"logits.snapshot"}
"""Snapshots are one implementation's own; their matching has tests of its own."""

TESTS = {claim: test.name for claim, test, _ in claims_and_their_tests()}


def name_of(fault: str) -> str:
    from impl.catalogue import resolve

    return resolve(f"impl.faulty.{fault}").name


@pytest.fixture(scope="module", params=KILLS)
def outcomes(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[tuple[str, str], set[str]]]:
    """The key into ``KILLS``, and by fault and claim the outcomes of all cases."""
    checkpoint, _, backend = request.param.partition("@")
    kills, folder = KILLS[request.param], tmp_path_factory.mktemp("report")
    selected = [
        f"({name_of(fault)} and {TESTS[claim]})"
        for fault, kill in kills.items()
        for claim in (*kill.claims, *kill.spares)
    ]
    command = [
        *(
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--require=all",
            "suite",
            "-k",
            " or ".join(selected),
        ),
        *(f"--impl=impl.faulty.{fault}" for fault in kills),
        *([f"--backend={backend}"] if backend else []),
        *(f"--checkpoint={checkpoint}", f"--cache={pytestconfig.getoption('--cache')}", f"--report={folder}"),
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout[-4000:] + run.stderr[-4000:]
    found: dict[tuple[str, str], set[str]] = {}
    for result in json.loads((folder / "report.json").read_text())["results"]:
        found.setdefault((result["implementation"], result["claim"]), set()).add(result["outcome"])
    return request.param, found


def test_every_fault_is_caught_by_the_claims_meant_for_it(
    outcomes: tuple[str, dict[tuple[str, str], set[str]]],
) -> None:
    key, found = outcomes
    survived = {
        (fault, claim): found.get((name_of(fault), claim))
        for fault, kill in KILLS[key].items()
        for claim in kill.claims
        if "fail" not in found.get((name_of(fault), claim), set())
    }
    assert not survived


def test_a_fault_is_blamed_for_nothing_else(outcomes: tuple[str, dict[tuple[str, str], set[str]]]) -> None:
    """What answers one question wrongly may well answer a graver one rightly."""
    key, found = outcomes
    blamed = {
        (fault, claim): found.get((name_of(fault), claim))
        for fault, kill in KILLS[key].items()
        for claim in kill.spares
        if found.get((name_of(fault), claim), set()) - {"pass", "not offered"} or not found.get((name_of(fault), claim))
    }
    assert not blamed


def test_the_question_of_a_fault_is_the_gravest_that_a_claim_about_it_asks() -> None:
    gravest = {
        fault: min((CLAIMS[claim].question for claim in kill.claims), key=list(Question).index)
        for kills in KILLS.values()
        for fault, kill in kills.items()
    }
    assert gravest == {fault: kill.question for kills in KILLS.values() for fault, kill in kills.items()}


def test_every_claim_about_an_implementation_catches_a_fault() -> None:
    killed = {claim for faults in KILLS.values() for kill in faults.values() for claim in kill.claims}
    assert killed | ABOUT_NO_IMPLEMENTATION | RECORDED_BY_NAME == set(CLAIMS)
    assert not killed & (ABOUT_NO_IMPLEMENTATION | RECORDED_BY_NAME)


def test_every_fault_is_in_the_matrix() -> None:
    from impl.faulty import conduct, converters, devices, engines, quantizers
    from impl.reference import Reference

    faults = {
        f"{module.__name__.rpartition('.')[2]}:{name}"
        for module in (converters, quantizers, engines, devices, conduct)
        for name, member in vars(module).items()
        if isinstance(member, type) and issubclass(member, Reference) and member.__module__ == module.__name__
    }
    listed = {fault for kills in KILLS.values() for fault in kills}
    assert faults - {"quantizers:FaultyQuantizer"} == listed
