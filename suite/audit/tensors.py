"""The tensors of a file against those of the checkpoint: which are there, their shapes and their types."""

from collections import Counter
from collections.abc import Iterator, Mapping

from suite.audit.checkpoint import EMBEDDING, HEAD, Checkpoint
from suite.audit.container import Container, Tensor
from suite.audit.ggml_types import TYPES
from suite.audit.rules import Finding
from suite.kit.layout import FALLBACKS

BY_NAME = {type.name: type for type in TYPES.values()}
HEAD_TYPE = "q6_k"
"""What llama.cpp's mixes give the head, and a tied embedding; its fallback where rows are no multiple of 256."""
MORE_BITS = ("attn_v", "ffn_down")
"""The matrices that llama.cpp's mixes give more bits in some layers."""


def check_tensors(container: Container, checkpoint: Checkpoint) -> Iterator[Finding]:
    """What a file gets wrong of names, shapes and types."""
    expected, found = checkpoint.expected_shapes, container.tensors
    for name in (name for name in expected if name not in found):
        yield Finding("tensors.missing", f"{name}: absent, the checkpoint has it as {list(expected[name])}", (name,))
    for name, tensor in found.items():
        if name == HEAD and checkpoint.is_tied:
            message = (
                f"{HEAD}: the head is tied to {EMBEDDING}, of which this is a second copy of {tensor.size:,} bytes"
            )
            yield Finding("tensors.tied-head", message, (name,), tensor.offset, tensor.size)
        elif name not in expected:
            yield Finding("tensors.unexpected", f"{name}: the checkpoint has no such tensor", (name,), tensor.offset)
        elif tensor.shape != expected[name]:
            message = f"{name}: has shape {list(tensor.shape)}, expected {list(expected[name])}"
            yield Finding("tensors.shape", message, (name,), tensor.offset)
    yield from _types(found)


def _types(tensors: Mapping[str, Tensor]) -> Iterator[Finding]:
    for name, tensor in tensors.items():
        if len(tensor.shape) == 1 and tensor.type.name != "f32":
            yield Finding("tensors.type", f"{name}: is {tensor.type.label}, expected F32 as every vector", (name,))
        elif not tensor.type.holds_weights:
            yield Finding("tensors.type", f"{name}: is {tensor.type.label}, which holds no weights", (name,))
    matrices = {name: tensor for name, tensor in tensors.items() if len(tensor.shape) > 1}
    if not matrices:
        return
    base = _base(matrices)
    others = [name for name, tensor in matrices.items() if tensor.type.name != _type_for(base, tensor)]
    kinds = Counter((name.split(".")[-2], matrices[name].type.name, matrices[name].shape[-1]) for name in others)
    for (part, type, columns), count in kinds.items():
        subjects = [name for name in others if name.split(".")[-2] == part and matrices[name].type.name == type]
        where = f" in {count} layers" if subjects[0].startswith("blk.") else ""
        reason = _reason(part, type, columns)
        yield Finding("tensors.mix", f"{part} is {type.upper()}{where}, most are {base.upper()}: {reason}", subjects)


def _base(matrices: Mapping[str, Tensor]) -> str:
    """The type of most matrices, its fallback counted for it where a row is no multiple of its block."""

    def fits(type: str) -> int:
        return sum(tensor.type.name == _type_for(type, tensor) for tensor in matrices.values())

    return max(sorted({tensor.type.name for tensor in matrices.values()}), key=fits)


def _type_for(base: str, tensor: Tensor) -> str:
    return base if tensor.shape[-1] % BY_NAME[base].values == 0 else FALLBACKS.get(base, "f16")


def _reason(part: str, type: str, columns: int) -> str:
    fallback = columns % BY_NAME[HEAD_TYPE].values != 0
    head_type = FALLBACKS[HEAD_TYPE] if fallback else HEAD_TYPE
    if part in ("token_embd", "output") and type == head_type:
        return "as llama.cpp's mix makes it" + (f", {HEAD_TYPE.upper()}'s fallback for rows of {columns}" * fallback)
    if part in MORE_BITS:
        return "llama.cpp's mixes give it other bits in some layers"
    return "no mix of llama.cpp's does that"
