"""An audit as data: this project's own JSON, and SARIF 2.1.0 for what shows findings beside a change.

Both are the same bytes for the same input; neither holds a time or a name of the machine.
"""

import json
from typing import Any

from impl import __version__
from suite.audit.audit import Audit
from suite.audit.container import type_counts
from suite.audit.rules import RULES, Finding

SCHEMA_VERSION = 1
"""Of the JSON; grows when a field changes its meaning or goes away."""
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
TOOL = "gguf-conformance"


def as_json(audit: Audit) -> str:
    """Everything an audit found: coverage, findings, and every rule with whether the file keeps it."""
    container = audit.container
    broken = {finding.rule for finding in audit.findings}
    record = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": TOOL, "version": __version__},
        "file": {"path": str(container.path), "bytes": container.size, "types": type_counts(container.tensors)},
        "source": str(audit.checkpoint.folder),
        "quick": audit.quick,
        "clean": audit.is_clean,
        "coverage": {
            "summary": audit.coverage,
            "expected": len(audit.checkpoint.expected_shapes),
            "compared": len(audit.comparisons),
            "uncompared": dict(audit.uncompared),
        },
        "tensors": {
            each.tensor.name: {
                "type": each.tensor.type.label,
                "blocks": each.blocks,
                "requantized_blocks": each.requantized,
                "differing_blocks": len(each.differing),
                "within_envelope": each.is_within,
                "error": each.file_error,
                "own_error": each.own_error,
            }
            for each in audit.comparisons
        },
        "findings": [_finding(finding) for finding in audit.findings],
        "rules": [
            {
                "id": rule.id,
                "severity": rule.severity,
                "statement": rule.statement,
                "kept": None if audit.quick and not rule.quick else rule.id not in broken,
            }
            for rule in RULES.values()
        ],
    }
    return json.dumps(record, indent=2) + "\n"


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "message": finding.message,
        "subjects": list(finding.subjects),
        "offset": finding.offset,
        "bytes": None if finding.offset is None else finding.size,
    }


def as_sarif(audit: Audit) -> str:
    """The findings as one SARIF run; a place in the file is a region in bytes, a tensor or key a logical location."""
    indices = {rule: index for index, rule in enumerate(RULES)}
    run = {
        "tool": {
            "driver": {
                "name": TOOL,
                "version": __version__,
                "rules": [
                    {
                        "id": rule.id,
                        "shortDescription": {"text": rule.statement},
                        "defaultConfiguration": {"level": rule.severity},
                    }
                    for rule in RULES.values()
                ],
            }
        },
        "results": [_result(finding, indices[finding.rule], audit) for finding in audit.findings],
        "properties": {"coverage": audit.coverage},
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(finding: Finding, rule_index: int, audit: Audit) -> dict[str, Any]:
    # The name alone where the path is absolute: SARIF wants an URI, which a path of this machine is none of.
    path = audit.container.path
    place: dict[str, Any] = {"artifactLocation": {"uri": path.name if path.is_absolute() else path.as_posix()}}
    if finding.offset is not None:
        place["region"] = {"byteOffset": finding.offset, "byteLength": finding.size}
    subjects = [{"name": subject, "kind": finding.rule.partition(".")[0]} for subject in finding.subjects]
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.severity,
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": place, **({"logicalLocations": subjects} if subjects else {})}],
    }
