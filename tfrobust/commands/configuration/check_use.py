"""Check that nothing is set in vain: scopes that no object opens, flags and knobs that nothing of a run reads."""

from tfrobust.commands.configuration import reach
from tfrobust.commands.configuration.files import is_shipped
from tfrobust.commands.configuration.knobs import KNOBS
from tfrobust.commands.configuration.registry import ROOTS
from tfrobust.commands.configuration.resolution import Configuration
from tfrobust.commands.configuration.statements import REQUIRED, Binding, Macro, shown, written
from tfrobust.common.nearest import nearest
from tfrobust.errors import InputError


def check_use(configuration: Configuration) -> None:
    """Raise InputError for the first scope or flag without effect."""
    _check_scopes(configuration)
    _check_flags_used(configuration)


def _check_scopes(configuration: Configuration) -> None:
    """Raise for a scope that no reference opens."""
    opened = {"", *configuration.macros}
    for reference in configuration.references:
        parts = reference.scope.split("/")
        opened.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    for binding in configuration.arguments.values():
        if binding.scope not in opened:
            near = ", ".join(nearest(binding.scope, opened - {""}))
            hint = f"nearest: {near}" if near else f"nothing is written @{binding.scope[:30]}/Name"
            raise InputError(f"{binding.origin}: no object is built in the scope {shown(binding.scope)}; {hint}")


def _check_flags_used(configuration: Configuration) -> None:
    """Raise for a flag that sets an argument of nothing that is built."""
    run = reach.of_roots(configuration, f"{ROOTS}.")
    for key, binding in configuration.arguments.items():
        if not binding.from_flag or key in run.keys:
            continue
        short = binding.selector.rpartition(".")[2]
        if binding.selector not in run.selectors:
            built = ", ".join(sorted(name.rpartition(".")[2] for name in run.selectors))
            raise InputError(f"{binding.origin}: nothing here uses {short}; this configuration uses {built}")
        scopes = sorted(key[0] for key in run.keys if key[1:] == (binding.selector, binding.argument))
        named = [f"{scope and scope + '/'}{short}.{binding.argument}" for scope in scopes]
        hint = f"; set {' or '.join(named)}" if named else f"; no {short} is built in that scope"
        raise InputError(f"{binding.origin}: it has no effect here{hint}")


def check_knobs_read(configuration: Configuration, command: str, defaults: list[Binding]) -> None:
    """Raise InputError for a knob that a file or flag sets and that nothing of the run reads.

    Args:
        configuration: resolved.
        command: name of the root function, "train" or "evaluate". For an evaluation only flags count: a recipe may hold
            knobs of the training. The project's own files count for neither: several methods share them. A knob that a
            file demands (EPSILON for own data) may always be set.
        defaults: the knobs' defaults.
    """
    macros = configuration.macros
    read = reach.of_roots(configuration, f"{ROOTS}.{command}").macros
    by_default = {(item.macro, item.origin) for item in defaults}
    demanded = {item.macro for item in configuration.bindings if item.value == Macro(REQUIRED)}
    for name, binding in macros.items():
        counts = binding.from_flag or (command == "train" and name in KNOBS and not is_shipped(binding))
        if name in read | demanded or (name, binding.origin) in by_default or not counts:
            continue
        readers = ", ".join(reach.readers(name, configuration)) or "nothing of these files"
        chosen = macros.get("METHOD") if command == "train" else None
        run = f"this run (METHOD = {written(chosen.value)})" if chosen else "this run"
        clause = f"{binding.origin}: nothing of {run} reads {shown(name, quote=False)} = {written(binding.value)}"
        raise InputError(f"{clause}; read by {readers}")
