"""Checks that turn statements into a bound gin configuration; any mistake is one line, before anything runs."""

import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tfrobust.commands.configuration import reading
from tfrobust.commands.configuration.files import Binding, Macro, Reference, is_shipped, joined_stems, shown
from tfrobust.commands.configuration.parameters import Parameter, described, fits, names_outside, parameters
from tfrobust.commands.configuration.registry import Registry, missing_methods
from tfrobust.common.nearest import nearest
from tfrobust.common.norm_table import NORMS
from tfrobust.errors import InputError

_REQUIRED = "gin.REQUIRED"
_DEEPEST = 100
_LARGEST_VALUE = 100_000
_LARGEST_WHOLE = 2**31 - 1  # TensorFlow counts with 32 bits in many places
_ROOTS = "tfrobust.runs.experiment."
_NOTHING_SAID = (None, "None", "<factory>")


def _whole_numbers_from(low: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= _LARGEST_WHOLE


def _epsilon(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


_STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")
_COUNT = (_whole_numbers_from(1), f"an int from 1 to {_LARGEST_WHOLE}")
_EPSILON = (_epsilon, "a number above 0")
_NORM = (lambda value: value in tuple(NORMS), f"one of {', '.join(map(repr, NORMS))} (prox_log_barrier only)")

# The knobs (macros of gin/base/knobs.gin): a check of the value, and its description. A knob may be set although
# nothing uses it.
KNOBS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "NAME": (
        lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value) is not None,
        "a name of letters, digits, '.', '_' and '-', for a folder",
    ),
    "SEED": (_whole_numbers_from(0), f"an int from 0 to {_LARGEST_WHOLE}"),
    "EPOCHS": _COUNT,
    "BATCH_SIZE": _COUNT,
    "NORM": _NORM,
    "EPSILON": _EPSILON,
    "STEPS": _COUNT,
    "LEARNING_RATE": (
        lambda value: _epsilon(value) or isinstance(value, Reference),
        "a number above 0, or a schedule written @Name()",
    ),
    "STRATEGY": (lambda value: value in _STRATEGIES, f"one of {', '.join(map(repr, _STRATEGIES))}"),
    "EVAL_EPSILON": _EPSILON,
    "EVAL_NORM": _NORM,
    "EVAL_EXAMPLES": _COUNT,
}


_BASE = "it follows a base: put --gin_file=gin/base/train.gin and gin/base/digits.gin, or a method's file, before it"
# Macros that files of gin/ set for others, and why nothing of a configuration may use them.
_WITHOUT_USE = {
    "METHOD": _BASE,
    "DATA": _BASE,
    "ENCODER": "an evaluation builds a network for weights of PyTorch only, by a file of gin/models that sets "
    "evaluate.encoder; a training takes it after a method's file",
}


def required(knob: str, origin: str) -> Binding:
    """Return a binding that takes a knob's default away, so that a later file or flag must set it."""
    return Binding("", knob, "", Macro(_REQUIRED), origin)


def unnamed(bindings: list[Binding], paths: list[str]) -> Binding | None:
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


# -------------------------------------------------------------------------------------------------- macros


