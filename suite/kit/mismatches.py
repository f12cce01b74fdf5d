"""What differs between two mappings, in one line for a person."""

from collections.abc import Mapping, Sequence

SHOWN = 4


def mismatches(found: Mapping[str, object], expected: Mapping[str, object]) -> str:
    """How ``found`` differs from ``expected`` by name, the first few in full; empty where it does not."""
    differing = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    told = "; ".join(
        f"{name}: found {found.get(name, 'nothing')}, expected {expected.get(name, 'nothing')}"
        for name in differing[:SHOWN]
    )
    return f"{len(differing)} of {len(expected)} differ: {told}" if differing else ""


def first_difference(found: Sequence[object], expected: Sequence[object]) -> str:
    """Where two sequences part; empty where they do not."""
    if list(found) == list(expected):
        return ""
    at = next(
        (i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(len(found), len(expected))
    )
    a, b = (each[at] if at < len(each) else "nothing" for each in (found, expected))
    return f"at {at} of {len(expected)}: found {a}, expected {b}"
