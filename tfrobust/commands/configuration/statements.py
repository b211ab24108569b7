"""Statements of a configuration as plain values: bindings, references and macros, and how messages show them."""

import dataclasses
from collections.abc import Iterator
from typing import Any

# The name of the macro that marks a value without a default.
REQUIRED = "gin.REQUIRED"


@dataclasses.dataclass(frozen=True)
class Reference:
    """`@scope/name` (called is False) or `@scope/name()` in a value."""

    scope: str
    selector: str
    called: bool


@dataclasses.dataclass(frozen=True)
class Macro:
    """`%NAME` in a value."""

    name: str


@dataclasses.dataclass(frozen=True)
class Binding:
    """`scope/selector.argument = value`; a macro `NAME = value` has an empty argument.

    Attributes:
        scope: the scope, or "".
        selector: name of the object, complete or not; the macro's name for a macro.
        argument: name of the parameter; "" for a macro.
        value: literal, or containers of literals, `Reference` and `Macro`.
        origin: file and line or flag that holds it, for messages.
        from_flag: True if it was given by --gin_param.
    """

    scope: str
    selector: str
    argument: str
    value: Any
    origin: str
    from_flag: bool = False

    @property
    def macro(self) -> str | None:
        """The macro's name, or None if this binds an argument."""
        if self.argument:
            return None
        return f"{self.scope}/{self.selector}" if self.scope else self.selector


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


def shown(value, width: int = 60, quote: bool = True) -> str:
    """Format a value on one line of at most `width` printable characters, for a message."""
    try:
        text = repr(value) if quote else str(value)
    except ValueError:  # an integer with more digits than Python converts
        text = f"a {type(value).__name__} with too long a number"
    text = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return text if len(text) <= width else f"{text[: width - 3]}..."


def written(value) -> str:
    """Format a value for a message, an object as `@Name()` without its module."""
    if isinstance(value, Reference):
        return f"@{value.selector.rpartition('.')[2]}{'()' if value.called else ''}"
    return shown(value)
