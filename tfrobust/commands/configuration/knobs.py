"""The knobs, which are the macros of gin/base/knobs.gin: the values that each takes, and the default of NAME."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from tfrobust.commands.configuration.files import joined_stems
from tfrobust.commands.configuration.radius import is_radius
from tfrobust.commands.configuration.statements import REQUIRED, Binding, Macro, Reference, written
from tfrobust.common.norm_table import NORMS
from tfrobust.errors import InputError

LARGEST_WHOLE = 2**31 - 1  # TensorFlow counts with 32 bits in many places


def _whole_numbers_from(low: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= LARGEST_WHOLE


_STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")
_COUNT = (_whole_numbers_from(1), f"an int from 1 to {LARGEST_WHOLE}")
_RADIUS = (is_radius, "a number above 0")
_NORM = (lambda value: value in tuple(NORMS), f"one of {', '.join(map(repr, NORMS))} (curve and prox_log_barrier only)")

# A check of each knob's value, and its description. A knob may be set although nothing uses it.
KNOBS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "NAME": (
        lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value) is not None,
        "a name of letters, digits, '.', '_' and '-', for a folder",
    ),
    "SEED": (_whole_numbers_from(0), f"an int from 0 to {LARGEST_WHOLE}"),
    "EPOCHS": _COUNT,
    "BATCH_SIZE": _COUNT,
    "NORM": _NORM,
    "EPSILON": _RADIUS,
    "STEPS": _COUNT,
    "LEARNING_RATE": (
        lambda value: is_radius(value) or isinstance(value, Reference),
        "a number above 0, or a schedule written @Name()",
    ),
    "STRATEGY": (lambda value: value in _STRATEGIES, f"one of {', '.join(map(repr, _STRATEGIES))}"),
    "EVAL_EPSILON": _RADIUS,
    "EVAL_NORM": _NORM,
    "EVAL_EXAMPLES": _COUNT,
}


def check(name: str, value, binding: Binding, bindings: list[Binding]) -> None:
    """Raise InputError if a knob cannot take its value, such as an EPSILON of 0.

    Args:
        name: the knob.
        value: its value, with the macros in it replaced.
        binding: the one in force.
        bindings: all, in order; the first one of the knob is its default.
    """
    default = next(item.value for item in bindings if item.macro == name)
    missing = isinstance(value, Macro) and value.name == REQUIRED
    # A default of None or REQUIRED means "not set"; a user cannot set a knob to either.
    if missing or (value is None and default is None):
        return
    allowed, words = KNOBS[name]
    if not allowed(value) and not isinstance(value, Macro):
        raise InputError(f"{binding.origin}: {name} must be {words}, not {written(value)}")


def default_name(bindings: list[Binding], paths: list[str]) -> Binding | None:
    """Return the binding of NAME if neither a file nor a flag sets it: the stems of the gin files, joined by `_`.

    Args:
        bindings: of the files and flags, after the knobs' defaults.
        paths: the values of --gin_file.

    Returns:
        The binding; None if NAME is set, if there are no defaults, or if the stems make no name.
    """
    default, *settings = [binding for binding in bindings if binding.macro == "NAME"] or [None]
    if default is None or default.value is not None or settings:
        return None
    stems = joined_stems(paths)
    return Binding("", "NAME", "", stems, "the names of the gin files") if KNOBS["NAME"][0](stems) else None


def unset_seed(bindings: list[Binding], defaults: list[Binding]) -> Binding | None:
    """Return the binding that leaves the seed of an evaluation to the model's report, if no file and no flag sets it.

    An explicit SEED = 0 is a seed, the default of the knob is not: it is that of a training.

    Args:
        bindings: of the defaults, files and flags.
        defaults: the knobs' defaults.
    """
    seeds = [item for item in bindings if item.selector.rpartition(".")[2] == "evaluate" and item.argument == "seed"]
    if any(item.macro == "SEED" for item in bindings[len(defaults) :]) or not seeds:
        return None
    is_default = seeds[-1].value == Macro("SEED") and not seeds[-1].from_flag
    return dataclasses.replace(seeds[-1], value=None) if is_default else None
