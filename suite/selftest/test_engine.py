"""The reference engine against a plain float64 forward pass, transformers, and files that are wrong."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFEndian, GGUFValueType, GGUFWriter
from gguf.quants import dequantize as gguf_dequantize
from gguf.quants import quantize as gguf_quantize
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

from impl.errors import InputError
from impl.reference import blocks
from impl.reference.activations import through
from impl.reference.cpu import CHUNK, CpuOperations
from impl.reference.llama import Llama, load

HIDDEN, HEADS, KEY_VALUE_HEADS, HEAD_SIZE, INNER, VOCABULARY, LAYERS = 96, 8, 2, 16, 160, 50, 2
EPSILON = 3e-3
TOKENS = np.random.default_rng(1).integers(VOCABULARY, size=3 * CHUNK + 5).tolist()

REQUIRED = {
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KEY_VALUE_HEADS,
    "llama.block_count": LAYERS,
    "llama.embedding_length": HIDDEN,
    "llama.rope.dimension_count": HEAD_SIZE,
    "llama.attention.layer_norm_rms_epsilon": EPSILON,
}
"""In the order in which candle's quantized_llama asks for them."""


def random_tensors() -> dict[str, NDArray[np.float32]]:
    """The weights of a small Llama, by GGUF name."""
    rng = np.random.default_rng(0)
    query, key = HEADS * HEAD_SIZE, KEY_VALUE_HEADS * HEAD_SIZE
    shapes = {"token_embd": (VOCABULARY, HIDDEN), "output": (VOCABULARY, HIDDEN), "output_norm": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm": (HIDDEN,),
            f"blk.{layer}.attn_q": (query, HIDDEN),
            f"blk.{layer}.attn_k": (key, HIDDEN),
            f"blk.{layer}.attn_v": (key, HIDDEN),
            f"blk.{layer}.attn_output": (HIDDEN, query),
            f"blk.{layer}.ffn_norm": (HIDDEN,),
            f"blk.{layer}.ffn_gate": (INNER, HIDDEN),
            f"blk.{layer}.ffn_up": (INNER, HIDDEN),
            f"blk.{layer}.ffn_down": (HIDDEN, INNER),
        }
    # Matrices so large that attention prefers some positions to others and a wrong rotation shows.
    return {
        f"{name}.weight": rng.normal(1 if len(shape) == 1 else 0, 0.2, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


@dataclass(frozen=True)
class Small:
    """What a small GGUF file holds; ``write`` writes it."""

    architecture: str | None = "llama"
    keys: Mapping[str, int | float | str] = field(default_factory=lambda: {**REQUIRED, **DECLARED})
    tensors: Mapping[str, NDArray] = field(default_factory=random_tensors)
    matrices: GGMLQuantizationType = GGMLQuantizationType.F32
    endian: GGUFEndian = GGUFEndian.LITTLE

    def write(self, folder: Path) -> Path:
        """Write it into ``folder``; ints are UINT32 and floats FLOAT32."""
        path = folder / "small.gguf"
        writer = GGUFWriter(path, arch="", endianess=self.endian)
        writer.kv_data[0].clear()
        if self.architecture is not None:
            writer.add_string("general.architecture", self.architecture)
        adders: Mapping[type, Callable] = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        for key, value in self.keys.items():
            adders[type(value)](key, value)
        for name, tensor in self.tensors.items():
            if tensor.ndim == 2 and tensor.dtype == np.float32 and self.matrices != GGMLQuantizationType.F32:
                writer.add_tensor(name, gguf_quantize(tensor, self.matrices), raw_dtype=self.matrices)
            else:
                writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def without(self, name: str) -> "Small":
        """The same without one key or tensor."""
        return dataclasses.replace(
            self,
            keys={key: value for key, value in self.keys.items() if key != name},
            tensors={key: value for key, value in self.tensors.items() if key != name},
        )

    def with_keys(self, **changes: int | float | str) -> "Small":
        """The same with some keys changed; a dot in a key is written as two underscores."""
        return dataclasses.replace(self, keys={**self.keys, **{k.replace("__", "."): v for k, v in changes.items()}})

    def with_tensors(self, **changes: NDArray) -> "Small":
        """The same with some tensors changed; a dot in a name is written as two underscores."""
        changed = {name.replace("__", "."): tensor for name, tensor in changes.items()}
        return dataclasses.replace(self, tensors={**self.tensors, **changed})


DECLARED = {"llama.rope.freq_base": 31000.0, "llama.attention.key_length": HEAD_SIZE}
HEAD_BIASES = {
    f"blk.{layer}.attn_{name}.bias": np.random.default_rng(layer).normal(0, 1, heads * HEAD_SIZE).astype(np.float32)
    for layer in range(LAYERS)
    for name, heads in (("q", HEADS), ("k", KEY_VALUE_HEADS), ("v", KEY_VALUE_HEADS))
}


def plain_logits(small: Small, tokens: list[int]) -> NDArray[np.float64]:
    """The paper's forward pass, position by position and head by head, in float64."""
    weights = {name: _stored(tensor, small.matrices) for name, tensor in small.tensors.items()}
    turn = _turner(small)
    keys: list[list[NDArray]] = [[] for _ in range(LAYERS)]
    values: list[list[NDArray]] = [[] for _ in range(LAYERS)]
    logits = []
    for position, token in enumerate(tokens):
        x = weights["token_embd.weight"][token]
        for layer in range(LAYERS):
            w = {name.split(".", 2)[2]: tensor for name, tensor in weights.items() if name.startswith(f"blk.{layer}.")}
            normed = _norm(x) * w["attn_norm.weight"]
            q, k, v = (
                (w[f"attn_{name}.weight"] @ normed + w.get(f"attn_{name}.bias", 0)).reshape(-1, HEAD_SIZE)
                for name in "qkv"
            )
            keys[layer].append(np.array([turn(head, position) for head in k]))
            values[layer].append(v)
            attended = []
            for head in range(HEADS):
                shared = head // (HEADS // KEY_VALUE_HEADS)
                query = turn(q[head], position)
                scores = np.array([query @ past[shared] for past in keys[layer]]) / np.sqrt(HEAD_SIZE)
                share = np.exp(scores - scores.max())
                attended.append(share / share.sum() @ np.array([past[shared] for past in values[layer]]))
            x = x + w["attn_output.weight"] @ np.concatenate(attended)
            normed = _norm(x) * w["ffn_norm.weight"]
            gate = w["ffn_gate.weight"] @ normed
            x = x + w["ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * (w["ffn_up.weight"] @ normed))
        head = weights.get("output.weight", weights["token_embd.weight"])
        logits.append(head @ (_norm(x) * weights["output_norm.weight"]))
    return np.array(logits)


def _stored(tensor: NDArray, type: GGMLQuantizationType) -> NDArray[np.float64]:
    if tensor.ndim == 2 and type != GGMLQuantizationType.F32:
        tensor = gguf_dequantize(gguf_quantize(tensor, type), type)
    return tensor.astype(np.float64)


def _norm(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x / np.sqrt((x**2).mean() + EPSILON)


def _turner(small: Small) -> Callable[[NDArray[np.float64], int], NDArray[np.float64]]:
    base = small.keys.get("llama.rope.freq_base", 10000.0)
    rotated = small.keys["llama.rope.dimension_count"]
    scale = small.keys.get("llama.rope.scaling.factor", 1.0)
    divisors = small.tensors.get("rope_freqs.weight", np.ones(rotated // 2))

    def turn(head: NDArray[np.float64], position: int) -> NDArray[np.float64]:
        turned = head.copy()
        for pair in range(rotated // 2):
            angle = position / (scale * float(divisors[pair])) * base ** (-2 * pair / rotated)
            a, b = (pair, pair + rotated // 2) if small.architecture == "qwen2" else (2 * pair, 2 * pair + 1)
            turned[a] = head[a] * np.cos(angle) - head[b] * np.sin(angle)
            turned[b] = head[a] * np.sin(angle) + head[b] * np.cos(angle)
        return turned

    return turn


VARIANTS = {
    "plain": Small(),
    "rotating halves": Small(architecture="qwen2"),
    "no architecture": Small(architecture=None),
    "tied": Small().without("output.weight"),
    "biases": dataclasses.replace(Small(), tensors={**random_tensors(), **HEAD_BIASES}),
    "half of each head rotated": Small().with_keys(llama__rope__dimension_count=HEAD_SIZE // 2),
    "frequencies divided": Small().with_tensors(rope_freqs__weight=np.linspace(1, 8, 8, dtype=np.float32)),
    "positions divided": Small().with_keys(llama__rope__scaling__type="linear", llama__rope__scaling__factor=4.0),
    "no freq_base": Small().without("llama.rope.freq_base"),
    "f16": Small(matrices=GGMLQuantizationType.F16),
    "q8_0": Small(matrices=GGMLQuantizationType.Q8_0),
    "q5_1": Small(matrices=GGMLQuantizationType.Q5_1),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_a_plain_float64_forward_pass(variant: str, tmp_path: Path) -> None:
    small = VARIANTS[variant]
    expected = plain_logits(small, TOKENS[:40])
    logits = load(small.write(tmp_path), "cpu-dequantized").logits(TOKENS[:40])
    assert logits.dtype == np.float32
    assert logits.shape == (40, VOCABULARY)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)


def test_every_variant_has_logits_of_its_own() -> None:
    """Else a variant that the engine ignored would pass for one that it heeded."""
    plain = plain_logits(VARIANTS["plain"], TOKENS[:40])
    for variant in VARIANTS.keys() - {"plain", "no architecture", "f16"}:
        assert np.abs(plain_logits(VARIANTS[variant], TOKENS[:40]) - plain).max() > 1e-2, variant


@pytest.mark.parametrize("backend", ["cpu-dequantized", "cpu"])
def test_an_f32_file_that_rotates_halves_is_transformers_bit_for_bit(backend: str, tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_VALUE_HEADS,
        head_dim=HEAD_SIZE,
        rms_norm_eps=EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": 31000.0},
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    small = Small(architecture="qwen2", tensors=_under_gguf_names(model))
    with torch.inference_mode():
        expected = model(torch.tensor([TOKENS])).logits[0].numpy()
    logits = load(small.write(tmp_path), backend).logits(TOKENS)
    assert np.array_equal(logits.view(np.uint32), expected.view(np.uint32))


def _under_gguf_names(model: LlamaForCausalLM) -> dict[str, NDArray[np.float32]]:
    modules = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "model.layers": "blk",
        "self_attn.o_proj": "attn_output",
        "self_attn.": "attn_",
        "post_attention_layernorm": "ffn_norm",
        "input_layernorm": "attn_norm",
        "mlp.": "ffn_",
        "_proj": "",
    }
    tensors = {}
    for name, tensor in model.state_dict().items():
        for theirs, ours in modules.items():
            name = name.replace(theirs, ours)
        tensors[name] = tensor.numpy()
    return tensors


@pytest.fixture(scope="module")
def quantized_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Small(matrices=GGMLQuantizationType.Q8_0).write(tmp_path_factory.mktemp("q8_0"))


@pytest.fixture(scope="module")
def quantizing(quantized_file: Path) -> Llama:
    """A model whose activations are quantized: any change of a product's last bits would show in its logits."""
    return load(quantized_file, "cpu")


def test_quantized_activations_change_the_logits_a_little(quantizing: Llama, quantized_file: Path) -> None:
    dequantized = load(quantized_file, "cpu-dequantized").logits(TOKENS)
    difference = np.abs(quantizing.logits(TOKENS) - dequantized).max()
    assert 1e-3 < difference < 0.1 * np.abs(dequantized).max()


def test_quantized_logits_depend_on_no_later_token_to_the_bit(quantizing: Llama) -> None:
    whole = quantizing.logits(TOKENS)
    for length in (1, 2, 5, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, len(TOKENS)):
        assert np.array_equal(quantizing.logits(TOKENS[:length]), whole[:length]), length


@pytest.mark.parametrize("type", [GGMLQuantizationType.F32, GGMLQuantizationType.Q8_0])
@pytest.mark.parametrize("backend", ["cpu-dequantized", "cpu"])
def test_generating_with_a_cache_picks_what_one_pass_over_everything_picks(
    type: GGMLQuantizationType, backend: str, tmp_path: Path
) -> None:
    model = load(Small(matrices=type).write(tmp_path), backend)
    prompt = TOKENS[:5]
    generated = model.generate(prompt, 2 * CHUNK)
    whole = model.logits([*prompt, *generated])
    assert len(generated) == 2 * CHUNK
    assert len(set(generated)) > 3
    assert generated == whole[len(prompt) - 1 : -1].argmax(axis=1).tolist()


def test_no_call_leaves_anything_to_the_next(quantizing: Llama) -> None:
    prompt = TOKENS[:37]
    first = quantizing.logits(prompt).copy()
    generated = quantizing.generate(prompt[:3], 4)
    assert np.array_equal(quantizing.logits(prompt), first)
    assert quantizing.generate(prompt[:3], 4) == generated
    assert prompt == TOKENS[:37]


def test_nothing_is_generated_for_zero_tokens(quantizing: Llama) -> None:
    assert quantizing.generate(TOKENS[:3], 0) == []


@pytest.mark.parametrize("tokens", [[], [0, -1], [VOCABULARY]])
def test_tokens_outside_of_the_vocabulary_are_refused(tokens: list[int], quantizing: Llama) -> None:
    with pytest.raises(InputError, match=str(tokens[-1]) if tokens else "no tokens"):
        quantizing.logits(tokens)


ACTIVATIONS = sorted({format.activation for format in blocks.FORMATS.values()} - {None})


def activation_rows() -> NDArray[np.float32]:
    """Rows of two super-blocks: ordinary ones, and the values where roundings and scales are delicate."""
    rng = np.random.default_rng(2)
    ordinary = rng.normal(0, 3, (200, 512))
    halves = np.tile(np.concatenate([[127, np.nextafter(np.float32(0.5), 0)], np.arange(30) - 14.5]), 16)
    small = [np.full(512, value) for value in (0, -0.0, 1e-5, 1e-8, 1e-30, 1e-38, -1e-44)]
    tie = np.tile([3.0, -3.0], 256)
    mixed = np.concatenate([np.zeros(256), np.full(256, 1e-30)])
    return np.vstack([ordinary, 100 * ordinary[:5], halves, -halves, *small, tie, -tie, mixed]).astype(np.float32)


@pytest.mark.parametrize("format", ACTIVATIONS)
def test_activations_go_through_their_format_exactly(format: str) -> None:
    rows = activation_rows()
    expected = blocks.dequantize(blocks.quantize(rows, format), format)
    assert np.array_equal(through(torch.from_numpy(rows), format).numpy(), expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("format", ACTIVATIONS)
def test_an_activation_that_is_not_finite_is_never_lost(format: str, value: float) -> None:
    rows = activation_rows()[:2]
    rows[0, 300] = value
    left = through(torch.from_numpy(rows), format).numpy()
    assert np.isnan(left[0, 300])
    assert np.isfinite(left[1]).all()


@pytest.mark.parametrize(
    ("type", "activation"),
    [("f32", None), ("f16", None), ("bf16", None), ("q8_0", "q8_0"), ("q4_1", "q8_1"), ("q4_k", "q8_k")],
)
def test_a_matrix_is_multiplied_by_activations_in_its_own_format(type: str, activation: str | None) -> None:
    rows = activation_rows()[:20]
    stored = blocks.quantize(np.random.default_rng(3).normal(0, 1, (48, 512)).astype(np.float32), type)
    weight = blocks.dequantize(stored, type).astype(np.float64)
    met = rows if activation is None else blocks.dequantize(blocks.quantize(rows, activation), activation)
    for arithmetic, seen in (("dequantized", rows), ("quantized-activations", met)):
        operations = CpuOperations(arithmetic)
        product = operations.linear(torch.from_numpy(rows), operations.matrix(stored, type)).numpy()
        np.testing.assert_allclose(product, seen.astype(np.float64) @ weight.T, rtol=0, atol=1e-3)
    assert activation is None or np.abs((met - rows) @ weight.T).max() > 1e-2


def test_positions_come_in_chunks_only_where_activations_are_quantized() -> None:
    """A float32 file's pass must have transformers' shapes, and so its bits, however long it is."""
    assert CpuOperations("quantized-activations").chunk({"f32", "q4_k"}) == CHUNK
    assert CpuOperations("quantized-activations").chunk({"f32", "bf16"}) is None
    assert CpuOperations("dequantized").chunk({"f32", "q4_k"}) is None


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_required_key_is_named(key: str, tmp_path: Path) -> None:
    path = Small().without(key).write(tmp_path)
    _require_refusal(path, f"cannot find {key} in metadata")


@pytest.mark.parametrize("key", REQUIRED)
def test_a_required_key_of_another_type_is_named(key: str, tmp_path: Path) -> None:
    small = Small()
    path = dataclasses.replace(small, keys={**small.keys, key: "8"}).write(tmp_path)
    _require_refusal(path, f"{key} is of type STRING, expected {_type_of(REQUIRED[key]).name}")


def _type_of(value: int | float) -> GGUFValueType:
    return GGUFValueType.UINT32 if isinstance(value, int) else GGUFValueType.FLOAT32


def test_a_file_without_keys_is_refused_for_the_head_count(tmp_path: Path) -> None:
    path = Small(architecture=None, keys={}).write(tmp_path)
    _require_refusal(path, "cannot find llama.attention.head_count in metadata")


@pytest.mark.parametrize("stated", [10000.0, "100000", 31000])
def test_a_freq_base_that_is_missing_or_no_float32_is_10000(stated: float | str | int, tmp_path: Path) -> None:
    small = Small()
    missing = load(small.without("llama.rope.freq_base").write(tmp_path), "cpu-dequantized").logits(TOKENS)
    written = small.with_keys(llama__rope__freq_base=stated).write(tmp_path)
    assert np.array_equal(load(written, "cpu-dequantized").logits(TOKENS), missing)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("llama.attention.head_count", 0, "a positive number"),
        ("llama.attention.head_count_kv", 3, "a divisor of 8"),
        ("llama.rope.dimension_count", 7, "an even number up to 16"),
        ("llama.rope.dimension_count", 18, "an even number up to 16"),
        ("llama.rope.scaling.type", "yarn", "'linear' or 'none'"),
    ],
)
def test_a_key_that_does_not_fit_is_named(key: str, value: int | str, expected: str, tmp_path: Path) -> None:
    small = Small()
    path = dataclasses.replace(small, keys={**small.keys, key: value}).write(tmp_path)
    _require_refusal(path, f"{key} is {value!r}, expected {expected}")


@pytest.mark.parametrize("name", [name for name in random_tensors() if name != "output.weight"])
def test_a_missing_tensor_is_named(name: str, tmp_path: Path) -> None:
    _require_refusal(Small().without(name).write(tmp_path), f"cannot find tensor {name}")


@pytest.mark.parametrize("name", [*random_tensors(), "blk.1.attn_k.bias", "rope_freqs.weight"])
def test_a_tensor_of_another_shape_is_named(name: str, tmp_path: Path) -> None:
    small = Small()
    tensor = small.tensors.get(name, np.ones((3, 3), np.float32))
    path = dataclasses.replace(small, tensors={**small.tensors, name: tensor[..., :-1]}).write(tmp_path)
    _require_refusal(path, f"tensor {name} has shape {list(tensor[..., :-1].shape)}, expected")


def test_a_tensor_of_a_type_that_holds_no_weights_is_named(tmp_path: Path) -> None:
    path = Small().with_tensors(blk__1__ffn_up__weight=np.ones((INNER, HIDDEN), np.int32)).write(tmp_path)
    _require_refusal(path, "tensor blk.1.ffn_up.weight is i32, expected one of f32")


@pytest.mark.parametrize("kept", [3, 4, 23, 24, 200, 1000, -40_000, -33, -1])
def test_a_file_that_is_cut_short_is_refused(kept: int, tmp_path: Path) -> None:
    path = Small().write(tmp_path)
    content = path.read_bytes()[:kept]
    path.write_bytes(content)
    _require_refusal(path, f"not a readable GGUF file: it has {len(content)} bytes, expected at least")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.touch()
    _require_refusal(path, "not a readable GGUF file")


LLAMA = b"\x05" + 7 * b"\0" + b"llama"
"""The architecture as the file spells it, after its length."""


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        pytest.param(b"GGUF\x03", b"GGUF\x09", "not a readable GGUF file", id="version"),
        pytest.param(b"GGUF", b"GGML", "not a readable GGUF file", id="magic"),
        pytest.param(LLAMA, 7 * b"\xff" + b"\x7fllama", "expected at least", id="length of a text"),
        pytest.param(b"\x04\0\0\0\x08\0\0\0", b"\x09\0\0\0\x04\0\0\0", "expected at least", id="length of an array"),
        pytest.param(b"llama.block_count", b"llama.block_coun\xff", "not a readable GGUF file", id="key's text"),
        pytest.param(LLAMA, LLAMA[:-1] + b"\xff", "general.architecture is not UTF-8 text", id="value's text"),
    ],
)
def test_a_damaged_file_is_refused(old: bytes, new: bytes, text: str, tmp_path: Path) -> None:
    path = Small().write(tmp_path)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    _require_refusal(path, text)


def test_a_tensor_whose_offset_wraps_around_is_refused(tmp_path: Path) -> None:
    path = Small().write(tmp_path)
    content = bytearray(path.read_bytes())
    # After the name: the number of dimensions, two dimensions and the type.
    offset = content.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 2 * 8 + 4
    content[offset : offset + 8] = (2**64 - 32).to_bytes(8, "little")
    path.write_bytes(content)
    _require_refusal(path, "not a readable GGUF file: overflow")


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    _require_refusal(tmp_path / "absent.gguf", "No such file or directory")


def test_a_big_endian_file_is_refused(tmp_path: Path) -> None:
    _require_refusal(Small(endian=GGUFEndian.BIG).write(tmp_path), "expected a little-endian file")


def _require_refusal(path: Path, text: str) -> None:
    with pytest.raises(InputError) as refusal:
        load(path, "cpu")
    message = str(refusal.value)
    assert message.startswith(f"{path}: ")
    assert text in message
    assert len(message.splitlines()) == 1
