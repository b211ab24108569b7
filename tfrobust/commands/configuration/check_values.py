"""Check of the arguments' values against annotations, and that nothing required is missing."""

from tfrobust.commands.configuration.knobs import KNOBS, LARGEST_WHOLE
from tfrobust.commands.configuration.parameters import described, fits, parameters
from tfrobust.commands.configuration.registry import Registry
from tfrobust.commands.configuration.resolution import Configuration
from tfrobust.commands.configuration.statements import REQUIRED, Binding, Macro, walk, written
from tfrobust.errors import InputError


def check_values(configuration: Configuration, partial: bool = False) -> None:
    """Check the value of each argument in force.

    Args:
        configuration: resolved.
        partial: True if what it lacks may come from other files.

    Raises:
        InputError: the first mistake.
    """
    for binding in configuration.arguments.values():
        _check_value(binding, configuration, partial)
    if not partial:
        _check_required(configuration)


def _check_value(binding: Binding, configuration: Configuration, partial: bool) -> None:
    value, macros, objects = configuration.substitute(binding), configuration.macros, configuration.registry.objects
    short = f"{binding.selector.rpartition('.')[2]}.{binding.argument}"
    origin = binding.origin
    if isinstance(binding.value, Macro) and binding.value.name in macros:
        origin = macros[binding.value.name].origin
        short += f" (%{binding.value.name})"
    parameter = parameters(objects[binding.selector])[binding.argument]

    def accepts(value) -> bool:
        return fits(value, parameter, lambda reference: objects[reference.selector])

    # A knob with the default None must be set by a later file, like a macro set to %gin.REQUIRED, where it is no value.
    is_knob = isinstance(binding.value, Macro) and binding.value.name in KNOBS
    unset = value is None and is_knob and not accepts(None)
    if unset or any(isinstance(item, Macro) for item in walk(value)):
        if partial:
            return
        raise InputError(f'{binding.origin}: {short} must be set; add --gin_param="{_setter(binding)}=..."')
    for item in walk(value):
        if isinstance(item, int) and abs(item) > LARGEST_WHOLE:
            raise InputError(f"{origin}: {short} has {written(item)}; whole numbers must be at most {LARGEST_WHOLE}")
    if not accepts(value):
        raise InputError(f"{origin}: {short} must be {described(parameter)}, not {written(value)}")


def _setter(binding: Binding) -> str:
    if isinstance(binding.value, Macro) and binding.value.name != REQUIRED:
        return binding.value.name
    return f"{binding.selector.rpartition('.')[2]}.{binding.argument}"


def _check_required(configuration: Configuration) -> None:
    arguments: dict[str, set[str]] = {}
    for _, selector, argument in configuration.arguments:
        arguments.setdefault(selector, set()).add(argument)
    for reference in configuration.references:
        if reference.called:
            missing_arguments(reference.selector, arguments.get(reference.selector, set()), configuration.registry)


def missing_arguments(selector: str, arguments: set[str], registry: Registry) -> None:
    """Raise InputError if an object that is called without arguments lacks a required one."""
    missing = [
        p.name for p in parameters(registry.objects[selector]).values() if p.required and p.name not in arguments
    ]
    if missing:
        short = selector.rpartition(".")[2]
        raise InputError(
            f"{short} needs {', '.join(missing)}; set it in a gin file, such as {short}.{missing[0]} = ..."
        )
