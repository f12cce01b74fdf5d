"""MLX's own GGUF reader and its quantizer, as an implementation under test.

What ``mlx.core.quantize`` (0.32.4) finds can be said in GGUF as far as this. Its affine mode with groups of 32 stores
scale × code + bias, the scale and bias of float16 weights in float16. At 4 bits that is a Q4_1 block to the last bit,
whatever MLX chose. A Q4_0 or Q8_0 block has no bias of its own: MLX rounds the bias to a whole number of scales, and
such a block holds the group where that number is -8, or -128 at 8 bits: 57 % and 4 % of groups of normal values. So
Q4_1 is the one type offered.
"""

import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from impl.errors import InputError

GROUP_SIZE = 32
BITS: Mapping[str, int] = {"q4_0": 4, "q4_1": 4, "q8_0": 8}
"""The types that ``mlx.core.load`` keeps quantized."""
CONVERTED = ("f32", "f16", "bf16", "q2_k", "q4_k", "q6_k")
"""Those that it converts, to float16 but for f32. It refuses every other type, or leaves the tensor out in silence."""
CPU = mx.Device(mx.cpu)

RULE = "MLX's own rule for scale and bias: the end of the range that is further from zero is kept exactly"
NOT_REFUSED = "MLX looks at no weight before it quantizes"
READING: Mapping[str, str] = {
    "bf16": "read as float16",
    "q2_k": "read as float16",
    "q4_k": "read as float16, and the high halves of the codes by the scale and minimum of the low ones",
    "q6_k": "read as float16",
    "q4_0": "the bias, -8 times the scale, is a float16 that can overflow, and zero never negative",
    "q8_0": "the bias, -128 times the scale, is a float16 that can overflow, and zero never negative",
}
"""What ``mlx.core.load`` (0.32.4) makes of a type that it does not read exactly."""
DEVIATIONS: Mapping[str, str] = {
    "bytes.quantize": RULE,
    "bytes.quantize-importance": f"{RULE}; importance has no say",
    "bytes.fuzz": RULE,
    "bytes.vectors[q4_1-quantize]": RULE,
    "refusal.weights": NOT_REFUSED,
    "refusal.overflow": f"{NOT_REFUSED}, and float16 overflows",
    "blocks.non-finite": NOT_REFUSED,
    "blocks.values[q4_k]": READING["q4_k"],
    **{f"bytes.dequantize[{type}]": reason for type, reason in READING.items()},
    **{f"bytes.vectors[{type}-dequantize]": reason for type, reason in READING.items()},
}


class Mlx:
    """MLX as a quantizer and a dequantizer."""

    name = "mlx"
    version = version("mlx")
    types: Sequence[str] = ("q4_1",)
    readable_types: Sequence[str] = (*CONVERTED, *BITS)
    deviations: Mapping[str, str] = DEVIATIONS

    def quantize(
        self, weight: NDArray[np.float32], type: str, importance: NDArray[np.float32] | None = None
    ) -> NDArray[np.uint8]:
        """Float32[rows, cols], rounded to float16, to uint8[rows, bytes per row] with ``mlx.core.quantize``.

        MLX quantizes without importance: it has no say.
        """
        if type not in self.types:
            raise InputError(f"type {type!r}: MLX has only {', '.join(self.types)}")
        if weight.shape[1] % GROUP_SIZE:
            raise InputError(f"{type} of shape {list(weight.shape)}: a row must be a multiple of {GROUP_SIZE}")
        half = mx.array(weight).astype(mx.float16, stream=CPU)
        packed, scales, biases = mx.quantize(half, group_size=GROUP_SIZE, bits=BITS[type], stream=CPU)
        # MLX has codes 2j and 2j + 1 in a byte, GGUF j and j + 16.
        pairs = np.array(packed).view(np.uint8).reshape(-1, GROUP_SIZE // 2)
        codes = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(-1, GROUP_SIZE)
        blocks = [np.array(part).reshape(-1, 1).view(np.uint8) for part in (scales, biases)]
        return np.hstack([*blocks, codes[:, :16] | codes[:, 16:] << 4]).reshape(len(weight), -1)

    def dequantize(self, blocks: NDArray[np.uint8], type: str) -> NDArray[np.float32]:
        """uint8[rows, bytes per row] to float32[rows, cols] with ``mlx.core.load``.

        What it keeps quantized is dequantized from its float16 scales and biases in float32.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tensor.gguf"
            _write(path, blocks, type)
            # Loading is lazy: nothing may be left to read when the file is gone.
            tensors = mx.load(str(path), stream=CPU)
            mx.eval(*tensors.values())
        weight = tensors["tensor.weight"]
        if type in BITS:
            parts = (tensors[f"tensor.{part}"].astype(mx.float32, stream=CPU) for part in ("scales", "biases"))
            weight = mx.dequantize(weight, *parts, group_size=GROUP_SIZE, bits=BITS[type], stream=CPU)
        return np.array(weight.astype(mx.float32, stream=CPU))


def _write(path: Path, blocks: NDArray[np.uint8], type: str) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("tensor.weight", np.ascontiguousarray(blocks), raw_dtype=GGMLQuantizationType[type.upper()])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
