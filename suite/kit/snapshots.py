"""Recorded logits, compared as numbers.

A snapshot is one safetensors file under ``snapshots/logits/``: step 0's row, the top 8 tokens and values
of every step, the step maxima against the reference run, and metadata that says what it was made of.

Two runs of the same float32 arithmetic differ by no more than a few times the reference's own distance
from float64. Where activations are quantized, a change of summation order moves activations across
rounding boundaries, and two correct runs may differ by as much as either differs from the reference.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save
from syrupy.extensions.single_file import SingleFileSnapshotExtension
from syrupy.location import PyTestLocation
from syrupy.types import PropertyFilter, PropertyMatcher, SerializableData, SerializedData, SnapshotIndex

from suite.kit.bounds import NOISE_FACTOR
from suite.kit.results import Undecided

TOP = 8
METADATA = ("checkpoint", "implementation", "backend", "arithmetic", "recipe", "noise_floor", "versions")
FOLDER = Path(__file__).parents[2] / "snapshots" / "logits"


@dataclass(frozen=True, eq=False)
class RecordedLogits:
    """What is kept of one teacher-forced pass."""

    step0: NDArray[np.float32]
    """float32[vocabulary]: the row that predicts the first new token."""
    top_tokens: NDArray[np.int32]
    """int32[steps, 8]: the tokens of the largest logits of every step, largest first."""
    top_values: NDArray[np.float32]
    """float32[steps, 8]: their logits."""
    step_maxima: NDArray[np.float32]
    """float32[steps]: max|diff| to the reference run."""
    metadata: Mapping[str, str]
    """Checkpoint digest, implementation, backend, arithmetic, recipe, noise floor and versions."""

    @property
    def bound(self) -> float:
        """How far another run of the same arithmetic may be away."""
        float32 = NOISE_FACTOR * float(self.metadata["noise_floor"])
        if self.metadata["arithmetic"] == "quantized-activations":
            return max(float32, float(self.step_maxima.max()))
        return float32

    def to_bytes(self) -> bytes:
        """The safetensors file."""
        arrays = {name: getattr(self, name) for name in ("step0", "top_tokens", "top_values", "step_maxima")}
        return save(arrays, metadata=dict(self.metadata))


def summarize(logits: NDArray[np.float32], step_maxima: NDArray, metadata: Mapping[str, str]) -> RecordedLogits:
    """What a snapshot keeps of float32[steps, vocabulary]."""
    top = np.array([_largest(row) for row in logits], dtype=np.int32)
    return RecordedLogits(
        step0=np.array(logits[0]),
        top_tokens=top,
        top_values=np.take_along_axis(np.asarray(logits), top, axis=1),
        step_maxima=step_maxima.astype(np.float32),
        metadata=metadata,
    )


def _largest(row: NDArray[np.float32]) -> NDArray[np.intp]:
    """The tokens of the ``TOP`` largest of float32[vocabulary], largest first, the lower token first among equals."""
    # Sorting whole rows takes longer than the pass that made them.
    smallest = np.partition(-row, TOP - 1)[TOP - 1]
    candidates = np.flatnonzero(~(-row > smallest))
    return candidates[np.argsort(-row[candidates], kind="stable")][:TOP]


def from_bytes(data: bytes) -> RecordedLogits:
    """Read a snapshot file's content."""
    header_size = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + header_size])["__metadata__"]
    return RecordedLogits(**load(data), metadata=metadata)


def defects(recorded: RecordedLogits) -> Iterator[str]:
    """What is wrong with a snapshot in itself, wherever it was recorded, one line each; nothing where it is whole."""
    missing = [key for key in METADATA if not recorded.metadata.get(key)]
    if missing:
        yield f"metadata lacks {', '.join(missing)}"
    steps = len(recorded.step_maxima)
    for name, dtype, shape in (
        ("step0", np.float32, recorded.step0.shape[:1]),
        ("top_tokens", np.int32, (steps, TOP)),
        ("top_values", np.float32, (steps, TOP)),
        ("step_maxima", np.float32, (steps,)),
    ):
        array = getattr(recorded, name)
        if array.dtype != dtype or array.shape != shape or not array.size:
            yield f"{name} is {array.dtype}{list(array.shape)}, expected {np.dtype(dtype)}{list(shape)}"
            return
        if not np.isfinite(array).all():
            yield f"{name} has a number that is not finite"
    if not np.array_equal(recorded.step0[recorded.top_tokens[0]], recorded.top_values[0]):
        yield "step 0's row has other values for its top tokens than top_values"
    if (np.diff(recorded.top_values, axis=1) > 0).any():
        yield "top_values are not in descending order"


