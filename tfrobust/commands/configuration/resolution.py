"""Resolution of names: each object of a configuration gets its complete name, and each argument must be one of its."""

import dataclasses
import functools
import inspect

from tfrobust.commands.configuration import macros
from tfrobust.commands.configuration.parameters import parameters
from tfrobust.commands.configuration.registry import ROOTS, Registry, missing_methods
from tfrobust.commands.configuration.statements import Binding, Reference, shown, walk
from tfrobust.common.nearest import nearest
from tfrobust.errors import InputError

_LONGEST_LIST = 290  # characters of a message that lists subclasses


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Bindings with complete names.

    Attributes:
        bindings: of macros and arguments, in order.
        registry: the objects behind the names.
    """

    bindings: list[Binding]
    registry: Registry

    @functools.cached_property
    def macros(self) -> dict[str, Binding]:
        """Macro -> the binding in force."""
        return macros.in_force(self.bindings)

    @functools.cached_property
    def arguments(self) -> dict[tuple[str, str, str], Binding]:
        """(scope, selector, argument) -> the binding in force."""
        return {(item.scope, item.selector, item.argument): item for item in self.bindings if item.macro is None}

    @functools.cached_property
    def references(self) -> list[Reference]:
        """All references in values."""
        return [item for binding in self.bindings for item in walk(binding.value) if isinstance(item, Reference)]

    def substitute(self, binding: Binding):
        """Return the value of a binding, with its macros replaced."""
        return macros.substitute(binding.value, self.macros, binding.origin)


def resolve(bindings: list[Binding], registry: Registry) -> Configuration:
    """Complete the names in all bindings.

    Raises:
        InputError: the first name that is unknown, ambiguous or no value, and the first unknown argument.
    """
    resolved = []
    for binding in bindings:
        value = _completed(binding.value, registry, binding.origin)
        if binding.macro is None:
            selector = registry.resolve(binding.selector, binding.origin)
            binding = dataclasses.replace(binding, selector=selector)
            _check_argument(binding, registry)
        resolved.append(dataclasses.replace(binding, value=value))
    return Configuration(resolved, registry)


def _completed(value, registry: Registry, origin: str):
    if isinstance(value, Reference):
        complete = registry.resolve(value.selector, origin)
        if complete.startswith(f"{ROOTS}."):  # a reference to it would run a command with paths from a file
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
        raise InputError(shown(line, _LONGEST_LIST, quote=False))


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
