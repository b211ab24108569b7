"""The variables of a model that are published."""

from tfrobust.methods.shared.method import Method


def deployable_variables(model) -> list:
    """Return the variables of a method's encoder and head, or all variables of any other model."""
    if isinstance(model, Method):
        return [*model.encoder.variables, *model.head.variables]
    return list(model.variables)
