"""Every faulty implementation is caught by the claim meant for it, and every claim catches a fault.

One run of the suite for each checkpoint, on the pairs of fault and claim below and no others.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from suite.claims import CLAIMS
from suite.report.statements import claims_and_their_tests

ROOT = Path(__file__).parents[2]

KILLS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "tiny": {
        "converters:NoPermutation": ("conversion.permutation", "conversion.values", "logits.f32", "generation.f32"),
        "converters:KPermutedWithQueryHeads": ("conversion.permutation", "conversion.values"),
        "converters:KPermutedWithQuotient": ("conversion.permutation", "conversion.values"),
        "converters:LayersInReverse": ("conversion.order",),
        "converters:QuantizedNorms": ("conversion.one-dimensional", "conversion.types"),
        "converters:NoFreqBase": ("conversion.minimal-keys", "conversion.full-keys", "conversion.file-size"),
        "converters:NoTokenizer": ("conversion.full-keys",),
        "converters:StampedFiles": ("conversion.deterministic", "conversion.minimal-keys"),
        "converters:IgnoredRecipe": ("conversion.types", "logits.ordering"),
        "converters:PartialFiles": ("refusal.checkpoint", "refusal.output"),
        "converters:SilentAboutNames": ("refusal.checkpoint", "refusal.output"),
        "quantizers:HalfToEven": ("bytes.quantize", "bytes.q8_0-file", "bytes.noperm", "logits.own-equals-independent"),
        "quantizers:TruncatedScale": ("bytes.quantize", "bytes.q8_0-file", "bytes.fuzz"),
        "quantizers:AdjacentNibbles": (
            "blocks.sound",
            "blocks.sound-importance",
            "bytes.quantize",
            "bytes.fuzz",
            "bytes.vectors",
        ),
        "quantizers:PowerOfTwoScale": ("blocks.error", "bytes.quantize"),
        "quantizers:ScaleOfTheTensor": ("blocks.sound", "blocks.rows"),
        "quantizers:LostLastRun": ("blocks.sound", "blocks.error"),
        "quantizers:NonFiniteAsZero": ("blocks.non-finite", "refusal.weights"),
        "quantizers:PaddedRows": ("conversion.indivisible-row",),
        "quantizers:OverflowingScale": ("refusal.overflow",),
        "quantizers:NoImportance": (
            "blocks.error-importance",
            "bytes.quantize-importance",
            "bytes.fuzz",
            "logits.mix-and-importance",
        ),
        "quantizers:NoMinimum": ("blocks.values", "bytes.dequantize", "bytes.vectors"),
        "engines:PerTensorActivationScale": ("causality.blocks",),
        "engines:NoCausalMask": ("causality.float32",),
        "engines:IgnoredFreqBase": ("metadata.freq_base", "logits.faults-stand-out"),
        "engines:AdjacentPairsAlways": ("rope.neox", "rope.neox-bit-for-bit"),
        "engines:CacheNotCleared": ("logits.repeatable",),
        "engines:CacheTooShort": ("generation.cache", "generation.divergence"),
        "engines:SilentAboutKeys": ("metadata.no-keys", "metadata.required-key"),
    },
    "tiny@mlx": {
        "devices:NamesAnotherDevice": ("device.metal",),
        "devices:HalfPrecisionActivations": ("device.equals-cpu",),
        "devices:DequantizesOnTheWay": ("device.packed",),
    },
    "tiny-tied": {"converters:TiedHeadTwice": ("conversion.names", "conversion.file-size")},
    "smollm2": {
        "converters:IgnoredRecipe": ("conversion.mix",),
        "converters:QuantizedNorms": ("bytes.q4_k-against-imatrix",),
    },
}
"""By checkpoint, with the backend after @ where it is not a default one, and fault, the claims that must fail."""

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
    selected = [f"({name_of(fault)} and {TESTS[claim]})" for fault, claims in kills.items() for claim in claims]
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
        for fault, claims in KILLS[key].items()
        for claim in claims
        if "fail" not in found.get((name_of(fault), claim), set())
    }
    assert not survived


def test_every_claim_about_an_implementation_catches_a_fault() -> None:
    killed = {claim for faults in KILLS.values() for claims in faults.values() for claim in claims}
    assert killed | ABOUT_NO_IMPLEMENTATION | RECORDED_BY_NAME == set(CLAIMS)
    assert not killed & (ABOUT_NO_IMPLEMENTATION | RECORDED_BY_NAME)


def test_every_fault_is_in_the_matrix() -> None:
    from impl.faulty import converters, devices, engines, quantizers
    from impl.reference import Reference

    faults = {
        f"{module.__name__.rpartition('.')[2]}:{name}"
        for module in (converters, quantizers, engines, devices)
        for name, member in vars(module).items()
        if isinstance(member, type) and issubclass(member, Reference) and member.__module__ == module.__name__
    }
    listed = {fault for kills in KILLS.values() for fault in kills}
    assert faults - {"quantizers:FaultyQuantizer"} == listed
