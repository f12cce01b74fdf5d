"""mlx-lm's GGUF export: float types only, its own choice of keys."""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx

from impl.errors import InputError
from impl.output import written_whole
from impl.protocol import Metadata


class MlxLm:
    """``mlx_lm.gguf`` (0.32), whose types follow the checkpoint's: bfloat16 becomes float16, also of norms.

    Norms of another type become float32, anything else stays what it is. The head size is hidden / heads, whatever
    the config says, and the tokenizer's model always ``llama``.
    """

    name = "mlx-lm"
    version = version("mlx-lm")
    recipes: Sequence[str] = ("f16",)
    deviations: Mapping[str, str] = {}

    def convert(self, checkpoint: Path, output: Path, recipe: str, metadata: Metadata = "full") -> None:
        """Export a checkpoint folder; ``metadata`` has no say in the keys."""
        from mlx_lm.gguf import convert_to_gguf

        if recipe not in self.recipes:
            raise InputError(f"recipe {recipe!r}: mlx-lm exports only {', '.join(self.recipes)}")
        weights = {
            name: tensor
            for path in sorted(checkpoint.glob("*.safetensors"))
            for name, tensor in mx.load(str(path)).items()
        }
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        with written_whole(output) as unfinished, tempfile.TemporaryDirectory(dir=output.parent) as folder:
            # MLX puts .gguf after a name that does not end so.
            exported = Path(folder) / "exported.gguf"
            with redirect_stdout(sys.stderr):
                convert_to_gguf(checkpoint, weights, config, str(exported))
            exported.replace(unfinished)
