"""Chunks of long searches: each is stored on disk when finished, so that a run can resume or be shared."""

from __future__ import annotations

import dataclasses
import io
import logging
import pathlib
from typing import NamedTuple

import numpy as np

from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.engine import Begun
from tfrobust.common import configured, files, fingerprint
from tfrobust.errors import InputError
from tfrobust.security import archives

_PART = ".part.npz"
_log = logging.getLogger("tfrobust")


class SearchResult(NamedTuple):
    """Result of a search on some images.

    Attributes:
        success: bool [m].
        distance: float32 [m].
        complete: True if the search was finished.
        member: int [m], the member of an ensemble that succeeded (`structs.AttackResult`); None for a single attack.
        passes: float64 [m, 2], forward and backward passes of each image; of an ensemble [m, members, 2]; NaN or None
            where unknown, as in chunks that an earlier version has stored.
    """

    success: np.ndarray
    distance: np.ndarray
    complete: bool = True
    member: np.ndarray | None = None
    passes: np.ndarray | None = None


class Shard(NamedTuple):
    """One of `count` processes that share the chunks of a search; the first is number 1."""

    number: int
    count: int

    def select(self, chunks: list) -> list:
        """Return every `count`-th chunk."""
        return chunks[self.number - 1 :: self.count]


@dataclasses.dataclass(frozen=True)
class Store:
    """Storage of the finished chunks of one model, data set and seed; several processes may share its directory.

    Attributes:
        directory: the folder, created when needed.
        common: JSON that distinguishes this setting from every other.
    """

    directory: pathlib.Path
    common: dict

    def path(self, attack: Attack, positions: np.ndarray) -> pathlib.Path:
        """Return the path of an attack's chunk of these positions."""
        return self.path_of(attack.name, {"attack": configured.identity(attack)}, positions)

    def path_of(self, name: str, made_by: dict, positions: np.ndarray) -> pathlib.Path:
        """Return the path of the chunk of these positions that JSON `made_by` describes; its file name has `name`."""
        parts = {**self.common, **made_by, "positions": positions.tolist()}
        span = f"{int(positions[0])}-{int(positions[-1])}"
        return self.directory / f"{name}-{span}-{fingerprint.json_sha256(parts)[:32]}.npz"

    def read(self, attack: Attack, positions: np.ndarray) -> SearchResult | None:
        """Return a finished chunk; None if there is none, or (with a warning) if its file is damaged."""
        shapes = dict.fromkeys(("success", "distance"), positions.shape)
        arrays = self.arrays(self.path(attack, positions), shapes, {"passes": (len(positions), 2)})
        return None if arrays is None else SearchResult(**arrays)

    def write(self, attack: Attack, positions: np.ndarray, result: SearchResult) -> None:
        """Store a chunk, unless its search was cut short."""
        if result.complete:
            path = self.path(attack, positions)
            self.keep(path, success=result.success, distance=result.distance, passes=result.passes)
            path.with_suffix(_PART).unlink(missing_ok=True)

    def read_part(self, attack: Attack, positions: np.ndarray) -> Begun | None:
        """Return what an interrupted search of a chunk has stored; None as in `read`."""
        path = self.path(attack, positions).with_suffix(_PART)
        unknown = {"passes": np.full([len(positions), 2], np.nan)}
        shapes = dict.fromkeys(("success", "distance", "rounds"), positions.shape)
        arrays = self.arrays(path, shapes, {"passes": (len(positions), 2)})
        return None if arrays is None else Begun(**(unknown | arrays))

    def write_part(self, attack: Attack, positions: np.ndarray, begun: Begun) -> None:
        """Store what the search of a chunk has found so far, until the chunk itself is stored."""
        self.keep(self.path(attack, positions).with_suffix(_PART), **begun._asdict())

    def arrays(
        self, path: pathlib.Path, shapes: dict[str, tuple[int, ...]], later: dict[str, tuple[int, ...]] | None = None
    ) -> dict[str, np.ndarray] | None:
        """Return the arrays of a stored chunk by name; None if there is none, or (with a warning) if it is damaged.

        Args:
            path: of the chunk.
            shapes: of its arrays, by name.
            later: those of arrays that chunks of earlier versions lack.
        """
        if not path.exists():
            return None
        try:
            archives.check_zip(path, test_contents=False)
            with np.load(path, allow_pickle=False) as stored:
                shapes = shapes | {name: shape for name, shape in (later or {}).items() if name in stored}
                loaded = {name: stored[name] for name in shapes}
            if {name: array.shape for name, array in loaded.items()} != shapes:
                raise InputError(f"{[array.shape for array in loaded.values()]}, not {list(shapes.values())}")
            return loaded
        except archives.ARRAY_ERRORS as error:
            _log.warning("The stored chunk %s cannot be read (%s) and is computed again.", path, error)
            return None

    def keep(self, path: pathlib.Path, **arrays: np.ndarray) -> None:
        """Store the arrays of a chunk."""
        self.directory.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        np.savez(content, **arrays)
        files.write_atomically(path, content.getvalue())


def split(positions: np.ndarray, size: int) -> list[np.ndarray]:
    """Split positions into consecutive chunks of `size`; the last may be shorter."""
    return [positions[start : start + size] for start in range(0, len(positions), size)]
