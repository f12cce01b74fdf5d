"""The built-in implementations, and how a name on the command line becomes one."""

from collections.abc import Mapping
from importlib import import_module

from impl.errors import InputError
from impl.protocol import Implementation

BUILT_IN: Mapping[str, str] = {
    "reference": "impl.reference:Reference",
    "ggml": "impl.adapters.ggml:Ggml",
}
"""Name to "module:Class"; a module is imported only when its name is asked for."""


def resolve(spec: str) -> Implementation:
    """The implementation that a built-in name or a "module:attribute" stands for.

    A class is called without arguments; any other attribute is the implementation itself. Raises
    ``InputError`` for an unknown name, a module that does not import, an attribute that it lacks, a class
    that cannot be called, and an object without ``name`` and ``version``.
    """
    module, colon, attribute = BUILT_IN.get(spec, spec).partition(":")
    if not colon:
        known = ", ".join(BUILT_IN)
        raise InputError(f"implementation {spec!r}: unknown, expected module:Class or one of {known}")
    found = _attribute(spec, module, attribute)
    implementation = _made(spec, found) if isinstance(found, type) else found
    for required in ("name", "version"):
        if not isinstance(getattr(implementation, required, None), str):
            raise InputError(f"implementation {spec!r}: has no {required}, expected a string")
    return implementation


def _attribute(spec: str, module: str, attribute: str) -> object:
    try:
        imported = import_module(module)
    except Exception as error:
        # Its code is not ours: whatever goes wrong in it is an answer about it, not a fault here.
        raise InputError(f"implementation {spec!r}: {module} does not import: {_one_line(error)}") from error
    if not hasattr(imported, attribute):
        raise InputError(f"implementation {spec!r}: {module} has no attribute {attribute!r}")
    return getattr(imported, attribute)


def _made(spec: str, cls: type) -> object:
    try:
        return cls()
    except Exception as error:
        raise InputError(f"implementation {spec!r}: {cls.__name__}() raises {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
