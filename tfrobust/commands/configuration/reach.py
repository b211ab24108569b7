"""The reach of a run: which bindings and macros of a configuration it reads, with gin's rules of scopes."""

import dataclasses

from tfrobust.commands.configuration.resolution import Configuration
from tfrobust.commands.configuration.statements import Binding, Macro, Reference

_METHODS = "tfrobust.methods."


@dataclasses.dataclass
class Reach:
    """Names that the objects of a run read.

    Attributes:
        selectors: complete names of the objects that are built.
        keys: (scope, selector, argument) of the bindings in force for them.
        macros: names of the macros in the values of these bindings, and in those of such macros.
    """

    selectors: set[str] = dataclasses.field(default_factory=set)
    keys: set[tuple[str, str, str]] = dataclasses.field(default_factory=set)
    macros: set[str] = dataclasses.field(default_factory=set)


def of_roots(configuration: Configuration, root: str) -> Reach:
    """Return what the objects read that are built for those whose names begin with `root`."""
    selectors = {selector for _, selector, _ in configuration.arguments}
    return _follow(configuration, [("", name) for name in selectors if _is_below(name, root)])


def readers(macro: str, configuration: Configuration) -> list[str]:
    """Return the short names of the methods that would read a macro; if there are none, of all that bind it."""
    selectors = {selector for _, selector, _ in configuration.arguments}
    methods = {name for name in selectors if name.startswith(_METHODS) and ".shared." not in name}
    names = {name for name in methods if macro in _follow(configuration, [("", name)]).macros}
    names = names or {name for name in selectors if macro in _follow(configuration, [("", name)]).macros}
    return sorted(name.rpartition(".")[2] for name in names)


def _is_below(name: str, root: str) -> bool:
    return name == root or (root.endswith(".") and name.startswith(root))


def _follow(configuration: Configuration, waiting: list[tuple[str, str]]) -> Reach:
    """Return what the objects (scope, selector) read, and the objects in their arguments."""
    by_selector: dict[str, list[tuple]] = {}
    for key in configuration.arguments:
        by_selector.setdefault(key[1], []).append(key)
    result, seen = Reach(), set()
    while waiting:
        scope, selector = state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        result.selectors.add(selector)
        for key in _in_force(by_selector.get(selector, ()), scope):
            result.keys.add(key)
            value = configuration.arguments[key].value
            waiting += _objects(value, scope, configuration.macros, result.macros)
    return result


def _in_force(keys, scope: str) -> list[tuple]:
    """Return, of bindings of one object, the innermost for each argument: a scope passes on what it does not set."""
    inner: dict[str, tuple] = {}
    for key in sorted(keys, key=lambda key: len(key[0])):
        if f"{scope}/".startswith(key[0] and f"{key[0]}/"):
            inner[key[2]] = key
    return list(inner.values())


def _objects(value, scope: str, macros: dict[str, Binding], read: set[str]) -> list[tuple[str, str]]:
    """Return the (scope, selector) of the objects in a value, and add its macros to `read`."""
    if isinstance(value, Macro):
        read.add(value.name)
        # gin evaluates the value of a macro in a scope of that name.
        return _objects(macros[value.name].value, value.name, macros, read) if value.name in macros else []
    if isinstance(value, Reference):
        return [(value.scope or (scope if value.called else ""), value.selector)]
    items = value if isinstance(value, (list, tuple)) else ()
    items = [*value, *value.values()] if isinstance(value, dict) else items
    return [state for item in items for state in _objects(item, scope, macros, read)]
