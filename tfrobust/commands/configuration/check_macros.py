"""Check of the macros before TensorFlow is imported: each is set, used or a knob, in no circle, and a knob in range."""

from tfrobust.commands.configuration import knobs, radius
from tfrobust.commands.configuration.macros import in_force, substitute
from tfrobust.commands.configuration.statements import REQUIRED, Binding, Macro, shown, walk
from tfrobust.common.nearest import nearest
from tfrobust.errors import InputError

_BASE = "it follows a base: put --gin_file=gin/base/train.gin and gin/base/digits.gin, or a method's file, before it"
# Macros that files of gin/ set for others, and why nothing of a configuration may use them.
_WITHOUT_USE = {
    "METHOD": _BASE,
    "DATA": _BASE,
    "ENCODER": "an evaluation builds a network for weights of PyTorch only, by a file of gin/models that sets "
    "evaluate.encoder; a training takes it after a method's file",
}


def check_macros(bindings: list[Binding], partial: bool = False) -> None:
    """Raise InputError for the first mistake in macros.

    Args:
        bindings: all bindings, in order.
        partial: True if the files are only a part of a configuration, so that macros may be defined or used elsewhere.
    """
    macros = in_force(bindings)
    if not partial:
        _check_used(macros, _check_set(bindings, macros))
    for name, binding in macros.items():
        value = substitute(binding.value, macros, binding.origin)
        if name in knobs.KNOBS:
            knobs.check(name, value, binding, bindings)
    if not partial:
        radius.check_set(bindings, macros)


def _check_set(bindings: list[Binding], macros: dict[str, Binding]) -> set[str]:
    """Raise for a macro that a value names and nothing sets; return the names of all macros in values."""
    used = set()
    for binding in bindings:
        for item in walk(binding.value):
            if isinstance(item, Macro) and item.name != REQUIRED:
                used.add(item.name)
                if item.name not in macros:
                    near = ", ".join(nearest(item.name, {*macros, *knobs.KNOBS}))
                    hint = f"nearest: {near}" if near else "add the --gin_file or --gin_param that sets it"
                    raise InputError(f"{binding.origin}: the macro %{shown(item.name, quote=False)} is not set; {hint}")
    return used


def _check_used(macros: dict[str, Binding], used: set[str]) -> None:
    for name, binding in macros.items():
        if name not in used and name not in knobs.KNOBS:
            near = ", ".join(nearest(name, used | set(knobs.KNOBS)))
            hint = f"nearest: {near}" if near else f"the knobs are {', '.join(knobs.KNOBS)}"
            hint = _WITHOUT_USE.get(name, hint)
            raise InputError(f"{binding.origin}: nothing uses {shown(name, quote=False)}; {hint}")
