"""The gin configuration of a command, and the call of what it configures.

TensorFlow is imported after the flags and the gin files have been read, so that `--help` and most errors appear at
once.
"""

import argparse
import importlib
from collections.abc import Sequence

from tfrobust.commands.configuration import binding, files, registry
from tfrobust.common import outside
from tfrobust.common.console import quiet_stderr
from tfrobust.errors import InputError

KNOBS_FILE = "base/knobs.gin"
# What a run has without further files: a dry run shows what differs.
DEFAULT_FILES = ["gin/base/train.gin", "gin/base/digits.gin"]

_registry: registry.Registry | None = None
_bindings: list[files.Binding] = []


def prepare(flags: argparse.Namespace, command: str, own_data: str = "", reported=()) -> None:
    """Read, check and bind the gin configuration that the flags name.

    Args:
        flags: with `gin_file`, `gin_param`, `gin_import`.
        command: as in `configure`.
        own_data: as in `configure`.
        reported: as in `configure`.

    Raises:
        InputError: any mistake in it.
    """
    named = flags.gin_file, flags.gin_param, flags.gin_import
    configure(*named, command=command, own_data=own_data, reported=reported)


def configure(
    paths: list[str],
    params=(),
    imports=(),
    *,
    command: str = "",
    partial: bool = False,
    defaults: bool = True,
    own_data: str = "",
    reported=(),
) -> None:
    """Read, check and bind the gin configuration of lists of files and parameters.

    NAME is by default the stems of the files, joined by `_`.

    Args:
        paths: the values of --gin_file.
        params: the values of --gin_param.
        imports: the values of --gin_import.
        command: "train" or "evaluate", whose run must read every knob that is set; "" does not check that.
        partial: True if the files are only a part of a configuration: they are checked, not bound, and what they lack
            may come from others.
        defaults: True to read the knobs' defaults first.
        own_data: the flag that names data for which the default of EPSILON means nothing; "" if none does.
        reported: "EPSILON=0.1" and the like from the report of a model, in place of the knobs' defaults.

    Raises:
        InputError: any mistake in it.
    """
    global _registry, _bindings
    bindings = files.read([], (), KNOBS_FILE if defaults else None)
    bindings += files.read([], reported)
    knobs = list(bindings)
    bindings += [binding.required("EPSILON", own_data)] if own_data else []
    bindings += files.read(paths, params)
    name = binding.unnamed(bindings, paths)
    bindings += [name] if name else []
    difference = binding.intended_difference(bindings, knobs, command) if command else None
    bindings = [*([difference] if difference else []), *bindings]
    macros = binding.check_macros(bindings, partial)
    with quiet_stderr():
        importlib.import_module("keras")
        # Makes TensorFlow log a missing GPU here, where it is held back.
        importlib.import_module("tensorflow").config.list_physical_devices()
    _registry = registry.collect(imports)
    importlib.import_module("tfrobust.data.description").trust(imports)
    resolved = binding.check_objects(bindings, macros, _registry, partial)
    _bindings = resolved.bindings
    if command:
        binding.check_knobs_read(resolved, command, [*knobs, *([name] if name else [])])
    if not partial:
        binding.bind(resolved, _registry)


def call(name: str, *, allow_downloads: bool, **runtime):
    """Call `tfrobust.runs.experiment.<name>` with its gin bindings and the flags' arguments.

    Args:
        name: function of `tfrobust.runs.experiment`.
        allow_downloads: False: an object of the configuration that begins a download raises InputError.
        **runtime: arguments that come from flags; a gin file cannot set them.

    Raises:
        InputError: an argument is missing, or gin sets one that belongs to a flag.
    """
    import gin

    complete = f"tfrobust.runs.experiment.{name}"
    binding.register(complete, _registry)
    bound = set(gin.get_bindings(complete, resolve_references=False))
    for argument in sorted(bound & set(runtime)):
        raise InputError(f"experiment.{name}.{argument} is set by the command's flags, not in gin.")
    binding.missing_arguments(complete, bound | set(runtime), _registry)
    with outside.downloads(allow_downloads):
        return gin.get_configurable(complete)(**runtime)


def outside_lines() -> list[str]:
    """Return the files and downloads that the configuration names."""
    return binding.outside(_bindings, _registry)


def evaluators_text(members: Sequence[int]) -> str:
    """Return the list EVALUATORS of the configuration as gin text, reduced to these positions."""
    values = [item.value for item in _bindings if item.macro == "EVALUATORS" and isinstance(item.value, (list, tuple))]
    return binding.text([values[-1][position] for position in members], _registry) if values else "[...]"


def operative_text() -> str:
    """Return the arguments that the objects built so far received, including defaults, as gin text."""
    import gin

    return gin.operative_config_str(max_line_length=100)


def differing_text() -> str:
    """Return the settings that differ from the objects' own defaults and from `DEFAULT_FILES`, as gin text."""
    defaults = files.read(DEFAULT_FILES, (), KNOBS_FILE)
    return "\n".join(["# What differs from the defaults:", *binding.differences(_bindings, defaults, _registry), ""])
