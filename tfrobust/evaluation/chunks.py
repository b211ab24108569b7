"""Long searches in chunks: each is kept on disk once it is whole, so that a run goes on, or is shared out."""

from __future__ import annotations

import dataclasses
import io
import logging
import pathlib
from typing import NamedTuple

import numpy as np

from tfrobust.attacks.base import Attack
from tfrobust.errors import InputError
from tfrobust.ops import archives, configured, files, fingerprint

_log = logging.getLogger("tfrobust")


class Found(NamedTuple):
    """What a search left of some images.

    success: bool [m]. distance: float32 [m]. complete: whether it was finished. member: int [m], which member of
    an ensemble succeeded (`structs.AttackResult`); None for a single attack.
    """

    success: np.ndarray
    distance: np.ndarray
    complete: bool = True
    member: np.ndarray | None = None


class Shard(NamedTuple):
    """One of `count` processes that share the chunks of a search among them; the first is number 1."""

    number: int
    count: int

    def own(self, chunks: list) -> list:
        """Every `count`-th chunk."""
        return chunks[self.number - 1 :: self.count]


@dataclasses.dataclass(frozen=True)
class Store:
    """The finished chunks of one model, data set and seed; any number of processes may use one directory.

    Attributes:
        directory: where; made when it is needed.
        common: JSON that tells this setting from every other.
    """

    directory: pathlib.Path
    common: dict

    def path(self, attack: Attack, positions: np.ndarray) -> pathlib.Path:
        """Where the chunk of these positions is kept."""
        parts = {**self.common, "attack": configured.serialize(attack), "positions": positions.tolist()}
        span = f"{int(positions[0])}-{int(positions[-1])}"
        return self.directory / f"{attack.name}-{span}-{fingerprint.json_sha256(parts)[:32]}.npz"

    def read(self, attack: Attack, positions: np.ndarray) -> Found | None:
        """A finished chunk; None where there is none, or (with a warning) where its file is damaged."""
        path = self.path(attack, positions)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                found = Found(arrays["success"], arrays["distance"])
            if found.success.shape != positions.shape or found.distance.shape != positions.shape:
                raise InputError(f"{found.success.shape} results for {len(positions)} images")
            return found
        except FileNotFoundError:
            return None
        except archives.ARRAY_ERRORS as error:
            _log.warning("The kept chunk %s cannot be read (%s); it is made again.", path, error)
            return None

    def write(self, attack: Attack, positions: np.ndarray, found: Found) -> None:
        """Keeps a chunk, unless its search was cut short."""
        if not found.complete:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        np.savez(content, success=found.success, distance=found.distance)
        files.write_atomically(self.path(attack, positions), content.getvalue())


def split(positions: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive chunks of `size` positions; the last may be shorter."""
    return [positions[start : start + size] for start in range(0, len(positions), size)]
