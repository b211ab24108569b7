"""The gin configuration of a command, and the call of what it configures.

TensorFlow is imported after the flags and the gin files have been read, so that `--help` and most errors appear at
once.
"""

import argparse
import importlib
from collections.abc import Sequence

from tfrobust.commands.configuration import binding, files, pipe, printing, registry
from tfrobust.commands.configuration.check_values import missing_arguments
from tfrobust.commands.configuration.resolution import Configuration
from tfrobust.common import outside
from tfrobust.common.console import quiet_stderr
from tfrobust.errors import InputError

_configuration = Configuration([], registry.Registry({}))


def prepare(flags: argparse.Namespace, command: str, own_data: str = "", reported=()) -> None:
    """Read, check and bind the gin configuration that the flags name.

    `flags` has `gin_file`, `gin_param` and `gin_import`; the other arguments are those of `configure`.
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

    NAME is by default the stems of the files, joined by `_`. The arguments are those of `pipe.read`, and `imports`, the
    values of --gin_import. With a `command`, its run must read every knob that is set. A `partial` configuration is
    checked and not bound.

    Raises:
        InputError: any mistake in it.
    """
    global _configuration
    command_and_part = {"command": command, "partial": partial}
    bindings, usual = pipe.read(
        paths, params, defaults=defaults, own_data=own_data, reported=reported, **command_and_part
    )
    with quiet_stderr():
        importlib.import_module("keras")
        # Makes TensorFlow log a missing GPU here, where it is held back.
        importlib.import_module("tensorflow").config.list_physical_devices()
    objects = registry.collect(imports)
    importlib.import_module("tfrobust.data.description").trust(imports)
    _configuration = pipe.checked(bindings, objects, defaults=usual, **command_and_part)
    if not partial:
        binding.bind(_configuration)


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

    complete = f"{registry.ROOTS}.{name}"
    binding.register(complete, _configuration.registry)
    bound = set(gin.get_bindings(complete, resolve_references=False))
    for argument in sorted(bound & set(runtime)):
        raise InputError(f"experiment.{name}.{argument} is set by the command's flags, not in gin.")
    missing_arguments(complete, bound | set(runtime), _configuration.registry)
    with outside.downloads(allow_downloads):
        return gin.get_configurable(complete)(**runtime)


def outside_lines() -> list[str]:
    """Return the files and downloads that the configuration names."""
    return printing.outside(_configuration)


def evaluators_text(members: Sequence[int]) -> str:
    """Return the list EVALUATORS of the configuration as gin text, reduced to these positions.

    A run appends its reference to the list. Its position, behind the last one, has no text.
    """
    bindings, objects = _configuration.bindings, _configuration.registry
    values = [item.value for item in bindings if item.macro == "EVALUATORS" and isinstance(item.value, (list, tuple))]
    if not values:
        return "[...]"
    return printing.text([value for position, value in enumerate(values[-1]) if position in members], objects)


def operative_text() -> str:
    """Return the arguments that the objects built so far received, including defaults, as gin text."""
    import gin

    return gin.operative_config_str(max_line_length=100)


def differing_text() -> str:
    """Return the settings that differ from the objects' own defaults and from `pipe.DEFAULT_FILES`, as gin text."""
    defaults = files.read(pipe.DEFAULT_FILES, (), pipe.KNOBS_FILE)
    return "\n".join(["# What differs from the defaults:", *printing.differences(_configuration, defaults), ""])