def walk(value) -> Iterator:
    """Yield every reference, macro and literal in a value, including those inside containers."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from walk(key)
            yield from walk(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from walk(item)
    else:
        yield value


def check_macros(bindings: list[Binding], partial: bool = False) -> dict[str, Binding]:
    """Check the macros: each defined, each used or a knob, none defined by itself, knobs in range.

    Args:
        bindings: all bindings, in order.
        partial: True if the files are only a part of a configuration, so that macros may be defined or used elsewhere.

    Returns:
        Macro name -> the binding in force.

    Raises:
        InputError: the first mistake.
    """
    macros = {binding.macro: binding for binding in bindings if binding.macro is not None}
    used = set()
    for binding in bindings:
        for item in walk(binding.value):
            if isinstance(item, Macro) and item.name != _REQUIRED:
                used.add(item.name)
                if item.name not in macros and not partial:
                    near = ", ".join(nearest(item.name, {*macros, *KNOBS}))
                    hint = f"nearest: {near}" if near else "add the --gin_file or --gin_param that sets it"
                    raise InputError(f"{binding.origin}: the macro %{shown(item.name, quote=False)} is not set; {hint}")
    for name, binding in macros.items():
        if name not in used and name not in KNOBS and not partial:
            near = ", ".join(nearest(name, used | set(KNOBS)))
            hint = f"nearest: {near}" if near else f"the knobs are {', '.join(KNOBS)}"
            hint = _WITHOUT_USE.get(name, hint)
            raise InputError(f"{binding.origin}: nothing uses {shown(name, quote=False)}; {hint}")
    for name, binding in macros.items():
        value = substitute(binding.value, macros, binding.origin)
        if name in KNOBS:
            _check_knob(name, value, binding, bindings)
    if not partial:
        _check_radius(bindings, macros)
    return macros


def _check_radius(bindings: list[Binding], macros: dict[str, Binding]) -> None:
    """Raise for an EPSILON that own data leave open (gin/data), if an argument needs it."""
    unset = [
        Macro(name)
        for name in ("EPSILON", "EVAL_EPSILON")
        if name in macros and substitute(Macro(name), macros, "") == Macro(_REQUIRED)
    ]
    if any(item in unset for binding in bindings if binding.argument for item in walk(binding.value)):
        raise InputError(
            f'{macros["EPSILON"].origin}: EPSILON has no default for such data; add --gin_param="EPSILON=0.0314". '
            "Usual in Linf: 0.0314 (8/255, hard to see) for photographs, 0.2 to 0.3 for gray digits like MNIST."
        )


def _check_knob(name: str, value, binding: Binding, bindings: list[Binding]) -> None:
    default = next(item.value for item in bindings if item.macro == name)
    missing = isinstance(value, Macro) and value.name == _REQUIRED
    # A default of None or REQUIRED means "not set"; a user cannot set a knob to either.
    if missing or (value is None and default is None):
        return
    allowed, words = KNOBS[name]
    if not allowed(value) and not isinstance(value, Macro):
        raise InputError(f"{binding.origin}: {name} must be {words}, not {_written(value)}")


def substitute(value, macros: dict[str, Binding], origin: str, above: tuple[str, ...] = (), room: list | None = None):
    """Replace the macros in a value by their values; undefined ones stay."""
    room = [_LARGEST_VALUE] if room is None else room
    room[0] -= 1
    if room[0] < 0:  # nested macros can grow a value exponentially
        raise InputError(f"{origin}: a value has more than {_LARGEST_VALUE} parts once its macros are replaced.")
    if isinstance(value, Macro):
        if value.name in above or len(above) > _DEEPEST:
            names = " > ".join((*above[:5], value.name))
            raise InputError(f"{origin}: the macros refer to each other in a circle: {shown(names, 120, quote=False)}")
        if value.name not in macros:
            return value
        return substitute(macros[value.name].value, macros, macros[value.name].origin, (*above, value.name), room)
    if isinstance(value, dict):
        pairs = [[substitute(part, macros, origin, above, room) for part in pair] for pair in value.items()]
        return {str(key) if isinstance(key, (dict, list)) else key: part for key, part in pairs}
    if isinstance(value, (list, tuple)):
        return type(value)(substitute(item, macros, origin, above, room) for item in value)
    return value


# ------------------------------------------------------------------------------------------------- objects


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A checked configuration, as `bind` needs it.

    Attributes:
        bindings: macros and arguments in order, with complete names.
        names: complete name of every selector used.
    """

    bindings: list[Binding]
    names: set[str]


def check_objects(
    bindings: list[Binding], macros: dict[str, Binding], registry: Registry, partial: bool = False
) -> Resolved:
    """Resolve every name and check every argument, scope and type.

    Raises:
        InputError: the first mistake.
    """
    resolved = []
    for binding in bindings:
        value = _completed(binding.value, registry, binding.origin)
        if binding.macro is None:
            complete = registry.resolve(binding.selector, binding.origin)
            binding = dataclasses.replace(binding, selector=complete)
            _check_argument(binding, registry)
        resolved.append(dataclasses.replace(binding, value=value))
    macros = {name: item for name, item in ((item.macro, item) for item in resolved) if name is not None}
    final = {(item.scope, item.selector, item.argument): item for item in resolved if item.macro is None}
    references = [item for binding in resolved for item in walk(binding.value) if isinstance(item, Reference)]
    if not partial:
        _check_scopes(final.values(), references, macros)
        _check_flags_used(final, macros)
    for binding in final.values():
        _check_value(binding, macros, registry, partial)
    if not partial:
        _check_required(references, final, registry)
    names = {item.selector for item in references} | {item.selector for item in final.values()}
    return Resolved(resolved, names)


