"""Which tensor gets which type.

A recipe named like a type gives that type to every matrix. The mixes are llama.cpp's (llama-quant.cpp,
mid-2026) for the llama architecture; where a mix has a type's name there, it is called ``NAME_mix`` here.
One-dimensional tensors are never quantized.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gguf import GGMLQuantizationType, LlamaFileType

from impl.errors import InputError
from impl.reference.blocks import FORMATS

FALLBACK: Mapping[str, str] = {
    "q2_k": "q4_0",
    "q3_k": "q4_0",
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
    "tq1_0": "q4_0",
    "tq2_0": "q4_0",
    "iq4_xs": "iq4_nl",
}
"""What a matrix gets whose rows are not a multiple of the type's block; "f16" where nothing stands here."""


@dataclass(frozen=True)
class Rule:
    """The type of one kind of tensor, in the layers that it holds for."""

    tensor: str
    """The middle of the GGUF name, as "attn_v"; "output" also means a tied ``token_embd``."""
    type: str
    layers: Callable[[int, int], bool] = lambda layer, count: True
    """Of layer and number of layers."""
    grouping: int = 1
    """The least number of heads over each key-value head."""


@dataclass(frozen=True)
class Recipe:
    """The first rule that fits a matrix gives its type; ``base`` where none does."""

    base: str
    file_type: LlamaFileType
    """What ``general.file_type`` says."""
    rules: tuple[Rule, ...] = ()
    rules_with_importance: tuple[Rule, ...] | None = None
    """The rules in their place for a file made with an importance matrix; None where it makes no difference."""


def _first_eighth(layer: int, count: int) -> bool:
    return layer < count // 8


def _first_sixteenth(layer: int, count: int) -> bool:
    return layer < count // 16


def _more_bits(layer: int, count: int) -> bool:
    return layer < count // 8 or layer >= 7 * count // 8 or (layer - count // 8) % 3 == 2


def _first(number: int) -> Callable[[int, int], bool]:
    return lambda layer, count: layer < number


def _of_80(layer: int, count: int) -> bool:
    # Llama 70B, where eight heads share the rows of attn_v.
    return count == 80


OUTPUT = Rule("output", "q6_k")
VALUE_70B = Rule("attn_v", "q5_k", _of_80)
IQ4_RULES = (OUTPUT, Rule("attn_v", "q5_k", grouping=4))
IQ4_RULES_ALONE = (*IQ4_RULES, Rule("ffn_down", "q5_k", _first_eighth))

MIXES: Mapping[str, Recipe] = {
    "q4_0_mix": Recipe("q4_0", LlamaFileType.MOSTLY_Q4_0, (OUTPUT,), (OUTPUT, Rule("ffn_down", "q4_1", _first_eighth))),
    "q4_1_mix": Recipe("q4_1", LlamaFileType.MOSTLY_Q4_1, (OUTPUT,)),
    "q5_0_mix": Recipe("q5_0", LlamaFileType.MOSTLY_Q5_0, (OUTPUT,), (OUTPUT, Rule("ffn_down", "q5_1", _first_eighth))),
    "q5_1_mix": Recipe("q5_1", LlamaFileType.MOSTLY_Q5_1, (OUTPUT,)),
    "q2_k_mix": Recipe(
        "q2_k",
        LlamaFileType.MOSTLY_Q2_K,
        (
            OUTPUT,
            VALUE_70B,
            Rule("attn_v", "q4_k", grouping=4),
            Rule("attn_v", "q3_k"),
            Rule("attn_output", "q3_k"),
            Rule("ffn_down", "q3_k"),
        ),
    ),
    "q3_k_s": Recipe("q3_k", LlamaFileType.MOSTLY_Q3_K_S, (OUTPUT, VALUE_70B)),
    "q3_k_m": Recipe(
        "q3_k",
        LlamaFileType.MOSTLY_Q3_K_M,
        (
            OUTPUT,
            VALUE_70B,
            Rule("attn_v", "q5_k", _first(2)),
            Rule("attn_v", "q4_k"),
            Rule("attn_output", "q4_k"),
            Rule("ffn_down", "q5_k", _first_sixteenth),
            Rule("ffn_down", "q4_k"),
        ),
    ),
    "q3_k_l": Recipe(
        "q3_k",
        LlamaFileType.MOSTLY_Q3_K_L,
        (OUTPUT, Rule("attn_v", "q5_k"), Rule("attn_output", "q5_k"), Rule("ffn_down", "q5_k")),
    ),
    "q4_k_s": Recipe(
        "q4_k",
        LlamaFileType.MOSTLY_Q4_K_S,
        (OUTPUT, VALUE_70B, Rule("attn_v", "q5_k", _first(4)), Rule("ffn_down", "q5_k", _first_eighth)),
    ),
    "q4_k_m": Recipe(
        "q4_k",
        LlamaFileType.MOSTLY_Q4_K_M,
        (OUTPUT, Rule("attn_v", "q6_k", _more_bits), VALUE_70B, Rule("ffn_down", "q6_k", _more_bits)),
    ),
    "q5_k_s": Recipe("q5_k", LlamaFileType.MOSTLY_Q5_K_S, (OUTPUT,)),
    "q5_k_m": Recipe(
        "q5_k",
        LlamaFileType.MOSTLY_Q5_K_M,
        (OUTPUT, Rule("attn_v", "q6_k", _more_bits), Rule("ffn_down", "q6_k", _more_bits)),
    ),
    "iq4_nl_mix": Recipe("iq4_nl", LlamaFileType.MOSTLY_IQ4_NL, IQ4_RULES_ALONE, IQ4_RULES),
    "iq4_xs_mix": Recipe("iq4_xs", LlamaFileType.MOSTLY_IQ4_XS, IQ4_RULES_ALONE, IQ4_RULES),
}

