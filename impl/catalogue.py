"""The built-in implementations, and how a name on the command line becomes one."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from impl.errors import InputError
from impl.protocol import Implementation


@dataclass(frozen=True)
class BuiltIn:
    """Where an implementation is, and the package that its program comes in."""

    target: str
    """"module:Class"; the module is imported only when the name is asked for."""
    package: str = ""
    """As pip calls it; empty for what this package brings itself."""
    alone: bool = False
    """Whether it is installed without its dependencies, since one of them is a copy of ``gguf``."""

    @property
    def wanted(self) -> str:
        """What ``pip install`` has to be given."""
        return f"--no-deps {self.package}" if self.alone else self.package

    @property
    def is_installed(self) -> bool:
        """Whether the package is; that it works is known only once the module is imported."""
        try:
            return not self.package or bool(distribution(self.package))
        except PackageNotFoundError:
            return False


BUILT_IN: Mapping[str, BuiltIn] = {
    "reference": BuiltIn("impl.reference:Reference"),
    "ggml": BuiltIn("impl.adapters.ggml:Ggml", "libggml-python"),
    "gguf-py": BuiltIn("impl.adapters.gguf_py:GgufPy", "gguf"),
    "gguf-editor": BuiltIn("impl.adapters.gguf_editor:GgufEditor", "gguf-editor", alone=True),
    "ik-llama": BuiltIn("impl.adapters.ik_llama:IkLlama", "ik-llama-cpp-python"),
    "libgguf": BuiltIn("impl.adapters.libgguf:Libgguf", "libgguf", alone=True),
    "libgguf-numpy": BuiltIn("impl.adapters.libgguf:LibggufNumpy", "libgguf", alone=True),
    "libgguf-torch": BuiltIn("impl.adapters.libgguf:LibggufTorch", "libgguf", alone=True),
    "llama-cpp": BuiltIn("impl.adapters.llama_cpp:LlamaCpp", "llama-cpp-python"),
    "candle": BuiltIn("impl.adapters.candle:Candle", "candle-nn"),
    "transformers": BuiltIn("impl.adapters.transformers:Transformers", "transformers"),
    "torch-dynamic": BuiltIn("impl.adapters.torch_dynamic:TorchDynamic", "torch"),
    "torchao": BuiltIn("impl.adapters.torchao:Torchao", "torchao"),
    "mlx": BuiltIn("impl.adapters.mlx:Mlx", "mlx"),
    "mlx-lm": BuiltIn("impl.adapters.mlx_lm:MlxLm", "mlx-lm"),
}


def resolve(spec: str) -> Implementation:
    """The implementation that a built-in name, a "module:attribute" or the path of a TOML manifest stands for.

    A class is called without arguments; any other attribute is the implementation itself. Raises
    ``InputError`` for an unknown name, for a built-in whose package is not installed (with the line that installs
    it), a module that does not import, an attribute that it lacks, a class that cannot be called, and an object
    without ``name`` and ``version``.
    """
    if spec.endswith(".toml"):
        from impl.manifest import read_manifest
        from impl.program import Program

        return Program(read_manifest(Path(spec)))
    built_in = BUILT_IN.get(spec, BuiltIn(spec))
    if not built_in.is_installed:
        raise InputError(f"implementation {spec!r}: not installed, to have it: pip install {built_in.wanted}")
    module, colon, attribute = built_in.target.partition(":")
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
