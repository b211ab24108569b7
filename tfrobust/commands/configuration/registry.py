"""The objects a gin file can name: tfrobust's, and Keras's optimizers, schedules, initializers and regularizers.

They are found by walking the package, so that a new method needs one new file and no list. A gin file causes no import:
a name that is not in this table does not resolve.
"""

import dis
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any

import tfrobust
from tfrobust.commands.configuration.parameters import parameters
from tfrobust.commands.configuration.statements import shown
from tfrobust.common.nearest import nearest
from tfrobust.errors import InputError

# Not offered: the layer above configuration, which is the commands and the modules that only they use.
_COMMANDS = {"train", "evaluate", "export", "compare", "query", "commands", "gin_files", "errors"}
# Layers whose functions are not offered: a configuration builds objects, but must not read, write, publish or
# deserialize files through functions of the library.
_NO_FUNCTIONS = (
    *("saving", "serving", "report", "evaluation", "training", "data", "ops", "corruptions", "models"),
    *("runs", "adapters", "security", "common"),
)
# Layers of which only classes with `get_config` are offered.
_CONFIGURED_ONLY = ("saving", "serving", "report", "ops", "adapters", "security", "common")
# Arguments of objects that write files; a configuration does not choose where.
_WRITTEN_TO = {"directory", "checkpoint_directory"}
# What the commands train and evaluate call.
ROOTS = "tfrobust.runs.experiment"
_KERAS = ("optimizers", "optimizers.schedules", "initializers", "regularizers")


class Registry:
    """Complete name -> object, looked up by any unambiguous suffix of the name."""

    def __init__(self, objects: dict[str, Any]):
        self.objects = objects
        self._by_name: dict[str, list[str]] = {}
        for complete in objects:
            self._by_name.setdefault(complete.rpartition(".")[2], []).append(complete)

    def resolve(self, selector: str, origin: str) -> str:
        """Return the complete name of `ASCL`, `ascl.ASCL`, `methods.ascl.ASCL`, ...

        If several match, the roots in tfrobust.runs.experiment come first, and Keras's objects last.

        Raises:
            InputError: the name is unknown (with the nearest names) or ambiguous (with all of them).
        """
        if selector in self.objects:
            return selector
        matches = [name for name in self.same_name(selector) if name.endswith("." + selector)]
        roots = [name for name in matches if name.startswith(f"{ROOTS}.")]
        outside_keras = [name for name in matches if not name.startswith("keras.")]
        matches = roots or outside_keras or matches
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise InputError(
                f"{origin}: {shown(selector)} is ambiguous: {', '.join(sorted(matches))}; write more of the name."
            )
        near = ", ".join(map(self.short, self.same_name(selector)))  # its module was renamed
        near = near or ", ".join(nearest(selector.rpartition(".")[2], self._by_name))
        hint = f"nearest: {near}" if near else "import a module of your own by --gin_import=pkg.mod"
        raise InputError(f"{origin}: there is no {shown(selector)}; {hint}")

    def short(self, complete: str) -> str:
        """Return the shortest end of a complete name that names no other object."""
        namesakes = [name for name in self.same_name(complete) if name != complete]
        parts = complete.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts)))
        return next((end for end in ends if not any(f".{name}".endswith(f".{end}") for name in namesakes)), complete)

    def same_name(self, selector: str) -> list[str]:
        """Return the complete names with the same last part."""
        return self._by_name.get(selector.rpartition(".")[2], [])


def collect(imports: list[str] | tuple = ()) -> Registry:
    """Collect everything public in tfrobust by name, then Keras's parts, then the user's modules.

    Raises:
        InputError: a user's module cannot be imported.
    """
    objects: dict[str, Any] = {}
    for module in _walk():
        for name, item in _public(module, module.__name__).items():
            if _offered(item, module.__name__):
                objects[f"{module.__name__}.{name}"] = item
    objects.update(_keras_parts())
    for path in imports:
        objects.update({f"{path}.{name}": item for name, item in _public(_import(path), path).items()})
    return Registry(objects)


def _offered(item, module: str) -> bool:
    layer = module.split(".")[1]
    if inspect.isfunction(item):
        return module == ROOTS or layer not in _NO_FUNCTIONS
    if layer in _CONFIGURED_ONLY and not hasattr(item, "get_config"):
        return False
    return not _WRITTEN_TO.intersection(parameters(item))


def _walk():
    for entry in pkgutil.iter_modules(tfrobust.__path__, "tfrobust."):
        top = entry.name.split(".")[1]
        if top in _COMMANDS or top.startswith("_"):
            continue
        module = importlib.import_module(entry.name)
        yield module
        if entry.ispkg:
            for inner in pkgutil.walk_packages(module.__path__, entry.name + "."):
                if not any(part.startswith("_") for part in inner.name.split(".")):
                    yield importlib.import_module(inner.name)


def missing_methods(cls: type) -> list[str]:
    """Return the methods that a base class leaves to its subclasses; [] for a class that can be used itself.

    These are methods that only raise NotImplementedError, and that a subclass overrides.
    """
    methods = []
    for name in dir(cls):
        if _only_raises(inspect.getattr_static(cls, name)) and any(
            not _only_raises(inspect.getattr_static(subclass, name)) for subclass in _subclasses(cls)
        ):
            methods.append(name)
    return methods


def _only_raises(method) -> bool:
    code = getattr(method, "__code__", None)
    if code is None or "NotImplementedError" not in code.co_names:
        return False
    if method.__name__.startswith("_") and not method.__module__.startswith("tfrobust."):
        return method.__name__ == "__call__"
    return not any(step.opname.startswith(("RETURN", "YIELD")) for step in dis.get_instructions(code))


def _subclasses(cls: type) -> Iterator[type]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _public(module, prefix: str) -> dict[str, Any]:
    """Return the classes and functions that a module itself defines, by name."""
    members = {}
    for name, item in vars(module).items():
        if name.startswith("_") or not (inspect.isclass(item) or inspect.isfunction(item)):
            continue
        if inspect.isclass(item) and issubclass(item, BaseException):
            continue
        if item.__module__ == prefix and item.__name__ == name:
            members[name] = item
    return members


def _keras_parts() -> dict[str, Any]:
    import keras

    classes = {}
    for path in _KERAS:
        module = keras
        for part in path.split("."):
            module = getattr(module, part)
        for item in vars(module).values():
            if inspect.isclass(item) and not item.__name__.startswith("_"):
                classes[f"keras.{path}.{item.__name__}"] = item
    return classes


def _import(path: str):
    if os.getcwd() not in sys.path:  # the program `tfrobust` lacks it, unlike python -m; last, so that it hides nothing
        sys.path.append(os.getcwd())
    import gin

    try:
        with gin.unlock_config():  # a module may have configurables of gin's, and an earlier configuration locked gin
            return importlib.import_module(path)
    except Exception as error:  # whatever a user's module raises while it is imported
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"--gin_import={shown(path, 80, quote=False)}: {shown(reason, 150, quote=False)}") from error
