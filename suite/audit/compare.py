"""Every tensor of a file against the checkpoint, several at once; then the causes of what differs."""

import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from impl.catalogue import resolve
from suite.audit.blocks import explain_blocks
from suite.audit.checkpoint import Checkpoint
from suite.audit.container import Container
from suite.audit.diagnosis import explain
from suite.audit.rules import Finding
from suite.audit.values import Comparison, compare_tensor
from suite.audit.weights import Source

ORACLE = "ggml"
"""Quantizes again what the file holds: the types' own authors, and no implementation of this project's. Its library
lets other threads run meanwhile."""


def compare_tensors(
    container: Container, checkpoint: Checkpoint, uncompared: Collection[str]
) -> tuple[list[Comparison], list[Finding]]:
    """Compare every tensor of the checkpoint but those that cannot be; ``InputError`` where its weights are NaN."""
    oracle, source = resolve(ORACLE), Source(checkpoint)
    tensors = [container.tensors[name] for name in checkpoint.expected_shapes if name not in uncompared]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # The largest first, so that none is left for one thread at the end.
        tasks = {
            tensor.name: pool.submit(compare_tensor, container.path, tensor, source, oracle)
            for tensor in sorted(tensors, key=lambda each: -each.size)
        }
        comparisons = [tasks[tensor.name].result() for tensor in tensors]
    wrong = [each for each in comparisons if len(each.wrong_rows)]
    causes = [
        *explain(container.path, wrong, source, oracle),
        *explain_blocks(container.path, comparisons, source, oracle),
    ]
    return comparisons, causes