def _completed(value, registry: Registry, origin: str):
    if isinstance(value, Reference):
        complete = registry.resolve(value.selector, origin)
        if complete.startswith(_ROOTS):  # a reference to it would run a command with paths from a file
            raise InputError(f"{origin}: {complete.rpartition('.')[2]} is run by a command and cannot be a value.")
        _refuse_base(complete, registry, origin)
        return dataclasses.replace(value, selector=complete)
    if isinstance(value, dict):
        return {_completed(k, registry, origin): _completed(v, registry, origin) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_completed(item, registry, origin) for item in value)
    return value


def _refuse_base(complete: str, registry: Registry, origin: str) -> None:
    target = registry.objects[complete]
    missing = missing_methods(target) if inspect.isclass(target) else []
    if missing:
        usable = [registry.short(name) for name, item in registry.objects.items() if _is_usable(item, target)]
        hint = f"; its subclasses are {', '.join(sorted(usable))}" if usable else ""
        short = complete.rpartition(".")[2]
        line = f"{origin}: {short} is a base class without {', '.join(missing)}{hint}"
        raise InputError(shown(line, 290, quote=False))


def _is_usable(item, base: type) -> bool:
    return inspect.isclass(item) and issubclass(item, base) and not missing_methods(item)


def _check_argument(binding: Binding, registry: Registry) -> None:
    target = registry.objects[binding.selector]
    names = parameters(target)
    if binding.argument not in names:
        short = binding.selector.rpartition(".")[2]
        near = ", ".join(nearest(binding.argument, names, count=1))
        hint = f"nearest: {near}; " if near else ""
        weights = getattr(target, "default_weights", None) or dict.fromkeys(getattr(target, "terms", None) or (), 1.0)
        if weights and "term_weights" in names and not near:
            hint = f"the weights of its terms are term_weights = {shown(weights, 80)}; "
        raise InputError(
            f"{binding.origin}: {short} has no parameter {shown(binding.argument)}; {hint}it takes {', '.join(names)}"
        )


def _check_scopes(bindings, references: list[Reference], macros: dict) -> None:
    """Raise for a scope that no reference opens, since its bindings would silently have no effect."""
    opened = {"", *macros}
    for reference in references:
        parts = reference.scope.split("/")
        opened.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    for binding in bindings:
        if binding.scope not in opened:
            near = ", ".join(nearest(binding.scope, opened - {""}))
            hint = f"nearest: {near}" if near else f"nothing is written @{binding.scope[:30]}/Name"
            raise InputError(f"{binding.origin}: no object is built in the scope {shown(binding.scope)}; {hint}")


def _check_flags_used(final: dict[tuple, Binding], macros: dict[str, Binding]) -> None:
    """Raise for a flag that sets an argument of nothing that is built, since it would silently have no effect."""
    run = reading.of_roots(final, macros, _ROOTS)
    for key, binding in final.items():
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


def check_knobs_read(resolved: Resolved, command: str, defaults: list[Binding]) -> None:
    """Raise for a knob that a file or flag sets and that nothing of the run reads: it would silently have no effect.

    Args:
        resolved: the checked configuration.
        command: name of the root function, "train" or "evaluate". For an evaluation only flags count: a recipe may hold
            knobs of the training. The project's own files count for neither: several methods share them. A knob that a
            file demands (EPSILON for own data) may always be set.
        defaults: the knobs' defaults.

    Raises:
        InputError: the first such knob, with its value and with what reads it.
    """
    macros = {item.macro: item for item in resolved.bindings if item.macro is not None}
    final = {(item.scope, item.selector, item.argument): item for item in resolved.bindings if item.macro is None}
    read = reading.of_roots(final, macros, f"{_ROOTS}{command}").macros
    by_default = {(item.macro, item.origin) for item in defaults}
    demanded = {item.macro for item in resolved.bindings if item.value == Macro(_REQUIRED)}
    for name, binding in macros.items():
        counts = binding.from_flag or (command == "train" and name in KNOBS and not is_shipped(binding))
        if name in read | demanded or (name, binding.origin) in by_default or not counts:
            continue
        readers = ", ".join(reading.readers(name, final, macros)) or "nothing of these files"
        chosen = macros.get("METHOD") if command == "train" else None
        run = f"this run (METHOD = {_written(chosen.value)})" if chosen else "this run"
        clause = f"{binding.origin}: nothing of {run} reads {shown(name, quote=False)} = {_written(binding.value)}"
        raise InputError(f"{clause}; read by {readers}")


