"""The float32 GGUF that the suite writes itself, as the source for other people's quantizers.

An independent quantized file must not start from a file of the implementation under test, whose faults
it would inherit. Names are llama.cpp's, rows the suite's own (``suite.kit.rows``), keys those that
llama.cpp's quantizer reads.
"""

from pathlib import Path

import gguf
import numpy as np

from suite.kit.source import Source


def write_own_file(source: Source, output: Path) -> None:
    """Write every tensor of the checkpoint as F32 to ``output``, one in memory at a time."""
    shapes = source.gguf_shapes()
    writer = gguf.GGUFWriter(output, "llama")
    _add_keys(writer, source)
    for name, shape in shapes.items():
        size = int(np.prod(shape)) * 4
        writer.add_tensor_info(name, shape, np.dtype(np.float32), size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, tensor in source.gguf_tensors():
        writer.write_tensor_data(tensor)
    writer.close()


def _add_keys(writer: gguf.GGUFWriter, source: Source) -> None:
    config = source.config
    writer.add_block_count(source.layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(source.heads["attn_q"])
    writer.add_head_count_kv(source.heads["attn_k"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(source.rope_theta)
    writer.add_rope_dimension_count(source.head_size)
    writer.add_key_length(source.head_size)
    writer.add_value_length(source.head_size)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