def differences(recorded: RecordedLogits, measured: RecordedLogits) -> Iterator[str]:
    """What keeps ``measured`` from matching ``recorded``, one line each; nothing where it matches."""
    for key in ("checkpoint", "arithmetic", "recipe"):
        if recorded.metadata[key] != measured.metadata[key]:
            yield f"{key} is {measured.metadata[key]}, recorded was {recorded.metadata[key]}"
            return
    bound = recorded.bound
    yield from _beyond(bound, "step 0, token {1}", recorded.step0[None], measured.step0[None])
    # The k-th largest of a row moves by no more than the row's largest difference.
    yield from _beyond(bound, "step {0}, rank {1}", recorded.top_values, measured.top_values)
    yield from _beyond(
        bound, "step {1}, distance from the reference", recorded.step_maxima[None], measured.step_maxima[None]
    )
    yield from _other_tokens(recorded, measured, bound)


def _beyond(bound: float, place: str, recorded: NDArray, measured: NDArray) -> Iterator[str]:
    if recorded.shape != measured.shape:
        yield f"shape {list(measured.shape)}, recorded was {list(recorded.shape)}"
        return
    distance = np.abs(recorded.astype(np.float64) - measured)
    distance[~np.isfinite(distance)] = np.inf
    if not (distance <= bound).all():
        worst = np.unravel_index(distance.argmax(), distance.shape)
        where = place.format(*worst)
        yield (
            f"{where}: {measured[worst]!r}, recorded was {recorded[worst]!r}: max|diff| {distance[worst]:.3e} is "
            f"above the bound {bound:.3e}; the smallest bound that would pass is {distance[worst]:.3e}"
        )


def _other_tokens(recorded: RecordedLogits, measured: RecordedLogits, bound: float) -> Iterator[str]:
    clear = recorded.top_values[:, 0] - recorded.top_values[:, 1] > 2 * bound
    other = np.flatnonzero(clear & (recorded.top_tokens[:, 0] != measured.top_tokens[:, 0]))
    if other.size:
        step = int(other[0])
        yield (
            f"step {step}: picks token {measured.top_tokens[step, 0]}, recorded was {recorded.top_tokens[step, 0]}, "
            f"{recorded.top_values[step, 0] - recorded.top_values[step, 1]:.3e} ahead of the next"
        )


def require_recorded(name: str, *, updating: bool) -> None:
    """Ends a claim as *undecided* where nothing is recorded to compare with, and nothing is being recorded."""
    if not updating and not (FOLDER / f"{name}.safetensors").is_file():
        raise Undecided(f"no snapshot {name} is recorded; --snapshot-update records one")


class LogitsSnapshots(SingleFileSnapshotExtension):
    """syrupy's storage of ``RecordedLogits``: one file each, matched within its own bound."""

    file_extension = "safetensors"

    def serialize(
        self,
        data: SerializableData,
        *,
        exclude: PropertyFilter | None = None,
        include: PropertyFilter | None = None,
        matcher: PropertyMatcher | None = None,
    ) -> SerializedData:
        """The file's content."""
        return data.to_bytes()

    def matches(self, *, serialized_data: SerializedData, snapshot_data: SerializedData) -> bool:
        """Whether every number is within the recorded bound."""
        return not list(differences(from_bytes(snapshot_data), from_bytes(serialized_data)))

    def diff_lines(self, serialized_data: SerializedData, snapshot_data: SerializedData) -> Iterator[str]:
        """The failure message: the worst step and token of each kind."""
        return differences(from_bytes(snapshot_data), from_bytes(serialized_data))

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        """All snapshots lie in one folder, whatever test made them."""
        return str(FOLDER)

    @classmethod
    def get_file_basename(cls, *, test_location: PyTestLocation, index: SnapshotIndex) -> str:
        """A snapshot is named for what it holds: checkpoint, implementation, backend, recipe."""
        return str(index)

    @classmethod
    def matches_test_location(cls, *, test_location: PyTestLocation, snapshot_location: str) -> bool:
        """File names say nothing of tests, so every location is right."""
        return True
