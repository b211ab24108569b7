"""Summary of a data set: for each split a line on its examples, classes, shape, type and the range of its values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrobust.common.kinds import TEXT, kind_of
from tfrobust.data.checks import shorten
from tfrobust.data.spec import ArrayExamples, Dataset, Examples

# Examples of files, and bytes of them, that are read for the range of their values.
_FILES, _BYTES = 64, 2**24


def lines(dataset: Dataset) -> list[str]:
    """Describe a data set for people: a line for each split, and one for what the source did to the examples.

    The range is that of all arrays in memory, and of some of the files. Classes without examples are named.
    """
    splits = {split: getattr(dataset, split) for split in ("train", "validation", "test")}
    described_splits = [f"{split:12}{described(examples, dataset.class_names)}" for split, examples in splits.items()]
    return [*described_splits, *filter(None, [dataset.note])]


def described(examples: Examples, class_names: Sequence[str]) -> str:
    """Describe one split: number of examples and classes, shape, type and range of its values."""
    if not len(examples):
        return "no examples"
    kind, shape = kind_of(examples.image_shape), "x".join(map(str, examples.image_shape))
    missing = without_examples(np.bincount(examples.labels, minlength=len(class_names)), class_names)
    classes = f"{len(class_names):,} classes" + (f", {missing}" if missing else "")
    return f"{len(examples):,} {kind.examples} of {classes}; {shape} {_range(examples)}"


def without_examples(counts: np.ndarray, class_names: Sequence[str]) -> str:
    """Name the classes without examples, such as "2 of them without examples: bag, boot"; "" if there are none.

    Args:
        counts: integer [k], examples of each class.
        class_names: k names.
    """
    empty = np.flatnonzero(np.asarray(counts) == 0)
    if not len(empty):
        return ""
    names = ", ".join(shorten(class_names[number], 30) for number in empty[:3])
    more = f" and {len(empty) - 3:,} more" if len(empty) > 3 else ""
    return f"{len(empty):,} of them without examples: {names}{more}"


def _range(examples: Examples) -> str:
    """Return type and range of the values, such as "uint8 from 0 to 255"."""
    seen = ""
    if isinstance(examples, ArrayExamples):
        values = examples.images
    else:
        size = 4 * int(np.prod(examples.image_shape))
        count = max(1, min(_FILES, _BYTES // size, len(examples)))
        try:
            values = examples.arrays(count)[0]
        except tf.errors.OpError:
            return f"{examples.dtype.name}, not readable"
        seen = f" ({count:,} seen)" if count < len(examples) else ""
    ids = "ids " if kind_of(examples.image_shape) is TEXT else ""
    return f"{values.dtype.name}, {ids}{_number(values.min())} to {_number(values.max())}{seen}"


def _number(value) -> str:
    return f"{value:,}" if np.issubdtype(type(value), np.integer) else f"{value:.3g}"
