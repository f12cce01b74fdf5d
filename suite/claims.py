"""The catalogue of claims.

A claim's id is permanent. Its statement is the docstring of the one test that carries the id (a test
of the suite's own holds catalogue and tests together); the catalogue adds what a docstring cannot say:
what kind of claim it is, where in the article it stands, and the figures the article measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest

Kind = Literal["requirement", "characteristic"]
"""``requirement``: every correct program satisfies it. ``characteristic``: correct programs may differ;
an implementation that does says so under ``deviations`` and the report states it."""


@dataclass(frozen=True)
class Claim:
    """One claim.

    ``article`` names the section of the article; empty for a claim that goes past it. ``figures`` holds
    what the article measured, under the label the test measures it by.
    """

    id: str
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

_ALL = (
    Claim("checkpoint.size", article=SIZES, figures={"model.safetensors, bytes": 269_060_552}),
    Claim("conversion.names", article=NAMES, figures={"tensors": 272}),
    Claim("conversion.order"),
    Claim("conversion.values", article=F32),
    Claim("conversion.permutation", article=PERMUTATION, figures={"heads of q": 9, "heads of k": 3}),
    Claim("conversion.one-dimensional", article=QUANTIZATION, figures={"1-D tensors": 61}),
    Claim(
        "conversion.types",
        article=QUANTIZATION,
        figures={"q4_k: F32": 61, "q4_k: Q4_K": 30, "q4_k: Q5_0": 181},
    ),
    Claim("conversion.mix"),
    Claim("conversion.indivisible-row", article=QUANTIZATION),
    Claim("conversion.minimal-keys", article=METADATA, figures={"keys": 8}),
    Claim("conversion.full-keys"),
    Claim(
        "conversion.file-size",
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
    Claim("conversion.deterministic"),
    Claim("bytes.q8_0-file", article=Q8_0, figures={"identical tensors": 272}),
    Claim(
        "bytes.noperm",
        article=Q8_0,
        figures={"identical tensors": 212, "attn_q that differ": 30, "attn_k that differ": 30},
    ),
    Claim("bytes.q4_k-against-imatrix", article=Q8_0, figures={"identical tensors": 61}),
    Claim("bytes.quantize"),
    Claim("bytes.quantize-importance"),
    Claim("bytes.dequantize"),
    Claim("bytes.fuzz"),
    Claim("bytes.vectors"),
    Claim("logits.own-equals-independent", article=Q8_0),
    Claim(
        "logits.f32",
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
        article=SIZES,
        figures={
            "quantized-activations, no freq_base: step 0": 4.348,
            "quantized-activations, no freq_base: equal argmax": 215,
            "quantized-activations, noperm: step 0": 13.529,
            "quantized-activations, noperm: equal argmax": 47,
        },
    ),
    Claim("logits.snapshot"),
    Claim("logits.repeatable"),
    Claim("generation.f32", article=F32, figures={"tokens as the reference": 270}),
    Claim(
        "generation.divergence",
        article=SIZES,
        figures={
            "quantized-activations, q8_0: first divergence": 26,
            "quantized-activations, q4_k: first divergence": 5,
            "quantized-activations, q4_0: first divergence": 3,
        },
    ),
    Claim("generation.cache"),
    Claim("metadata.no-keys", article=METADATA),
    Claim("metadata.required-key", article=METADATA),
    Claim("metadata.freq_base", article=METADATA),
    Claim(
        "rope.neox",
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
    Claim("rope.neox-bit-for-bit", kind="characteristic"),
    Claim("causality.float32", article=PUZZLE, figures={"position 36, max|diff|": 0.0}),
    Claim("causality.blocks", article=PUZZLE),
    Claim(
        "causality.torch-dynamic",
        kind="characteristic",
        article=PUZZLE,
        figures={"qnnpack: position 36, max|diff|": 6.637},
    ),
    Claim("causality.torchao", kind="characteristic"),
    Claim("device.metal"),
    Claim("device.equals-cpu", article=SIZES),
    Claim("device.packed"),
    Claim("torch-int8.layers", article=DYNAMIC, figures={"linear layers": 211}),
    Claim("torch-int8.tied-head", article=DYNAMIC),
    Claim("torch-int8.no-engine", article=DYNAMIC),
    Claim(
        "torch-int8.error",
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
        article=DYNAMIC,
        figures={"int8 state dict, bytes": 249_019_179, "float32 state dict, bytes": 538_160_905},
    ),
    Claim("refusal.checkpoint"),
    Claim("refusal.output"),
    Claim("refusal.weights"),
    Claim("refusal.overflow"),
)

CLAIMS: Mapping[str, Claim] = {each.id: each for each in _ALL}


def claim(identity: str) -> pytest.MarkDecorator:
    """Mark a test as the one that carries the claim ``identity``."""
    return pytest.mark.claim(CLAIMS[identity])
