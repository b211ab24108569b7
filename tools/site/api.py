"""Write the pages of the API and of the commands as reStructuredText, from the facade and the commands' parsers."""

import argparse
import importlib
import inspect
import re
import sys
import types
import typing

import make_facade
from docstrings import escaped, public_name

_FACADE = "tfrobust.keras"


def publish_names() -> None:
    """Let Sphinx import the facade as users name it, after `from tfrobust import keras as robust`."""
    facade = importlib.import_module(_FACADE)
    sys.modules["robust"] = facade
    for name, module in _modules(facade).items():
        sys.modules[f"robust.{name}"] = module
        sys.modules |= {f"robust.{name}.{inner}": item for inner, item in _modules(module).items()}


def _modules(module: types.ModuleType) -> dict[str, types.ModuleType]:
    return {name: item for name in module.__all__ if inspect.ismodule(item := getattr(module, name))}


def pages() -> dict[str, str]:
    """Return document name -> text: the areas of the facade, their objects, what gin files configure, the commands."""
    facade = importlib.import_module(_FACADE)
    areas = _modules(facade)
    top = {name: getattr(facade, name) for name in facade.__all__ if name not in areas}
    texts = {f"api/{name}": _object_page("robust", name, item) for name, item in top.items()}
    for name, module in areas.items():
        texts |= _area_pages(name, module, areas)
    texts["api/index"] = _index(top, areas)
    texts["api/run"] = _run_page()
    texts["commands"] = _commands()
    return texts


def names(texts: dict[str, str]) -> set[str]:
    """Return the dotted names that have a page, such as robust.attacks.PGD and robust.attacks."""
    return {name.replace("api/", "robust.").replace("/", ".") for name in texts if name.startswith("api/")}


# ---------------------------------------------------------------------------------------------------- areas


def _area_pages(area: str, module: types.ModuleType, areas: dict) -> dict[str, str]:
    items = {name: getattr(module, name) for name in module.__all__}
    homes = {name: _home(area, item, areas) for name, item in items.items()}
    at_home = [name for name, home in homes.items() if home == area]
    texts = {f"api/{area}/{name}": _object_page(f"robust.{area}", name, items[name]) for name in at_home}
    summary = [f"   {name if home == area else f'~robust.{home}.{name}'}" for name, home in homes.items()]
    parts = [
        *_title(f"robust.{area}"),
        f".. automodule:: robust.{area}",
        "   :no-members:",
        "",
        ".. autosummary::",
        "   :nosignatures:",
        "",
        *summary,
        "",
        *_toctree([f"{area}/{name}" for name in at_home]),
    ]
    return texts | {f"api/{area}": "\n".join(parts)}


def _home(area: str, item, areas: dict) -> str:
    """Return the area whose page describes an object: the one to which the facade's tool assigns its module."""
    module = getattr(item, "__module__", item.__name__).removeprefix("tfrobust.")
    homes = [name for name, rules in make_facade.AREAS.items() if make_facade.within(module, rules.places)]
    offering = [name for name in homes if item in (getattr(areas[name], inner) for inner in areas[name].__all__)]
    return (offering or [area])[0]


def _index(top: dict, areas: dict) -> str:
    lines = [
        *_title("API"),
        "In Python: ``from tfrobust import keras as robust``. In gin: by the last name.",
        "",
        ".. list-table::",
        "",
    ]
    for name, module in areas.items():
        first = inspect.getdoc(module).partition("\n")[0]
        lines += [f"   * - :doc:`robust.{name} <{name}>`", f"     - {first}"]
    lines += ["", ".. currentmodule:: robust", "", ".. autosummary::", "   :nosignatures:", ""]
    lines += [f"   {name}" for name in top]
    return "\n".join([*lines, "", *_toctree([*top, *areas, "run"])])


# -------------------------------------------------------------------------------------------------- objects


def _object_page(module: str, name: str, item) -> str:
    lines = [*_title(name), f".. currentmodule:: {module}", ""]
    if inspect.ismodule(item):
        return "\n".join([*lines, f".. automodule:: {module}.{name}", "   :members:", ""])
    if not inspect.isclass(item):
        return "\n".join([*lines, f".. autofunction:: {name}", ""])
    lines.append(f".. autoclass:: {name}")
    if any(map(public_name, item.__bases__)):
        lines.append("   :show-inheritance:")
    if members := _members(item):
        lines.append(f"   :members: {', '.join(members)}")
    return "\n".join([*lines, ""])


def _members(item: type) -> list[str]:
    """Return the documented methods and properties of a class that override none of its bases."""
    inherited = {name for base in item.__mro__[1:] for name in vars(base)}
    functions = {
        name: getattr(member, "__func__", getattr(member, "fget", member)) for name, member in vars(item).items()
    }
    return [
        name
        for name, function in functions.items()
        if name[0] != "_" and name not in inherited and inspect.isfunction(function) and function.__doc__
    ]


def _run_page() -> str:
    """Return the page of the functions that gin files configure, and of their arguments' classes outside the facade."""
    from tfrobust.runs import experiment

    functions = (experiment.train, experiment.evaluate)
    hints = [
        hint for function in functions for name, hint in typing.get_type_hints(function).items() if name != "return"
    ]
    classes = {item for hint in hints for item in (hint, *typing.get_args(hint)) if inspect.isclass(item)}
    classes = [item for item in classes if item.__module__.startswith("tfrobust.") and not public_name(item)]
    lines = [
        *_title("A run, in gin"),
        "The two functions that the commands call and gin files configure, as in ``train.epochs = 5``, and the classes",
        "of their arguments, as in ``@Gate()``, that no other page has.",
        "",
    ]
    lines += [f".. autofunction:: {item.__module__}.{item.__name__}\n" for item in functions]
    for item in sorted(classes, key=lambda item: item.__name__):
        lines += [f".. autoclass:: {item.__module__}.{item.__name__}", ""]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------- commands


def _commands() -> str:
    from tfrobust.commands.__main__ import COMMANDS, module

    lines = [*_title("Commands"), "``tfrobust COMMAND`` and ``python -m tfrobust COMMAND`` are the same.", ""]
    for name in COMMANDS:
        lines += [*_title(name, "-"), *_options(f"tfrobust {name}", module(name).parser())]
    return "\n".join(lines)


def _options(program: str, parser) -> list[str]:
    lines = [escaped(parser.description or ""), "", f".. program:: {program}", ""]
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help != argparse.SUPPRESS and action.dest != "help":
            text = " ".join(formatter._expand_help(action).split()) if action.help else ""
            meaning = escaped(re.sub(r"(?<!`)--\w+(=\S+\w\"?)?", r"`\g<0>`", text))
            lines += [f".. option:: {formatter._format_action_invocation(action)}", "", f"   {meaning}", ""]
    return lines


def _title(text: str, line: str = "=") -> list[str]:
    return [text, line * len(text), ""]


def _toctree(names: list[str]) -> list[str]:
    return [".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names), ""]
