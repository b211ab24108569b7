"""A configuration as text: what differs from the defaults, and what lies outside of the program."""

import inspect
import os
from collections.abc import Iterator

from tfrobust.commands.configuration import reach
from tfrobust.commands.configuration.parameters import names_outside, parameters
from tfrobust.commands.configuration.registry import ROOTS, Registry
from tfrobust.commands.configuration.resolution import Configuration
from tfrobust.commands.configuration.statements import Binding, Macro, Reference, shown, walk

_NOTHING_SAID = (None, "None", "<factory>")


def differences(configuration: Configuration, defaults: list[Binding]) -> list[str]:
    """Return the settings that differ from the defaults, in the order first set: "EPOCHS = 6  # default 40".

    Returns:
        One line per setting. A setting of an object that the run does not build is left out, and one with the default
        of its object or with that of `defaults`.
    """
    registry = configuration.registry
    usual = {_key(item, registry): text(item.value, registry) for item in defaults}
    reached = reach.of_roots(configuration, f"{ROOTS}.train").selectors
    lines = []
    for key, item in {_key(item, registry): item for item in configuration.bindings}.items():
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


def outside(configuration: Configuration) -> list[str]:
    """Return what a configuration names outside of the program: "reads Npz.path = 'mine.npz'", "downloads ..."."""
    registry, lines = configuration.registry, []
    for binding in configuration.arguments.values():
        if binding.argument not in names_outside(registry.objects[binding.selector]):
            continue
        key = f"{registry.short(binding.selector)}.{binding.argument}"
        for item in _parts(configuration.substitute(binding)):
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
