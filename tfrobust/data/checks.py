"""Checks of arrays that readers load; messages name the file, the fault and the correct form."""

import collections
import math
from collections.abc import Sequence

import numpy as np

from tfrobust.common import arrays
from tfrobust.common.kinds import kind_of
from tfrobust.errors import InputError
from tfrobust.security import memory, picture_files

MOST_CLASSES = 2**20
MOST_GENERATED = 2**30  # bytes of all examples that a source computes in memory
# Ids 0 and 1 of every vocabulary.
PADDING_WORD, UNKNOWN_WORD = "[PAD]", "[UNK]"


class DataNotFoundError(FileNotFoundError):
    """Data missing on this machine; the message says how to get them and where to put them."""


def check_generated(count: int, shape: Sequence[int], where: str) -> None:
    """Raise InputError before a source computes `count` float32 examples of a shape that are too large together."""
    size = 4 * count * math.prod(shape)
    if size > MOST_GENERATED:
        raise InputError(
            f"{where}: {count} examples of {' x '.join(map(str, shape))} take {size} bytes, more than {MOST_GENERATED}."
        )


def check_memory(count: int, shape: Sequence[int], bytes_each: int, where: str, buffered: int = 0) -> None:
    """Raise InputError before memory is allocated for `count` examples of a shape, if less is free.

    Args:
        count: number of examples.
        shape: of one example.
        bytes_each: bytes of one number.
        where: name of the examples in messages.
        buffered: number of examples in copies that exist for a while.
    """
    size, free = bytes_each * (count + buffered) * math.prod(shape), memory.available()
    if free is not None and size > free:
        raise InputError(
            f"{where}: {count} examples of {' x '.join(map(str, shape))} take {size} bytes of memory, and {free} are "
            "free: set a smaller size, or take fewer examples."
        )


def check_pixels_of_example(sides: Sequence[int], fit: int | str = "stretch", where: str = "image_shape") -> None:
    """Raise InputError if an image, or all frames of a clip, would be read as more than 2^26 pixels.

    Args:
        sides: (height, width), or (frames, height, width).
        fit: see `data.spec.decode_image`; a number counts as the side of a square.
        where: name of the sides in messages.
    """
    least = fit if isinstance(fit, int) else 1
    if max(math.prod(sides), math.prod(sides[:-2]) * least**2) > picture_files.LARGEST:
        description = " x ".join(map(str, sides)) + (f" of a shorter side of {fit}" if isinstance(fit, int) else "")
        raise InputError(f"{where} is {description}; an example has at most {picture_files.LARGEST} pixels.")


def check_images(images, where: str = "images") -> np.ndarray:
    """Check images or clips, and convert them to the library's format.

    Args:
        images: array [n, h, w, c], or for clips [n, t, h, w, c]; uint8 in 0..255, or floating point in [0, 1].
        where: name of the images in messages, for instance a file name.

    Returns:
        uint8 or float32 of the same shape, little-endian and contiguous.

    Raises:
        ValueError: another rank or dtype, an empty axis, channels first, NaN, infinity, or a pixel outside [0, 1].
    """
    images = np.asarray(images)
    shape, kind = list(images.shape), kind_of(images.shape[1:])
    if images.ndim not in (4, 5):
        hint = "; add a channel axis" if images.ndim == 3 else ""
        raise InputError(
            f"{where}: images have shape {shape}, not [n, height, width, channels], or for clips [n, frames, height, "
            f"width, channels]{hint}."
        )
    if 0 in shape[1:]:
        raise InputError(f"{where}: {kind.examples} of shape {shape[1:]} have no pixels.")
    if remedy := arrays.channels_first(shape):
        raise InputError(f"{where}: {kind.examples} have shape {shape}{remedy}.")
    if images.dtype == np.uint8:
        return np.ascontiguousarray(images)
    return arrays.check_pixels(images, where)


