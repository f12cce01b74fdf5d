"""ggml's own C library, prebuilt in the wheel libggml-python: the independent oracle for block bytes."""

from collections.abc import Mapping
from importlib.metadata import version

from impl.adapters.unchecked import unchecked
from impl.ggml_library import GgmlBlocks

# fmt: off
NOT_REFUSED = (
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs",
    "tq1_0", "tq2_0", "mxfp4", "nvfp4", "q2_0",
)
"""The types in which NaN or an infinity becomes a number; the IQ1, IQ2 and IQ3 searches end the process."""
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
    deviations: Mapping[str, str] = unchecked("ggml", NOT_REFUSED, INFINITE)

    def __init__(self) -> None:
        super().__init__("libggml")
