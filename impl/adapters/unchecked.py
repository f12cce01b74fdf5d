"""How a program deviates that looks at no weight before it quantizes."""

from collections.abc import Iterable, Mapping


def unchecked(name: str, non_finite: Iterable[str], overflowing: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """By claim and case, what does not hold of the program ``name``.

    ``non_finite`` are the types in which NaN or an infinity becomes a number, ``overflowing`` by weight (``8.4e6`` or
    ``1e30``) those in which a finite weight becomes none.
    """
    return {
        "refusal.weights": f"{name} looks at no weight before it quantizes",
        **{f"blocks.non-finite[{type}]": "what is not finite gets a code as any weight does" for type in non_finite},
        **{
            f"refusal.overflow[{type}-{weight}]": "the float16 of the scale, or of the value itself, overflows"
            for weight, types in overflowing.items()
            for type in types
        },
    }
