"""The rules of the audit: each one's permanent id, its severity and its statement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding weighs, by SARIF's names. A note says what readers do and breaks nothing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Rule:
    """A rule that a file made from a checkpoint keeps; ``quick`` where headers alone decide it."""

    id: str
    severity: Severity
    statement: str
    quick: bool = True


@dataclass(frozen=True)
class Finding:
    """One place, or several alike, where a file does not keep a rule.

    ``message`` is one line that says what was found, what was expected and, where it is known, the cause.
    ``subjects`` are the tensors or keys concerned. ``offset`` and ``size`` are bytes of the file.
    """

    rule: str
    message: str
    subjects: Sequence[str] = field(default=())
    offset: int | None = None
    size: int = 1

    @property
    def severity(self) -> Severity:
        """The rule's own."""
        return RULES[self.rule].severity

    @property
    def breaks(self) -> bool:
        """Whether the file is not clean because of it."""
        return self.severity is not Severity.NOTE


ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

_ALL = (
    Rule("container.version", ERROR, "The file is little-endian GGUF of version 2 or 3."),
    Rule("container.truncated", ERROR, "The file holds all bytes that its header describes."),
    Rule("container.count", ERROR, "No count or length is larger than what is left of the file could hold."),
    Rule(
        "container.key", ERROR, "Every key has a name of its own, at least one byte long, and a value of a known type."
    ),
    Rule("container.alignment", ERROR, "general.alignment is a UINT32, a power of two, and a multiple of 8."),
    Rule("container.tensor", ERROR, "Every tensor has a name under 64 bytes, 1 to 4 dimensions and whole blocks."),
    Rule("container.duplicate", ERROR, "No two tensors have the same name."),
    Rule("container.offset", ERROR, "Tensors lie one behind the other, each at the next multiple of the alignment."),
    Rule("container.trailing", NOTE, "The file ends where its last tensor does."),
    Rule(
        "metadata.missing", ERROR, "Every key is there without which a reader refuses the file, or has another default."
    ),
    Rule("metadata.type", ERROR, "Every key has the value type that readers ask for."),
    Rule("metadata.value", ERROR, "Every key says what config.json says."),
    Rule("metadata.vocabulary", ERROR, "The vocabulary has a token for each row of the embedding."),
    Rule("metadata.minimal", NOTE, "Every key is there that llama.cpp and transformers need."),
    Rule("tensors.missing", ERROR, "Every tensor of the checkpoint is there."),
    Rule("tensors.unexpected", ERROR, "No tensor is there that the checkpoint lacks."),
    Rule("tensors.tied-head", WARNING, "A head tied to the embedding is written once."),
    Rule("tensors.shape", ERROR, "Every tensor has the checkpoint's shape."),
    Rule("tensors.type", ERROR, "One-dimensional tensors are F32, all others of a type that holds weights."),
    Rule("tensors.mix", NOTE, "Every matrix has the type of most, or its fallback for rows that are no multiple."),
    Rule("values.coverage", ERROR, "Every tensor is compared with the checkpoint.", quick=False),
    Rule("values.finite", ERROR, "No weight is NaN or infinite.", quick=False),
    Rule("values.permutation", ERROR, "The rows of q and k are ordered by their own numbers of heads.", quick=False),
    Rule("values.misplaced", ERROR, "Every tensor holds the checkpoint's tensor of its own name.", quick=False),
    Rule("values.envelope", ERROR, "Every row is as near the checkpoint as its type allows.", quick=False),
    Rule(
        "values.damaged", ERROR, "No block is much farther from the checkpoint than its tensor's others.", quick=False
    ),
    Rule(
        "values.stray",
        WARNING,
        "Where requantizing gives all but a few blocks of the file byte for byte, it gives those too.",
        quick=False,
    ),
)

RULES: Mapping[str, Rule] = {rule.id: rule for rule in _ALL}
