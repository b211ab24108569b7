"""The radius of the perturbations: the values of EPSILON and EVAL_EPSILON, and the refusal of an EPSILON left open."""

import sys

from tfrobust.commands.configuration.macros import substitute
from tfrobust.commands.configuration.statements import REQUIRED, Binding, Macro, walk
from tfrobust.errors import InputError


def is_radius(value) -> bool:
    """Return True for a finite number above 0."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def without_default(origin: str) -> Binding:
    """Return the binding that takes the default of EPSILON away, so that a later file or flag must set it.

    Args:
        origin: the flag that names data for which the default means nothing.
    """
    return Binding("", "EPSILON", "", Macro(REQUIRED), origin)


def is_open(binding: Binding) -> bool:
    """Return True for the binding that leaves EPSILON open."""
    return binding.macro == "EPSILON" and binding.value == Macro(REQUIRED)


def intended_difference(bindings: list[Binding], defaults: list[Binding], command: str) -> Binding | None:
    """Return the binding that tells the doctor of another threat model in evaluation, if the recipe sets one.

    For a training these are EVAL_EPSILON and EVAL_NORM. For an evaluation EPSILON and NORM say it as well.

    Args:
        bindings: of the defaults, files and flags.
        defaults: the knobs' defaults.
        command: "train" or "evaluate".
    """
    knobs = {"EVAL_EPSILON": Macro("EPSILON"), "EVAL_NORM": Macro("NORM")}
    if command == "evaluate":
        knobs |= {"EPSILON": None, "NORM": None}
    final = {binding.macro: binding for binding in bindings[len(defaults) :]}
    chosen = [name for name, usual in knobs.items() if name in final and final[name].value != usual]
    return Binding("", "Doctor", "other_threat", True, ", ".join(chosen)) if chosen else None


def check_set(bindings: list[Binding], macros: dict[str, Binding]) -> None:
    """Raise InputError for an EPSILON that own data leave open (gin/data), if an argument needs it."""
    unset = [
        Macro(name)
        for name in ("EPSILON", "EVAL_EPSILON")
        if name in macros and substitute(Macro(name), macros, "") == Macro(REQUIRED)
    ]
    if any(item in unset for binding in bindings if binding.argument for item in walk(binding.value)):
        raise InputError(
            f'{macros["EPSILON"].origin}: EPSILON has no default for such data; add --gin_param="EPSILON=0.0314". '
            "Usual in Linf: 0.0314 (8/255, hard to see) for photographs, 0.2 to 0.3 for gray digits like MNIST."
        )
