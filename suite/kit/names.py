"""The suite's own statement of tensor names, independent of any implementation."""

HUGGING_FACE_PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
HUGGING_FACE_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def hugging_face_name(name: str) -> str:
    """The checkpoint's name of the GGUF tensor ``name``, e.g. ``blk.0.attn_q.weight``."""
    *block, part, suffix = name.split(".")
    if not block:
        return f"{HUGGING_FACE_TOP[part]}.{suffix}"
    return f"model.layers.{block[1]}.{HUGGING_FACE_PARTS[part]}.{suffix}"


def gguf_name(name: str, layers: int) -> str:
    """llama.cpp's name of the checkpoint tensor ``name``, from the table in its own gguf package."""
    # Here, because header checks, which need only the tables above, must not pay for it.
    import gguf

    stem, suffix = name.rsplit(".", 1)
    return f"{gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers).get_name(stem)}.{suffix}"


def layer_of(name: str) -> int:
    """The layer of the GGUF tensor ``name``; -1 for those outside the layers."""
    top, _, rest = name.partition(".")
    return int(rest.partition(".")[0]) if top == "blk" else -1
