"""gguf-editor's own quantizer of GGUF files, one tensor at a time."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf_editor import quantizer
from numpy.typing import NDArray

from impl.adapters.unchecked import unchecked
from impl.errors import InputError

TENSOR = "blk.0.ffn_up.weight"
TYPES = tuple(type for type in quantizer.SUPPORTED_TYPES if type.upper() in GGMLQuantizationType.__members__)
NOT_REFUSED = tuple(type for type in TYPES if type not in ("f32", "f16", "bf16", "q1_0"))
FINE = ("f32", "bf16", "mxfp4", "nvfp4")
IN_SUPER_BLOCKS = ("q4_k", "q5_k", "q6_k", "iq2_s", "iq2_xs", "iq2_xxs", "iq3_s", "iq3_xxs", "iq4_xs")
"""Which 8.4e6 does not overflow yet."""
INFINITE: Mapping[str, Sequence[str]] = {
    "8.4e6": tuple(type for type in TYPES if type not in (*FINE, *IN_SUPER_BLOCKS)),
    "1e30": tuple(type for type in TYPES if type not in FINE),
}


class GgufEditor:
    """The quantizer behind its command line and its page; it reads nothing back and knows no importance."""

    name = "gguf-editor"
    version = version("gguf-editor")
    deviations: Mapping[str, str] = unchecked(name, NOT_REFUSED, INFINITE)
    types: Sequence[str] = TYPES

    def quantize(self, weight: NDArray[np.float32], type: str) -> NDArray[np.uint8]:
        """Float32[rows, cols] to uint8[rows, bytes per row] with ``gguf_editor.quantizer.quantize``."""
        if type not in self.types:
            raise InputError(f"type {type!r}: gguf-editor knows {', '.join(self.types)}")
        with TemporaryDirectory() as scratch:
            float32, output = Path(scratch, "f32.gguf"), Path(scratch, "quantized.gguf")
            writer = GGUFWriter(float32, "llama")
            writer.add_tensor(TENSOR, np.ascontiguousarray(weight, dtype=np.float32))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            quantizer.quantize(str(float32), str(output), default_type=type, n_threads=1)
            (tensor,) = GGUFReader(output).tensors
            if tensor.tensor_type != GGMLQuantizationType[type.upper()]:
                raise InputError(f"{type} of shape {list(weight.shape)}: gguf-editor stores {tensor.tensor_type.name}")
            return np.array(tensor.data).view(np.uint8).reshape(len(weight), -1)
