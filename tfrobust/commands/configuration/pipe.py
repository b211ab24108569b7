"""The way of a setting, such as EPSILON, from a file or a flag to gin: each stage takes what the one before it returns.

    --gin_file, --gin_param
            |
    read    files         text -> list[Binding]            finds and includes files, parses, imports nothing
            |             check_macros                     macros set and used; knobs in range: knobs, radius
            |             ---- TensorFlow is imported here, so that most mistakes appear at once ----
    resolve resolution    list[Binding] -> Configuration   complete names of objects (registry), known arguments
            |
    check   check_use     nothing is set in vain           what a run reads: reach
            |  check_values  values fit their annotations     parameters; nothing required is missing
            |
    bind    binding       Configuration -> gin             gin builds objects when `commands.run.call` runs
            |
            +- printing   Configuration -> text            differences from the defaults; files and downloads

All stages share the plain values of `statements` and the replacement of `macros`. None imports a later one.
"""

from tfrobust.commands.configuration import check_macros, files, knobs, radius
from tfrobust.commands.configuration.check_use import check_knobs_read, check_use
from tfrobust.commands.configuration.check_values import check_values
from tfrobust.commands.configuration.registry import Registry
from tfrobust.commands.configuration.resolution import Configuration, resolve
from tfrobust.commands.configuration.statements import Binding

KNOBS_FILE = "base/knobs.gin"
# What a run has without further files: a dry run shows what differs.
DEFAULT_FILES = ["gin/base/train.gin", "gin/base/digits.gin"]


def read(
    paths: list[str],
    params=(),
    *,
    command: str = "",
    partial: bool = False,
    defaults: bool = True,
    own_data: str = "",
    reported=(),
) -> tuple[list[Binding], list[Binding]]:
    """Read files and flags, and check the macros in them; import no TensorFlow.

    Args:
        paths: the values of --gin_file.
        params: the values of --gin_param.
        command: "train" or "evaluate", whose recipe may set another threat model; "" for none.
        partial: True if the files are only a part of a configuration.
        defaults: True to read the knobs' defaults first.
        own_data: the flag that names data for which the default of EPSILON means nothing; "" if none does.
        reported: "EPSILON=0.1" and the like from the report of a model, in place of the knobs' defaults.

    Returns:
        All bindings, in order; and those that count as defaults.

    Raises:
        InputError: the first mistake.
    """
    usual = files.read([], (), KNOBS_FILE if defaults else None) + files.read([], reported)
    bindings = list(usual)
    bindings += [radius.without_default(own_data)] if own_data else []
    bindings += files.read(paths, params)
    name = knobs.default_name(bindings, paths)
    bindings += [name] if name else []
    seed = knobs.unset_seed(bindings, usual) if command == "evaluate" else None
    difference = radius.intended_difference(bindings, usual, command) if command else None
    bindings = [*([difference] if difference else []), *bindings, *([seed] if seed else [])]
    check_macros.check_macros(bindings, partial)
    return bindings, [*usual, *([name] if name else [])]


def checked(
    bindings: list[Binding], registry: Registry, partial: bool = False, command: str = "", defaults=()
) -> Configuration:
    """Resolve and check what was read.

    Args:
        bindings: from `read`.
        registry: the objects that may be named.
        partial: as for `read`.
        command: "train" or "evaluate", whose run must read every knob that is set; "" does not check that.
        defaults: from `read`.

    Raises:
        InputError: the first mistake.
    """
    configuration = resolve(bindings, registry)
    if not partial:
        check_use(configuration)
    check_values(configuration, partial)
    if command:
        check_knobs_read(configuration, command, list(defaults))
    return configuration
