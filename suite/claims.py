"""The catalogue of claims.

A claim's id is permanent. Its statement is the docstring of the one test that carries the id (a test
of the suite's own holds catalogue and tests together); the catalogue adds what a docstring cannot say:
what kind of claim it is, where in the article it stands, and the figures the article measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import pytest

Kind = Literal["requirement", "characteristic"]
"""``requirement``: every correct program satisfies it. ``characteristic``: correct programs may differ;
an implementation that does says so under ``deviations`` and the report states it."""


class Question(StrEnum):
    """What a claim asks of a program. Whoever runs the suite chooses which of them decide the exit code."""

    RIGHT = "right"
    """Do the file or the blocks mean what they must? A program of which this fails is wrong."""
    GOOD = "good"
    """How near is it to the weights, beside ggml on the same input, type and importance?"""
    IDENTICAL = "identical"
    """Does it give, byte for byte or bit for bit, what ggml, llama.cpp or another named program gives?"""
    CAREFUL = "careful"
    """Is bad input refused, in words that name the place, and nothing lost or left behind?"""


ALL_QUESTIONS = "all"
"""What ``--require`` takes for every question at once."""


def required(wanted: str) -> frozenset[Question]:
    """The questions that decide the exit code where ``--require`` is ``wanted``.

    A program that is wrong fails whatever else is asked, so *right* is always among them.
    """
    return frozenset(Question) if wanted == ALL_QUESTIONS else frozenset({Question.RIGHT, Question(wanted)})


@dataclass(frozen=True)
class Claim:
    """One claim.

    ``article`` names the section of the article; empty for a claim that goes past it. ``figures`` holds
    what the article measured, under the label the test measures it by.
    """

    id: str
    question: Question
    kind: Kind = "requirement"
    article: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The part of the id before the dot; claims of a family share a test module."""
        return self.id.partition(".")[0]


NAMES = "candle：四步 · 1. 改名"
PERMUTATION = "candle：四步 · 2. q、k 投影的行重排"
QUANTIZATION = "candle：四步 · 3. 量化"
METADATA = "candle：四步 · 4. 元数据和写文件"
F32 = "读回来对一遍 · f32 GGUF：先证明转换是对的"
Q8_0 = "读回来对一遍 · 和下载的 Q8_0 逐字节比"
SIZES = "读回来对一遍 · 大小和误差"
NEOX = "没有蠢问题"
DYNAMIC = "PyTorch：quantize_dynamic"
PUZZLE = "动脑筋答案"

RIGHT, GOOD, IDENTICAL, CAREFUL = Question

