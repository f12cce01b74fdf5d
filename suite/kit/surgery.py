"""Files broken on purpose, made from a correct GGUF file by changing one thing.

So every engine is asked the same question without its converter's cooperation. Tensors stream from a
memory map one at a time; values keep their exact GGUF types; the result replaces ``output`` only when
complete. Rows of blocks are moved whole: a row never splits a block, so what is quantized stays so.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gguf import GGUF_DEFAULT_ALIGNMENT, GGUFValueType, GGUFWriter, ReaderField, ReaderTensor
from numpy.typing import NDArray

from impl.errors import InputError
from suite.kit.artifacts import written_beside
from suite.kit.rows import in_hugging_face_order
from suite.kit.tensors import open_gguf, tensor_kind


@dataclass(frozen=True)
class Value:
    """The value of a key with its GGUF type, and for an array the type of its items."""

    content: Any
    type: GGUFValueType
    item_type: GGUFValueType | None = None


@dataclass(frozen=True)
class Contents:
    """What a GGUF file holds, in the file's order; tensor data stays in the memory map."""

    path: Path
    keys: Mapping[str, Value]
    tensors: Sequence[ReaderTensor]

    def value(self, key: str) -> Value:
        """The value of ``key``; ``InputError`` where the file lacks it."""
        if key not in self.keys:
            raise InputError(f"{self.path}: {key}: no such key")
        return self.keys[key]

    def tensor(self, name: str) -> ReaderTensor:
        """The tensor ``name``; ``InputError`` where the file lacks it."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise InputError(f"{self.path}: {name}: no such tensor")


Edit = Callable[[ReaderTensor], NDArray]
"""The data to write in place of a tensor's own, of equal shape and dtype."""

HEAD_COUNT_KEYS: Mapping[str, str] = {
    "blk.attn_q.weight": "llama.attention.head_count",
    "blk.attn_q.bias": "llama.attention.head_count",
    "blk.attn_k.weight": "llama.attention.head_count_kv",
    "blk.attn_k.bias": "llama.attention.head_count_kv",
}
"""The tensors whose rows GGUF's llama architecture reorders, and the key that says in how many heads."""


def read_contents(path: Path) -> Contents:
    """Read a GGUF file's keys and map its tensors; ``InputError`` for duplicate names and the unreadable."""
    reader = open_gguf(path)
    keys = {key: _value(path, field) for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    return Contents(path, keys, reader.tensors)


def without_permutation(source: Path, output: Path) -> None:
    """Put the rows of every q and k back in Hugging Face order, but still call the architecture llama."""
    contents = read_contents(source)
    _write(contents, output, _rows_put_back(contents))


def neox(source: Path, output: Path) -> None:
    """Put the rows back and call the architecture qwen2, which rotates halves; keys keep their prefix."""
    contents = read_contents(source)
    _write(_with_content(contents, "general.architecture", "qwen2"), output, _rows_put_back(contents))


def drop_key(source: Path, output: Path, key: str) -> None:
    """Leave out one key; ``InputError`` where the file lacks it."""
    contents = read_contents(source)
    contents.value(key)
    kept = {name: value for name, value in contents.keys.items() if name != key}
    _write(replace(contents, keys=kept), output)


def drop_all_keys(source: Path, output: Path) -> None:
    """Leave out all metadata: a file of zero keys."""
    _write(replace(read_contents(source), keys={}), output)


def set_key(source: Path, output: Path, key: str, content: Any) -> None:  # noqa: ANN401
    """Give an existing key another value of the same GGUF type."""
    _write(_with_content(read_contents(source), key, content), output)


def drop_tensor(source: Path, output: Path, name: str) -> None:
    """Leave out one tensor; ``InputError`` where the file lacks it."""
    contents = read_contents(source)
    contents.tensor(name)
    kept = [tensor for tensor in contents.tensors if tensor.name != name]
    _write(replace(contents, tensors=kept), output)


def set_bytes(source: Path, output: Path, name: str, offset: int, replacement: bytes) -> None:
    """Overwrite bytes of one tensor's data from ``offset`` on; the rest of the file stays as it is."""
    tensor = read_contents(source).tensor(name)
    if not 0 <= offset <= tensor.n_bytes - len(replacement):
        raise InputError(
            f"{source}: {name}: found bytes {offset} to {offset + len(replacement)}, "
            f"expected them within the tensor's {tensor.n_bytes}"
        )
    with written_beside(output) as unfinished:
        shutil.copyfile(source, unfinished)
        with unfinished.open("r+b") as file:
            file.seek(tensor.data_offset + offset)
            file.write(replacement)


def _value(path: Path, field: ReaderField) -> Value:
    type, *item_types = field.types
    if (type == GGUFValueType.ARRAY and len(set(item_types)) != 1) or GGUFValueType.ARRAY in item_types:
        raise InputError(f"{path}: {field.name}: found an empty or nested array, expected a flat one of items")
    return Value(field.contents(), type, item_types[0] if item_types else None)


def _with_content(contents: Contents, key: str, content: Any) -> Contents:  # noqa: ANN401
    changed = replace(contents.value(key), content=content)
    return replace(contents, keys={**contents.keys, key: changed})


def _rows_put_back(contents: Contents) -> Edit:
    heads = {kind: contents.value(key).content for kind, key in HEAD_COUNT_KEYS.items()}

    def edit(tensor: ReaderTensor) -> NDArray:
        kind = tensor_kind(tensor.name)
        return in_hugging_face_order(tensor.data, heads[kind]) if kind in heads else tensor.data

    return edit


def _write(contents: Contents, output: Path, edit: Edit = lambda tensor: tensor.data) -> None:
    with written_beside(output) as unfinished:
        # Any other arch would come back as general.architecture, also where that was dropped.
        writer = GGUFWriter(unfinished, arch="")
        for key, value in contents.keys.items():
            writer.add_key_value(key, value.content, value.type, value.item_type)
        alignment = contents.keys.get("general.alignment")
        writer.data_alignment = alignment.content if alignment else GGUF_DEFAULT_ALIGNMENT
        for tensor in contents.tensors:
            data = tensor.data
            writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in contents.tensors:
            writer.write_tensor_data(edit(tensor))
        writer.close()
