"""The commands a manifest may give: templates of a program and its arguments, with placeholders to fill in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

Template = Sequence[str | Sequence[str]]
"""A program, then its arguments. Names in braces are filled in; a list inside is left out as a whole where one
of its placeholders has no value."""


@dataclass(frozen=True)
class Command:
    """Which placeholders a template must name, of which it must name one, and which it may name.

    ``only_in_lists`` are those that may have no value; ``offers`` is the manifest's key for what the command is
    run with.
    """

    offers: str
    required: frozenset[str]
    one_of: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    only_in_lists: frozenset[str] = frozenset()

    @property
    def placeholders(self) -> frozenset[str]:
        """All that the template may name."""
        return self.required | self.one_of | self.optional | self.only_in_lists


COMMANDS: Mapping[str, Command] = {
    "quantize": Command(
        offers="types",
        required=frozenset({"input", "output"}),
        optional=frozenset({"type", "rows", "columns"}),
        only_in_lists=frozenset({"importance"}),
    ),
    "dequantize": Command(
        offers="types",
        required=frozenset({"input", "output"}),
        optional=frozenset({"type", "rows", "columns"}),
    ),
    "convert": Command(
        offers="recipes",
        required=frozenset({"output"}),
        one_of=frozenset({"checkpoint", "f32"}),
        optional=frozenset({"recipe", "metadata"}),
        only_in_lists=frozenset({"importance"}),
    ),
    "logits": Command(
        offers="backends",
        required=frozenset({"file", "tokens", "output"}),
        optional=frozenset({"backend"}),
    ),
    "generate": Command(
        offers="backends",
        required=frozenset({"file", "tokens", "count", "output"}),
        optional=frozenset({"backend"}),
    ),
}


def filled(template: Template, values: Mapping[str, object]) -> list[str]:
    """The command line, each placeholder replaced by its value."""
    parts = [[part] if isinstance(part, str) else part for part in template]
    given = [part for part in parts if named(part) <= values.keys()]
    return [text.format_map(values) for part in given for text in part]


def named(texts: Sequence[str]) -> set[str]:
    """The placeholders in some strings; ``{{`` and ``}}`` are braces themselves. ``ValueError`` for a lone brace."""
    return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name is not None}