def check_tokens(tokens, where: str = "tokens", vocabulary_size: int | None = None) -> np.ndarray:
    """Check token ids and convert them to the library's format.

    Id 0 is padding and occurs only at the end, 1 is unknown, words follow.

    Args:
        tokens: integer array [n, length].
        where: name of the tokens in messages.
        vocabulary_size: ids are smaller than this; None does not check an upper bound.

    Returns:
        int32 [n, length], contiguous.

    Raises:
        ValueError: another rank or dtype, rows of length 0, an id out of range, padding before a token, or a sentence
            without any token.
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 2 or not tokens.shape[1]:
        raise InputError(f"{where}: tokens have shape {list(tokens.shape)}, not [n, length] with length >= 1.")
    if not np.issubdtype(tokens.dtype, np.integer):
        raise InputError(f"{where}: tokens are {tokens.dtype}, not integer ids.")
    upper = np.iinfo(np.int32).max if vocabulary_size is None else vocabulary_size - 1
    bad = (tokens < 0) | (tokens > upper)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        fault = "is negative" if tokens[row, column] < 0 else f"is not in the vocabulary of {upper + 1}"
        raise InputError(f"{where}: token {tokens[row, column]} at position {column} of sentence {row} {fault}.")
    if not np.all(tokens[:, 0]):
        raise InputError(
            f"{where}: sentence {int(np.argmin(tokens[:, 0]))} starts with padding (0); it must have a token."
        )
    gaps = (tokens[:, :-1] == 0) & (tokens[:, 1:] != 0)
    if gaps.any():
        row, column = np.argwhere(gaps)[0]
        raise InputError(f"{where}: padding (0) at position {column} of sentence {row} precedes a token.")
    return np.ascontiguousarray(tokens, np.int32)


def check_strengths(strengths, tokens: np.ndarray, where: str = "strengths") -> np.ndarray:
    """Check the sentiment strength |sentiment - 0.5| of every token.

    Args:
        strengths: float [n, length] in [0, 0.5], NaN for tokens without a score and for padding.
        tokens: int32 [n, length], checked.
        where: name of the strengths in messages.

    Returns:
        float32 [n, length].

    Raises:
        ValueError: another shape, a number outside [0, 0.5], or a score for padding.
    """
    strengths = np.array(strengths, np.float32)
    if strengths.shape != tokens.shape:
        raise InputError(f"{where}: strengths have shape {list(strengths.shape)} for tokens {list(tokens.shape)}.")
    bad = (strengths < 0) | (strengths > 0.5) | (~np.isnan(strengths) & (tokens == 0))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        fault = "is outside [0, 0.5]" if tokens[row, column] else "belongs to padding, which has none (NaN)"
        raise InputError(
            f"{where}: strength {strengths[row, column]:g} at position {column} of sentence {row} {fault}."
        )
    return strengths


def check_vocabulary(vocabulary, where: str = "vocabulary") -> tuple[str, ...]:
    """Check a vocabulary: `PADDING_WORD`, `UNKNOWN_WORD`, then at least one other word.

    Raises:
        ValueError: other first words, fewer than three words, a word that is empty or has the end of a line in it,
            or a duplicate.
    """
    words = tuple(str(word) for word in vocabulary)
    if words[:2] != (PADDING_WORD, UNKNOWN_WORD) or len(words) < 3:
        raise InputError(
            f"{where}: a vocabulary starts with {PADDING_WORD}, {UNKNOWN_WORD} and at least one word; this one "
            f"has {len(words)} entries and starts with {shorten(list(words[:3]), 60)}."
        )
    broken = next((word for word in words if not word or "\n" in word or "\r" in word), None)
    if broken is not None:
        raise InputError(f"{where}: {broken!r} must be a word on one line.")
    if len(set(words)) < len(words):
        raise InputError(f"{where}: the word {shorten(_twice(words))!r} occurs twice.")
    return words


def check_class_names(class_names, where: str) -> tuple[str, ...]:
    """Check that there are at least two different class names, and return them as a tuple.

    Raises:
        ValueError: fewer than two names, more than `MOST_CLASSES`, a duplicate, or a name that is empty or not UTF-8.
    """
    if len(class_names) > MOST_CLASSES:
        raise InputError(f"{where}: {len(class_names)} classes, more than {MOST_CLASSES}.")
    names = tuple(str(name) for name in class_names)
    if len(names) < 2:
        raise InputError(f"{where}: a classifier needs at least 2 classes, found {len(names)}.")
    if len(set(names)) < len(names):
        raise InputError(f"{where}: the class name {shorten(_twice(names))!r} occurs twice.")
    if not all(map(str.strip, names)):
        raise InputError(f"{where}: a class name is empty: leave out examples without a label.")
    for name in names:
        check_utf8(name, f"{where}: the class name")
    return names


def _twice(names: Sequence[str]) -> str:
    return next(name for name, count in collections.Counter(names).items() if count > 1)


def check_utf8(name: str, title: str) -> None:
    """Raise InputError if a name, such as a file name, is not valid UTF-8; `title` describes it in the message."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{title} {shorten(ascii(name))} is not UTF-8; rename it.") from None


def shorten(path, limit: int = 90) -> str:
    """Shorten a path to at most `limit` characters for a message, by omitting its middle."""
    text = str(path)
    half = (limit - 3) // 2
    return text if len(text) <= limit else f"{text[:half]}...{text[-half:]}"