ACTIVATIONS = ("q8_1", "q8_k")
"""Formats of an engine's activations; no file holds weights in them."""

FLOATS = ("f32", "f16", "bf16")
"""The types that are not quantized."""

PURE_FILE_TYPES: Mapping[str, LlamaFileType] = {
    "f32": LlamaFileType.ALL_F32,
    "q3_k": LlamaFileType.MOSTLY_Q3_K_S,
    "q4_k": LlamaFileType.MOSTLY_Q4_K_S,
    "q5_k": LlamaFileType.MOSTLY_Q5_K_S,
    "mxfp4": LlamaFileType.MOSTLY_MXFP4_MOE,
}
"""Where a pure recipe's file type is not called after the type."""


def _pure(type: str) -> Recipe:
    like_the_type = LlamaFileType.__members__.get(f"MOSTLY_{type.upper()}", LlamaFileType.GUESSED)
    return Recipe(type, PURE_FILE_TYPES.get(type, like_the_type))


def _is_for_weights(type: str) -> bool:
    return type not in ACTIVATIONS and type.upper() in GGMLQuantizationType.__members__


RECIPES: Mapping[str, Recipe] = {**{type: _pure(type) for type in FORMATS if _is_for_weights(type)}, **MIXES}


def find_recipe(name: str, with_importance: bool = False) -> Recipe:
    """The recipe called ``name``, with the rules for a file made with or without an importance matrix.

    Raises ``InputError`` that lists the known ones.
    """
    if name not in RECIPES:
        raise InputError(f"recipe {name!r}: unknown, expected one of {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    if with_importance and recipe.rules_with_importance is not None:
        return replace(recipe, rules=recipe.rules_with_importance)
    return recipe


def types_for(recipe: Recipe, shapes: Mapping[str, tuple[int, ...]], layers: int, grouping: int) -> dict[str, str]:
    """The type of each tensor of a model.

    ``shapes`` gives every tensor of the model by GGUF name, rows first; ``layers`` is their number and
    ``grouping`` the number of heads over each key-value head.
    """
    tied = "output.weight" not in shapes

    def type_of(name: str, shape: tuple[int, ...]) -> str:
        if len(shape) == 1:
            return "f32"
        kind, layer = _kind(name)
        if tied and kind == "token_embd":
            kind = "output"
        for rule in recipe.rules:
            if rule.tensor == kind and rule.layers(layer, layers) and grouping >= rule.grouping:
                return with_fallback(rule.type, shape[-1])
        return with_fallback(recipe.base, shape[-1])

    return {name: type_of(name, shape) for name, shape in shapes.items()}


def with_fallback(type: str, columns: int) -> str:
    """``type``, or the one that takes its place in rows of ``columns`` values."""
    while columns % FORMATS[type].values:
        type = FALLBACK.get(type, "f16")
    return type


def _kind(name: str) -> tuple[str, int]:
    """The middle of a GGUF tensor name, and its layer: -1 outside the layers."""
    match = re.fullmatch(r"(?:blk\.(?P<layer>\d+)\.)?(?P<kind>\w+)\.\w+", name)
    return match["kind"], int(match["layer"] or -1)