_ALL = (
    Claim("checkpoint.size", RIGHT, article=SIZES, figures={"model.safetensors, bytes": 269_060_552}),
    Claim("conversion.names", RIGHT, article=NAMES, figures={"tensors": 272}),
    Claim("conversion.order", RIGHT),
    Claim("conversion.values", RIGHT, article=F32),
    Claim("conversion.permutation", RIGHT, article=PERMUTATION, figures={"heads of q": 9, "heads of k": 3}),
    Claim("conversion.one-dimensional", RIGHT, article=QUANTIZATION, figures={"1-D tensors": 61}),
    Claim("conversion.tensors", RIGHT),
    Claim("conversion.types", RIGHT, article=QUANTIZATION),
    Claim(
        "conversion.fallback",
        IDENTICAL,
        article=QUANTIZATION,
        figures={"q4_k: F32": 61, "q4_k: Q4_K": 30, "q4_k: Q5_0": 181},
    ),
    Claim("conversion.mix", IDENTICAL),
    Claim("conversion.indivisible-row", CAREFUL, article=QUANTIZATION),
    Claim("conversion.minimal-keys", RIGHT, article=METADATA, figures={"keys": 8}),
    Claim("conversion.full-keys", RIGHT),
    Claim(
        "conversion.file-size",
        IDENTICAL,
        article=SIZES,
        figures={
            "f32, bytes": 538_076_576,
            # The article's table prints 143,041,920. Its own text (1,769,408 bytes below 144,811,360), its
            # figure without freq_base (64 bytes less) and the layout itself all give 143,041,952.
            "q8_0, bytes": 143_041_952,
            "q4_k, bytes": 89_294_240,
            "q4_0, bytes": 75_802_016,
            "q8_0 without freq_base, bytes": 143_041_888,
        },
    ),
    Claim("conversion.deterministic", RIGHT),
    Claim("blocks.sound", RIGHT),
    Claim("blocks.sound-importance", RIGHT),
    Claim("blocks.rows", RIGHT),
    Claim("blocks.non-finite", RIGHT),
    Claim("blocks.values", RIGHT),
    Claim("blocks.error", GOOD),
    Claim("blocks.error-importance", GOOD),
    Claim("conduct.tall", RIGHT),
    Claim("conduct.wide", RIGHT),
    Claim("conduct.blocks", RIGHT),
    Claim("conduct.quantizer", RIGHT),
    Claim("conduct.dequantizer", RIGHT),
    Claim("bytes.q8_0-file", IDENTICAL, article=Q8_0, figures={"identical tensors": 272}),
    Claim(
        "bytes.noperm",
        IDENTICAL,
        article=Q8_0,
        figures={"identical tensors": 212, "attn_q that differ": 30, "attn_k that differ": 30},
    ),
    Claim("bytes.q4_k-against-imatrix", IDENTICAL, article=Q8_0, figures={"identical tensors": 61}),
    Claim("bytes.quantize", IDENTICAL),
    Claim("bytes.quantize-importance", IDENTICAL),
    Claim("bytes.dequantize", IDENTICAL),
    Claim("bytes.fuzz", IDENTICAL),
    Claim("bytes.vectors", IDENTICAL),
    Claim("logits.own-equals-independent", IDENTICAL, article=Q8_0),
    Claim(
        "logits.f32",
        RIGHT,
        article=F32,
        figures={
            "quantized-activations: step 0": 4.39e-5,
            "quantized-activations: median": 5.15e-5,
            "quantized-activations: worst": 1.05e-4,
            "quantized-activations: equal argmax": 270,
            "dequantized: step 0": 6.58e-5,
            "dequantized: median": 5.08e-5,
            "dequantized: worst": 1.00e-4,
            "dequantized: equal argmax": 270,
        },
    ),
    Claim(
        "logits.ordering",
        RIGHT,
        article=SIZES,
        figures={
            "quantized-activations, q8_0: step 0": 0.718,
            "quantized-activations, q8_0: equal argmax": 262,
            "quantized-activations, q4_k: step 0": 3.776,
            "quantized-activations, q4_k: equal argmax": 217,
            "quantized-activations, q4_0: step 0": 8.413,
            "quantized-activations, q4_0: equal argmax": 203,
            "dequantized, q8_0: step 0": 0.416,
            "dequantized, q8_0: equal argmax": 263,
            "dequantized, q4_k: step 0": 3.769,
            "dequantized, q4_k: equal argmax": 216,
            "dequantized, q4_0: step 0": 8.210,
            "dequantized, q4_0: equal argmax": 205,
        },
    ),
    Claim(
        "logits.mix-and-importance",
        GOOD,
        article=SIZES,
        figures={
            "quantized-activations, q4_k: step 0": 3.776,
            "quantized-activations, q4_k: equal argmax": 217,
            # The article's Q4_K_M was made with an importance matrix.
            "quantized-activations, q4_k_m by importance: step 0": 2.441,
            "quantized-activations, q4_k_m by importance: equal argmax": 230,
            "dequantized, q4_k: step 0": 3.769,
            "dequantized, q4_k: equal argmax": 216,
            "dequantized, q4_k_m by importance: step 0": 2.478,
            "dequantized, q4_k_m by importance: equal argmax": 238,
        },
    ),
    Claim(
        "logits.faults-stand-out",
        RIGHT,
        article=SIZES,
        figures={
            "quantized-activations, no freq_base: step 0": 4.348,
            "quantized-activations, no freq_base: equal argmax": 215,
            "quantized-activations, noperm: step 0": 13.529,
            "quantized-activations, noperm: equal argmax": 47,
        },
    ),
    Claim("logits.snapshot", IDENTICAL),
    Claim("logits.repeatable", RIGHT),
    Claim("generation.f32", RIGHT, article=F32, figures={"tokens as the reference": 270}),
    Claim(
        "generation.divergence",
        RIGHT,
        article=SIZES,
        figures={
            "quantized-activations, q8_0: first divergence": 26,
            "quantized-activations, q4_k: first divergence": 5,
            "quantized-activations, q4_0: first divergence": 3,
        },
    ),
    Claim("generation.cache", RIGHT),
    Claim("metadata.no-keys", CAREFUL, article=METADATA),
    Claim("metadata.required-key", CAREFUL, article=METADATA),
    Claim("metadata.freq_base", RIGHT, article=METADATA),
    Claim(
        "rope.neox",
        RIGHT,
        article=NEOX,
        figures={
            "quantized-activations: step 0": 6.28e-1,
            "quantized-activations: median": 6.66e-1,
            "quantized-activations: worst": 1.38,
            "quantized-activations: equal argmax": 262,
            "dequantized: step 0": 3.81e-5,
            "dequantized: worst": 4.20e-5,
            "dequantized: equal argmax": 270,
        },
    ),
    Claim("rope.neox-bit-for-bit", IDENTICAL, kind="characteristic"),
    Claim("causality.float32", RIGHT, article=PUZZLE, figures={"position 36, max|diff|": 0.0}),
    Claim("causality.blocks", RIGHT, article=PUZZLE),
    Claim("causality.alone", IDENTICAL, article=PUZZLE, figures={"position 36, max|diff|": 0.0}),
    Claim(
        "causality.torch-dynamic",
        RIGHT,
        kind="characteristic",
        article=PUZZLE,
        figures={"qnnpack: position 36, max|diff|": 6.637},
    ),
    Claim("causality.torchao", RIGHT, kind="characteristic"),
    Claim("device.metal", RIGHT),
    Claim("device.equals-cpu", RIGHT, article=SIZES),
    Claim("device.packed", GOOD),
    Claim("torch-int8.layers", RIGHT, article=DYNAMIC, figures={"linear layers": 211}),
    Claim("torch-int8.tied-head", RIGHT, article=DYNAMIC),
    Claim("torch-int8.no-engine", RIGHT, article=DYNAMIC),
    Claim(
        "torch-int8.error",
        GOOD,
        kind="characteristic",
        article=DYNAMIC,
        figures={
            "qnnpack: step 0": 6.892,
            "qnnpack: median": 10.756,
            "qnnpack: worst": 19.972,
            "qnnpack: equal argmax": 182,
            "weights only: step 0": 2.649,
            "weights only: median": 3.186,
            "weights only: worst": 7.233,
            "weights only: equal argmax": 237,
        },
    ),
    Claim(
        "torch-int8.size",
        GOOD,
        article=DYNAMIC,
        figures={"int8 state dict, bytes": 249_019_179, "float32 state dict, bytes": 538_160_905},
    ),
    Claim("refusal.checkpoint", CAREFUL),
    Claim("refusal.output", CAREFUL),
    Claim("refusal.weights", CAREFUL),
    Claim("refusal.overflow", RIGHT),
)

CLAIMS: Mapping[str, Claim] = {each.id: each for each in _ALL}


def claim(identity: str) -> pytest.MarkDecorator:
    """Mark a test as the one that carries the claim ``identity``."""
    return pytest.mark.claim(CLAIMS[identity])
