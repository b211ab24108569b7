"""The last stage: gin takes the checked configuration over, and builds objects from it."""

import inspect

from tfrobust.commands.configuration import radius
from tfrobust.commands.configuration.registry import Registry
from tfrobust.commands.configuration.resolution import Configuration
from tfrobust.commands.configuration.statements import Macro, Reference
from tfrobust.errors import InputError


def bind(configuration: Configuration) -> None:
    """Make this the process's gin configuration, and lock it."""
    import gin

    gin.clear_config()
    names = {item.selector for item in (*configuration.references, *configuration.arguments.values())}
    for name in sorted(names):
        register(name, configuration.registry)
    for binding in configuration.bindings:
        key = (binding.macro, "gin.macro", "value")
        if binding.macro is None:
            key = (binding.scope, binding.selector, binding.argument)
        value = None if radius.is_open(binding) else binding.value  # nothing needs it
        gin.bind_parameter(key, _for_gin(value, configuration.registry))
    gin.finalize()


def register(name: str, registry: Registry) -> None:
    """Register an object with gin, and all objects with the same last name, so that gin prints unambiguous names."""
    import gin

    # Interactive mode allows registering a name again: names are unique within a registry, but a later registry of the
    # same process may hold other objects.
    with gin.unlock_config(), gin.config.interactive_mode():
        for complete in registry.same_name(name):
            module, _, last = complete.rpartition(".")
            gin.register(last, module=module)(_reporting(registry.objects[complete]))


def _reporting(target):
    """Return a class that constructs `target` and raises the constructor's ValueError or TypeError as InputError.

    Classes check the arguments that a configuration gives them, and those of Keras and of users know no InputError.
    Functions are returned unchanged.
    """
    if not inspect.isclass(target):
        return target

    def construct(_, *args, **kwargs):
        try:
            return target(*args, **kwargs)
        except InputError:
            raise
        except (ValueError, TypeError) as error:
            raise InputError(str(error)) from error

    # As gin itself does: a subclass, so that `issubclass` holds, whose metaclass returns instances of the original.
    kind = type(target)
    names = {name: getattr(target, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(kind)(kind.__name__, (kind,), {"__call__": construct})(target.__name__, (target,), names)


def _for_gin(value, registry: Registry):
    """Return a value as gin keeps it; references get the names that gin prints, which files that move do not change."""
    from gin import config

    if isinstance(value, Macro):
        return config.ParserDelegate().macro(value.name)
    if isinstance(value, Reference):
        scope = f"{value.scope}/" if value.scope else ""
        return config.ConfigurableReference(scope + registry.short(value.selector), value.called)
    if isinstance(value, dict):
        return {_for_gin(key, registry): _for_gin(item, registry) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_for_gin(item, registry) for item in value)
    return value
