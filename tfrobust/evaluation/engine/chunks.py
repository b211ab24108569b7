"""Chunks of long searches: each is stored on disk when finished, so that a run can resume or be shared."""

from __future__ import annotations

import dataclasses
import io
import logging
import pathlib
from typing import NamedTuple

import numpy as np

from tfrobust.attacks.shared.base import Attack
from tfrobust.common import configured, files, fingerprint
from tfrobust.errors import InputError
from tfrobust.security import archives

_log = logging.getLogger("tfrobust")


class Found(NamedTuple):
    """Result of a search on some images.

    Attributes:
        success: bool [m].
        distance: float32 [m].
        complete: True if the search was finished.
        member: int [m], the member of an ensemble that succeeded (`structs.AttackResult`); None for a single attack.
    """

    success: np.ndarray
    distance: np.ndarray
    complete: bool = True
    member: np.ndarray | None = None


class Shard(NamedTuple):
    """One of `count` processes that share the chunks of a search; the first is number 1."""

    number: int
    count: int

    def own(self, chunks: list) -> list:
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
        """Return the path of the chunk of these positions."""
        parts = {**self.common, "attack": configured.identity(attack), "positions": positions.tolist()}
        span = f"{int(positions[0])}-{int(positions[-1])}"
        return self.directory / f"{attack.name}-{span}-{fingerprint.json_sha256(parts)[:32]}.npz"

    def read(self, attack: Attack, positions: np.ndarray) -> Found | None:
        """Return a finished chunk; None if there is none, or (with a warning) if its file is damaged."""
        path = self.path(attack, positions)
        if not path.exists():
            return None
        try:
            archives.check_zip(path, whole=False)
            with np.load(path, allow_pickle=False) as arrays:
                found = Found(arrays["success"], arrays["distance"])
            if found.success.shape != positions.shape or found.distance.shape != positions.shape:
                raise InputError(f"{found.success.shape} results for {len(positions)} images")
            return found
        except archives.ARRAY_ERRORS as error:
            _log.warning("The stored chunk %s cannot be read (%s) and is computed again.", path, error)
            return None

    def write(self, attack: Attack, positions: np.ndarray, found: Found) -> None:
        """Store a chunk, unless its search was cut short."""
        if not found.complete:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        np.savez(content, success=found.success, distance=found.distance)
        files.write_atomically(self.path(attack, positions), content.getvalue())


def split(positions: np.ndarray, size: int) -> list[np.ndarray]:
    """Split positions into consecutive chunks of `size`; the last may be shorter."""
    return [positions[start : start + size] for start in range(0, len(positions), size)]
