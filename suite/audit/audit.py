"""One file against one checkpoint: headers first, then every tensor's values, then the causes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from suite.audit.checkpoint import Checkpoint, open_checkpoint
from suite.audit.container import Container
from suite.audit.metadata import check_metadata
from suite.audit.rules import RULES, Finding
from suite.audit.scan import scan
from suite.audit.tensors import check_tensors

if TYPE_CHECKING:
    # What compares imports numpy, which header checks have no use for.
    from suite.audit.values import Comparison


@dataclass(frozen=True)
class Audit:
    """What an audit found. ``quick``: from headers alone, no value was looked at."""

    container: Container
    checkpoint: Checkpoint
    quick: bool
    findings: Sequence[Finding]
    comparisons: Sequence["Comparison"] = ()
    uncompared: Mapping[str, str] = field(default_factory=dict)
    """Each tensor of the checkpoint whose values were not looked at, and why."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found but what readers do."""
        return not any(finding.breaks for finding in self.findings)

    @property
    def coverage(self) -> str:
        """How many tensors were compared, and how."""
        if self.quick:
            return f"headers alone: the values of {len(self.checkpoint.expected_shapes)} tensors were not looked at"
        return _coverage(self.comparisons, len(self.checkpoint.expected_shapes))


def audit_file(file: Path, source: Path, *, quick: bool = False) -> Audit:
    """Audit ``file`` against the checkpoint folder ``source``.

    Raises ``InputError`` for a file that is no GGUF, and a checkpoint that cannot be read.
    """
    container, checkpoint = scan(file), open_checkpoint(source)
    findings = list(container.findings)
    if container.has_all_keys:
        findings += check_metadata(container, checkpoint)
    if container.has_all_tensors:
        findings += check_tensors(container, checkpoint)
    if quick:
        return Audit(container, checkpoint, quick, _in_order(findings))
    uncompared = _uncompared(container, checkpoint)
    # Here, because header checks must not pay for what compares.
    from suite.audit.compare import compare_tensors

    comparisons, causes = compare_tensors(container, checkpoint, uncompared)
    if uncompared:
        reasons = ", ".join(
            f"{list(uncompared.values()).count(reason)} {reason}" for reason in dict.fromkeys(uncompared.values())
        )
        expected = len(checkpoint.expected_shapes)
        message = f"{len(comparisons)} of {expected} tensors could be compared: {reasons}"
        findings.append(Finding("values.coverage", message, list(uncompared)))
    return Audit(container, checkpoint, quick, _in_order([*findings, *causes]), comparisons, uncompared)


def _uncompared(container: Container, checkpoint: Checkpoint) -> dict[str, str]:
    reasons = {}
    for name, shape in checkpoint.expected_shapes.items():
        tensor = container.tensors.get(name) if container.has_all_tensors else None
        if not container.has_all_tensors:
            reasons[name] = "beyond what could be read of the header"
        elif tensor is None:
            reasons[name] = "absent"
        elif not tensor.is_whole:
            reasons[name] = "beyond the end of the file"
        elif tensor.shape != shape:
            reasons[name] = "of another shape"
        elif not tensor.type.holds_weights:
            reasons[name] = f"of type {tensor.type.label}"
    return reasons


def _in_order(findings: Sequence[Finding]) -> list[Finding]:
    order = list(RULES)
    return sorted(findings, key=lambda each: order.index(each.rule))


def _coverage(comparisons: Sequence["Comparison"], expected: int) -> str:
    exactly = sum(each.is_identical and each.tensor.type.values == 1 for each in comparisons)
    requantized = sum(each.is_identical and each.tensor.type.values > 1 for each in comparisons)
    within = [each.tensor.type.label for each in comparisons if each.is_within and not each.is_identical]
    beyond = sum(not each.is_within for each in comparisons)
    parts = [f"{exactly} exactly"] * (exactly > 0) + [f"{requantized} requantized byte for byte"] * (requantized > 0)
    parts += [f"{within.count(type)} within the envelope of {type}" for type in dict.fromkeys(within)]
    parts += [f"{beyond} otherwise"] * (beyond > 0)
    return f"{len(comparisons)} of {expected} tensors compared" + (f": {', '.join(parts)}" if parts else "")