def _check_value(binding: Binding, macros: dict[str, Binding], registry: Registry, partial: bool) -> None:
    value = substitute(binding.value, macros, binding.origin)
    short = f"{binding.selector.rpartition('.')[2]}.{binding.argument}"
    origin = binding.origin
    if isinstance(binding.value, Macro) and binding.value.name in macros:
        origin = macros[binding.value.name].origin
        short += f" (%{binding.value.name})"
    parameter: Parameter = parameters(registry.objects[binding.selector])[binding.argument]

    def accepts(value) -> bool:
        return fits(value, parameter, lambda reference: registry.objects[reference.selector])

    # A knob with the default None must be set by a later file, like a macro set to %gin.REQUIRED, where it is no value.
    is_knob = isinstance(binding.value, Macro) and binding.value.name in KNOBS
    unset = value is None and is_knob and not accepts(None)
    if unset or any(isinstance(item, Macro) for item in walk(value)):
        if partial:
            return
        raise InputError(f'{binding.origin}: {short} must be set; add --gin_param="{_setter(binding)}=..."')
    for item in walk(value):
        if isinstance(item, int) and abs(item) > _LARGEST_WHOLE:
            raise InputError(f"{origin}: {short} has {_written(item)}; whole numbers must be at most {_LARGEST_WHOLE}")
    if not accepts(value):
        raise InputError(f"{origin}: {short} must be {described(parameter)}, not {_written(value)}")


def _setter(binding: Binding) -> str:
    if isinstance(binding.value, Macro) and binding.value.name != _REQUIRED:
        return binding.value.name
    return f"{binding.selector.rpartition('.')[2]}.{binding.argument}"


def _written(value) -> str:
    if isinstance(value, Reference):
        return f"@{value.selector.rpartition('.')[2]}{'()' if value.called else ''}"
    return shown(value)


def _check_required(references: list[Reference], final: dict[tuple, Binding], registry: Registry) -> None:
    arguments: dict[str, set[str]] = {}
    for _, selector, argument in final:
        arguments.setdefault(selector, set()).add(argument)
    for reference in references:
        if reference.called:
            missing_arguments(reference.selector, arguments.get(reference.selector, set()), registry)


def missing_arguments(selector: str, arguments: set[str], registry: Registry) -> None:
    """Raise InputError if an object that is called without arguments lacks a required one."""
    missing = [
        p.name for p in parameters(registry.objects[selector]).values() if p.required and p.name not in arguments
    ]
    if missing:
        short = selector.rpartition(".")[2]
        raise InputError(
            f"{short} needs {', '.join(missing)}; set it in a gin file, such as {short}.{missing[0]} = ..."
        )


# ------------------------------------------------------------------------------------------------- outside


def outside(bindings: list[Binding], registry: Registry) -> list[str]:
    """Return what a configuration names outside of the program: "reads Npz.path = 'mine.npz'", "downloads ...".

    Args:
        bindings: with complete names, in order.
        registry: of the run.
    """
    macros = {item.macro: item for item in bindings if item.macro is not None}
    final = {(item.scope, item.selector, item.argument): item for item in bindings if item.macro is None}
    lines = []
    for binding in final.values():
        if binding.argument not in names_outside(registry.objects[binding.selector]):
            continue
        key = f"{registry.short(binding.selector)}.{binding.argument}"
        for item in _parts(substitute(binding.value, macros, binding.origin)):
            verb = _verb(item)
            lines += [f"{verb} {key} = {shown(item, 150)}"] if verb else []
    return list(dict.fromkeys(lines))


def _parts(value) -> Iterator:
    """Yield the literals in a value, of a dict only its values."""
    yield from walk([*value.values()] if isinstance(value, dict) else value)


def _verb(item) -> str:
    """Return "downloads" or "reads" for what an argument names; "" for a value that names nothing."""
    if item is True or (isinstance(item, str) and (item == "imagenet" or "://" in item)):
        return "downloads"
    is_path = isinstance(item, str) and item and (os.path.lexists(os.path.expanduser(item)) or os.sep in item)
    return "reads" if is_path else ""


# --------------------------------------------------------------------------------------------- differences


