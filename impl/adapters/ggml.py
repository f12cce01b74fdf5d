"""ggml's own C library, prebuilt in the wheel libggml-python: the independent oracle for block bytes."""

from collections.abc import Mapping
from importlib.metadata import version

from impl.ggml_library import GgmlBlocks

NOT_REFUSED = "ggml looks at no weight before it quantizes; its IQ1, IQ2 and IQ3 searches end the process"

# fmt: off
INFINITE: Mapping[str, tuple[str, ...]] = {
    "8.4e6": (
        "f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "iq1_s", "iq1_m", "iq4_nl", "tq1_0", "tq2_0",
        "q1_0", "q2_0",
    ),
    "1e30": (
        "f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "tq1_0", "tq2_0",
        "q1_0", "q2_0",
    ),
}
# fmt: on
"""By weight, the types whose float16 scale overflows without a word."""


class Ggml(GgmlBlocks):
    """Quantizer and dequantizer of every type that ggml quantizes to."""

    name = "ggml"
    version = version("libggml-python")
    deviations: Mapping[str, str] = {
        "refusal.weights": NOT_REFUSED,
        **{
            f"refusal.overflow[{type}-{weight}]": "the float16 of the scale, or of the value itself, overflows"
            for weight, types in INFINITE.items()
            for type in types
        },
    }

    def __init__(self) -> None:
        super().__init__("libggml")
