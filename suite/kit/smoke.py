"""Whether an implementation works at all, before any claim is asked of it: one small matrix is quantized."""

from collections.abc import Iterator
from shlex import quote

import numpy as np

from impl.errors import FellOver
from impl.isolated import Isolated
from impl.program import Program
from impl.protocol import Implementation, offered

ROWS, COLUMNS = 2, 256


def smoke_lines(spec: str, implementation: Implementation) -> Iterator[str]:
    """Nothing where it works; else what goes wrong, and a command to paste that shows it alone.

    Its claims are run all the same, each for its own verdict: only one of its types was tried. What runs in the
    suite's own process is not tried.
    """
    if not isinstance(implementation, Isolated | Program) or "quantizer" not in offered(implementation):
        return
    type = implementation.types[0]
    try:
        implementation.quantize(np.ones((ROWS, COLUMNS), np.float32), type, np.ones(COLUMNS, np.float32))
    except (Exception, FellOver) as error:
        yield f"{spec} does not work: {' '.join(str(error).split())}"
        yield f"  to see it alone: {_ones()} && {_quantized(spec, type)}"
    finally:
        if isinstance(implementation, Isolated):
            implementation.rest()


def _ones() -> str:
    return f"""python -c "import numpy as np; np.ones(({ROWS}, {COLUMNS}), '<f4').tofile('ones.f32')\""""


def _quantized(spec: str, type: str) -> str:
    return f"python -m impl quantize ones.f32 ones.blocks --rows {ROWS} --type {quote(type)} --impl {quote(spec)}"
