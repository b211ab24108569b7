"""Macros: which binding of a macro is in force, and values with their macros replaced."""

from tfrobust.commands.configuration.statements import Binding, Macro, shown
from tfrobust.errors import InputError

_DEEPEST = 100
_LARGEST_VALUE = 100_000


def in_force(bindings: list[Binding]) -> dict[str, Binding]:
    """Return macro -> the last of the bindings that sets it."""
    return {binding.macro: binding for binding in bindings if binding.macro is not None}


def substitute(value, macros: dict[str, Binding], origin: str, above: tuple[str, ...] = (), room: list | None = None):
    """Replace the macros in a value by their values; undefined ones stay.

    Args:
        value: literal, or containers of literals, `Reference` and `Macro`.
        macros: macro -> the binding in force.
        origin: file and line or flag that holds the value, for messages.
        above: names of the macros in whose values this one lies.
        room: number of parts that the outermost value may still get, as its only item; None starts a value.

    Raises:
        InputError: macros refer to each other in a circle, or the value becomes too large.
    """
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
