"""Parameters of classes and functions, and checks that a value from a file fits its annotation."""

import collections.abc
import dataclasses
import inspect
import sys
import types
import typing
from typing import Any

from tfrobust.commands.configuration.statements import Macro, Reference
from tfrobust.common import outside

_EMPTY = inspect.Parameter.empty


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter: its resolved annotation (Any without one) and its default (`inspect.Parameter.empty` if none)."""

    name: str
    hint: Any
    default: Any

    @property
    def required(self) -> bool:
        """True if the parameter has no default."""
        return self.default is _EMPTY


def parameters(target) -> dict[str, Parameter]:
    """Return the named parameters of a function, or of a class over its whole constructor chain."""
    if not inspect.isclass(target):
        hints = _hints(target)
        return {
            name: Parameter(name, hints.get(name, Any), item.default)
            for name, item in inspect.signature(target).parameters.items()
            if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
        }
    hints = {}
    for base in target.__mro__:
        if "__init__" in base.__dict__ and base is not object:
            hints = {**_hints(base.__init__), **hints}
    by_name = {}
    for name, item in _constructor_arguments(target).items():
        hint = hints.get(name, Any) if item.annotation is not _EMPTY else Any
        by_name[name] = Parameter(name, hint, item.default)
    return by_name


def _constructor_arguments(cls: type) -> dict[str, inspect.Parameter]:
    """Return the parameters as `configured.constructor_arguments` does, but walk Keras's own classes to their root.

    `configured.constructor_arguments` stops at Keras.
    """
    if not cls.__module__.startswith("keras."):
        from tfrobust.common.configured import constructor_arguments

        arguments = constructor_arguments(cls)
        if any(base.__module__.startswith("keras.") for base in cls.__mro__):
            # Parameters that Keras takes through **kwargs are never required.
            for name in ("name", "trainable", "dtype"):
                if name in arguments and arguments[name].default is _EMPTY:
                    arguments[name] = arguments[name].replace(default=None)
        return arguments
    arguments = {}
    for base in cls.__mro__:
        init = base.__dict__.get("__init__")
        if init is None or base is object:
            continue
        items = list(inspect.signature(init).parameters.values())[1:]
        for item in items:
            if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD):
                arguments.setdefault(item.name, item)
        if not any(item.kind is item.VAR_KEYWORD for item in items):
            break
    return arguments


def names_outside(target) -> set[str]:
    """Return the parameters of a class that name files or downloads (see `common.outside`)."""
    bases = target.__mro__ if inspect.isclass(target) else ()
    hints = [_hints(base.__init__, extras=True) for base in bases if "__init__" in base.__dict__ and base is not object]
    return {name for annotations in hints for name, hint in annotations.items() if outside.is_marked(hint)}


def _hints(function, extras: bool = False) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=extras)
    except Exception:  # one name for type checkers only hides all hints: evaluate each alone
        annotations = {}
        for name, hint in getattr(function, "__annotations__", {}).items():
            try:
                annotations[name] = eval(hint, function.__globals__) if isinstance(hint, str) else hint
            except Exception:
                annotations[name] = Any
        return annotations


# ------------------------------------------------------------------------------------------------ checking


def fits(value, parameter: Parameter, resolve) -> bool:
    """Return True if a parameter may take a value. In doubt this is True, and the constructor checks the value itself.

    Args:
        value: literal, containers of literals, `Reference`. Macros are replaced by the caller.
        parameter: the parameter that takes it.
        resolve: reference -> the object it names.
    """
    if type(value) is type(parameter.default) and value == parameter.default:
        return True
    hint = parameter.hint
    if hint is Any:
        # Keras may accept an object in place of a number: a learning rate is often a schedule.
        if isinstance(value, Reference) and value.called:
            return True
        hint = _hint_of_default(parameter.default)
    return _fits(value, hint, resolve)


def _hint_of_default(default):
    """Infer a hint from a default, because Keras does not annotate its parameters."""
    if isinstance(default, bool):
        return bool | None
    if isinstance(default, (int, float)):
        return float | None
    return Any


def _fits(value, hint, resolve) -> bool:
    if hint is Any or hint is object or isinstance(hint, (typing.TypeVar, str)) or isinstance(value, Macro):
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _fits(value, arguments[0], resolve)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option, resolve) for option in arguments)
    if isinstance(value, Reference):
        return _reference_fits(value, hint, origin, arguments, resolve)
    if hint is None or hint is type(None):
        return value is None
    if origin is typing.Literal:
        return any(value == option and type(value) is type(option) for option in arguments)
    if origin is not None:
        return _container_fits(value, origin, arguments, resolve)
    return _plain_fits(value, hint)


def _plain_fits(value, hint) -> bool:
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and abs(value) <= sys.float_info.max
    if hint in (tuple, list, collections.abc.Sequence, collections.abc.Iterable):
        return isinstance(value, (tuple, list))
    if inspect.isclass(hint):
        return isinstance(value, hint)
    return True


def _container_fits(value, origin, arguments, resolve) -> bool:
    if origin in (type, collections.abc.Callable):
        return False  # a literal is neither; references were handled before
    if origin in (dict, collections.abc.Mapping):
        if not isinstance(value, dict):
            return False
        key, item = arguments
        return all(_fits(k, key, resolve) and _fits(v, item, resolve) for k, v in value.items())
    if origin in (tuple, list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection):
        if not isinstance(value, (tuple, list)):
            return False
        if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
            return len(value) == len(arguments) and all(map(lambda v, h: _fits(v, h, resolve), value, arguments))
        return all(_fits(item, arguments[0], resolve) for item in value)
    return True


def _reference_fits(value: Reference, hint, origin, arguments, resolve) -> bool:
    target = resolve(value)
    if origin in (dict, tuple, list, collections.abc.Mapping, typing.Literal):
        return value.called and not inspect.isclass(target) and _makes(target, origin)
    if not value.called:
        if origin is type:
            base = arguments[0]
            return inspect.isclass(target) and (not inspect.isclass(base) or issubclass(target, base))
        if hint is type:
            return inspect.isclass(target)
        if origin is collections.abc.Callable:
            return _makes(target, arguments[-1])
        return hint in (collections.abc.Callable, typing.Callable)
    if hint in (type(None), None, type) or origin is type:
        return False
    if origin is collections.abc.Callable and inspect.isclass(target):
        product = arguments[-1] if arguments else None
        # An encoder is callable too, but it does not construct encoders.
        is_product = inspect.isclass(product) and issubclass(target, product)
        return issubclass(target, collections.abc.Callable) and not is_product and _is_of_user(target, product)
    if origin is collections.abc.Callable or hint is collections.abc.Callable:
        return _makes(target, collections.abc.Callable)
    if origin is not None or not inspect.isclass(hint):
        return True
    if not inspect.isclass(target):
        return _makes(target, hint)
    if hint in (int, float, bool, str):
        return False
    # issubclass rather than a look at the bases: classes of collections.abc check for methods.
    return issubclass(target, hint)


def _makes(target, kind) -> bool:
    """Return False if a class or a function is known to make something else than `kind` when it is called.

    A function of the user need not say what it returns.
    """
    if not inspect.isclass(kind):
        return True
    result = target if inspect.isclass(target) else _hints(target).get("return", Any)
    result = typing.get_origin(result) or result
    if result is Any:  # a class too, since Python 3.11
        return _is_of_user(target, kind)
    return inspect.isclass(result) and issubclass(result, kind)


def _is_of_user(target, kind) -> bool:
    """Return False if both a callable and what it is to make are classes or functions of this library or of Keras."""
    return not all(getattr(part, "__module__", "").split(".")[0] in ("tfrobust", "keras") for part in (target, kind))


def described(parameter: Parameter) -> str:
    """Describe the values a parameter takes, in words: "an int", "a float or None", "one of 'linf', 'l2'"."""
    hint = parameter.hint
    if hint is Any:
        hint = _hint_of_default(parameter.default)
    return _described(hint)


def _described(hint) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_described(option) for option in arguments))
    if origin is typing.Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if hint is None or hint is type(None):
        return "None"
    if origin is type or hint is type:
        kind = arguments[0].__name__ if arguments and inspect.isclass(arguments[0]) else ""
        return f"a class {kind}, written @Name without brackets".replace("  ", " ")
    if collections.abc.Callable in (origin, hint) or hint is typing.Callable:
        return "a function or class, written @Name without brackets"
    if origin in (tuple, list) and arguments:
        inner = [item for item in arguments if item is not Ellipsis]
        kinds = " and ".join(dict.fromkeys(_described(item) for item in inner))
        count = f"{len(arguments)} values, each " if len(set(arguments)) == 1 < len(arguments) else ""
        return f"a {origin.__name__} of {count}{kinds}"
    name = getattr(origin or hint, "__name__", str(hint))
    if hint in (int, float, bool, str, tuple, list, dict) or origin is not None:
        return f"{'an' if name == 'int' else 'a'} {name}"
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}, written @Name()"
