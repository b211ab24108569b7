"""Stratified splits by a seed that is separate from the run's seed, so that runs share a test set."""

import numbers
import zlib
from collections.abc import Sequence

import numpy as np

from tfrobust.common.settings import require_least
from tfrobust.errors import InputError


def resolve_size(size: int | float, total: int, name: str = "validation_size") -> int:
    """Convert a count or a fraction to a number of examples.

    Args:
        size: int >= 0, or float in [0, 1) of `total`, rounded; 1.0 as a `test_size` takes all examples.
        total: number of available examples.
        name: the argument's name, for the message.

    Returns:
        int in 0..total-1, or total for all examples.

    Raises:
        ValueError: negative, a float of 1 or more, or no example would remain.
    """
    if name == "test_size" and isinstance(size, float) and size == 1:
        return total
    is_count = isinstance(size, numbers.Integral) and not isinstance(size, bool)
    if not is_count and not (isinstance(size, float) and 0 <= size < 1):
        raise InputError(f"{name} is {size!r}; give a whole number, or a fraction in [0, 1).")
    require_least(size, name, 0)
    count = int(size) if is_count else round(size * total)
    if count >= total > 0 or count > total:
        raise InputError(f"{name} {size} leaves nothing of {total} examples; give less than {total}.")
    return count


def permutation(count: int, seed: int, purpose: str) -> np.ndarray:
    """Return a permutation of 0..count-1, int64, that is the same in all versions of NumPy.

    It consists of the ranks of raw PCG64 words: NumPy guarantees the bit stream, but not the numbers that its Generator
    derives from it.

    Args:
        count: size of the permutation.
        seed: >= 0.
        purpose: streams of different purposes are independent.

    Raises:
        ValueError: a negative seed.
    """
    require_least(seed, "split_seed", 0)
    words = np.random.PCG64([seed, zlib.crc32(purpose.encode())]).random_raw(count)
    return np.argsort(words, kind="stable")


def stratified(labels: np.ndarray, size: int, seed: int, purpose: str) -> tuple[np.ndarray, np.ndarray]:
    """Split off `size` examples, with each class in proportion up to one example.

    Class c with n_c of n examples contributes floor(n_c size / n), and the classes with the largest remainders one
    more.

    Args:
        labels: integer [n].
        size: number of examples to split off, 0..n.
        seed: >= 0.
        purpose: "test", "validation": streams of different purposes are independent.

    Returns:
        (rest, taken): int64 positions, each ascending.
    """
    labels = np.asarray(labels)
    ids, counts = np.unique(labels, return_counts=True)
    quota, remainder = np.divmod(counts * size, max(len(labels), 1))
    quota[np.argsort(-remainder, kind="stable")[: size - quota.sum()]] += 1
    order = permutation(len(labels), seed, purpose)
    members = [order[labels[order] == label][:take] for label, take in zip(ids, quota, strict=True)]
    taken = np.sort(np.concatenate(members)) if members else np.zeros(0, np.int64)
    return np.setdiff1d(np.arange(len(labels)), taken), taken


def grouped(labels: np.ndarray, groups: Sequence, size: int, seed: int, purpose: str) -> tuple[np.ndarray, np.ndarray]:
    """Split off at most `size` examples: whole groups, such as the clips of one recording, with classes in proportion.

    Groups are taken in random order. A group is left out if a class would have more than its share, rounded up, or if
    more than `size` examples would be taken.

    Args:
        labels: integer [n].
        groups: [n], the group of each example, such as a name.
        size: largest number of examples to split off, 0..n.
        seed: >= 0.
        purpose: as for `stratified`.

    Returns:
        (rest, taken): int64 positions, each ascending.

    Raises:
        ValueError: every group is too large.
    """
    ids, labels = np.unique(np.asarray(labels), return_inverse=True)
    names, groups = np.unique(np.asarray(groups), return_inverse=True)
    counts = np.zeros((len(names), len(ids)), np.int64)
    np.add.at(counts, (groups, labels), 1)
    room = -(-counts.sum(axis=0) * size // max(len(labels), 1))
    chosen = np.zeros(len(names), bool)
    for group in permutation(len(names), seed, purpose):
        if np.all(counts[group] <= room) and counts[group].sum() <= size:
            chosen[group] = True
            room, size = room - counts[group], size - int(counts[group].sum())
    if size and not chosen.any():
        raise InputError(f"{purpose}_size {size} is smaller than each of the {len(names)} groups that stay together.")
    return np.flatnonzero(~chosen[groups]), np.flatnonzero(chosen[groups])


def stratified_folds(labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Assign every example to one fold; sizes of folds, and of classes within folds, differ by at most one.

    Args:
        labels: integer [n].
        folds: number of folds, 2..n.
        seed: >= 0.

    Returns:
        int64 [n] in 0..folds-1.

    Raises:
        ValueError: a number of folds out of range.
    """
    labels = np.asarray(labels)
    if not 2 <= folds <= len(labels):
        raise InputError(f"folds is {folds}; it must be in 2..{len(labels)}.")
    order = permutation(len(labels), seed, "folds")
    dealt = order[np.argsort(labels[order], kind="stable")]  # class by class, shuffled within each
    fold = np.empty(len(labels), np.int64)
    fold[dealt] = np.arange(len(labels)) % folds
    return fold
