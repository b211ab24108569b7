"""The output of a model that holds its logits: its name, and the number of its classes."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfrobust.common.kinds import TEXT, kind_of
from tfrobust.data.checks import MOST_CLASSES
from tfrobust.errors import InputError
from tfrobust.ops.probabilities import OF_ONE_OUTPUT

_PROBE_SIZE = 32
BY_FLAG = "name the logits with --logits_output"


class NoSuchOutputError(InputError):
    """Error for a missing output, or for an ambiguous choice of the logits."""


def output_name(names: list[str], chosen: str | None, where: str, remedy: str = BY_FLAG) -> str:
    """Return the name of the output that holds the logits, or raise InputError.

    Args:
        names: of all outputs.
        chosen: the name that the user gave, or None.
        where: the model, for messages.
        remedy: how to name one of several outputs.
    """
    if chosen is not None and chosen not in names:
        raise NoSuchOutputError(f"{where} has no output {chosen!r}, only {sorted(names)} (--logits_output).")
    if chosen is not None:
        return chosen
    if "logits" in names:
        return "logits"
    if len(names) == 1:
        return names[0]
    raise NoSuchOutputError(f"{where} has the outputs {sorted(names)}: {remedy}.")


def probe(logits: Callable, image_shape, name: str) -> int:
    """Return the number of classes, by predicting one gray image or clip, or a sentence of one unknown word."""
    example = tf.fill([1, *[size or _PROBE_SIZE for size in image_shape]], 1 if kind_of(image_shape) is TEXT else 0.5)
    try:
        output = tf.convert_to_tensor(logits(example))
    except NoSuchOutputError:
        raise
    except (tf.errors.InvalidArgumentError, ValueError, TypeError) as error:
        raise InputError(f"{name} fails on one example of shape {tuple(image_shape)}: {first_line(error)}") from error
    return count_classes(output, name)


def count_classes(output, name: str) -> int:
    """Return the number of classes of logits [b, k], a tensor or its specification, or raise InputError."""
    shape = output.shape
    if output.dtype.is_complex:
        raise InputError(f"{name} returns {output.dtype.name}; logits are real numbers.")
    if shape.rank != 2 or shape[1] < 2:
        raise InputError(f"{name} returns shape {shape}; logits are [b, k] with at least two classes. {OF_ONE_OUTPUT}")
    if shape[1] > MOST_CLASSES:
        raise InputError(f"{name} has {shape[1]} classes; at most {MOST_CLASSES} can be evaluated.")
    return int(shape[1])


def first_line(error: Exception, limit: int = 160) -> str:
    """Return the first line of an error's message, cut to `limit` characters."""
    text = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return text if len(text) <= limit else text[: limit - 3] + "..."