def differences(bindings: list[Binding], defaults: list[Binding], registry: Registry) -> list[str]:
    """Return the settings that differ from the defaults, in the order first set: "EPOCHS = 6  # default 40".

    Args:
        bindings: of a training run, with complete names, in order.
        defaults: of the files that count as defaults, as read.
        registry: of the run.

    Returns:
        One line per setting. A setting of an object that the run does not build is left out, and one with the default
        of its object or with that of `defaults`.
    """
    usual = {_key(item, registry): text(item.value, registry) for item in defaults}
    macros = {item.macro: item for item in bindings if item.macro is not None}
    final = {(item.scope, item.selector, item.argument): item for item in bindings if item.macro is None}
    reached = reading.of_roots(final, macros, f"{_ROOTS}train").selectors
    lines = []
    for key, item in {_key(item, registry): item for item in bindings}.items():
        if item.macro is None and item.selector not in reached:
            continue
        value, default = text(item.value, registry), usual.get(key)
        if item.macro is None and default is None:
            parameter = parameters(registry.objects[item.selector])[item.argument]
            default = None if parameter.required else text(parameter.default, registry)
        if value != default:
            # A default that a factory makes, or "not set", says nothing.
            comment = f"  # default {shown(default, 60, quote=False)}" if default not in _NOTHING_SAID else ""
            lines.append(f"{key} = {value}" + comment)
    return lines


def _key(item: Binding, registry: Registry) -> str:
    """Return the left side of a binding in gin, with the short name of the object."""
    if item.macro is not None:
        return item.macro
    selector = registry.short(registry.resolve(item.selector, item.origin))
    return f"{item.scope and item.scope + '/'}{selector}.{item.argument}"


def text(value, registry: Registry) -> str:
    """Return a value as gin writes it, with the short names of objects."""
    if isinstance(value, Macro):
        return f"%{value.name}"
    if isinstance(value, Reference):
        name = registry.short(registry.resolve(value.selector, "a default"))
        return f"@{value.scope and value.scope + '/'}{name}{'()' * value.called}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{text(k, registry)}: {text(v, registry)}' for k, v in value.items())}}}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(text(item, registry) for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    return f"@{value.__name__}" if inspect.isclass(value) else repr(value)


# ------------------------------------------------------------------------------------------------- binding


def bind(resolved: Resolved, registry: Registry) -> None:
    """Make this the process's gin configuration, and lock it."""
    import gin

    gin.clear_config()
    for name in sorted(resolved.names):
        register(name, registry)
    for binding in resolved.bindings:
        key = (binding.macro, "gin.macro", "value")
        if binding.macro is None:
            key = (binding.scope, binding.selector, binding.argument)
        value = None if binding.macro == "EPSILON" and binding.value == Macro(_REQUIRED) else binding.value  # unused
        gin.bind_parameter(key, _for_gin(value, registry))
    gin.finalize()


def register(name: str, registry: Registry) -> None:
    """Register an object with gin, and all objects with the same last name, so that gin prints unambiguous names."""
    import gin

    # Interactive mode allows registering a name again: names are unique within a registry, but a later registry of the
    # same process may hold other objects.
    with gin.unlock_config(), gin.config.interactive_mode():
        for complete in registry.same_name(name):
            module, _, last = complete.rpartition(".")
            gin.register(last, module=module)(_reporting(registry.objects[complete]))


def _reporting(target):
    """Return a class that constructs `target` and raises the constructor's ValueError or TypeError as InputError.

    Classes check the arguments that a configuration gives them, and those of Keras and of users know no InputError.
    Functions are returned unchanged.
    """
    if not inspect.isclass(target):
        return target

    def construct(_, *args, **kwargs):
        try:
            return target(*args, **kwargs)
        except InputError:
            raise
        except (ValueError, TypeError) as error:
            raise InputError(str(error)) from error

    # As gin itself does: a subclass, so that `issubclass` holds, whose metaclass returns instances of the original.
    kind = type(target)
    names = {name: getattr(target, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(kind)(kind.__name__, (kind,), {"__call__": construct})(target.__name__, (target,), names)


def _for_gin(value, registry: Registry):
    """Return a value as gin keeps it; references get the names that gin prints, which files that move do not change."""
    from gin import config

    if isinstance(value, Macro):
        return config.ParserDelegate().macro(value.name)
    if isinstance(value, Reference):
        scope = f"{value.scope}/" if value.scope else ""
        return config.ConfigurableReference(scope + registry.short(value.selector), value.called)
    if isinstance(value, dict):
        return {_for_gin(key, registry): _for_gin(item, registry) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_for_gin(item, registry) for item in value)
    return value
