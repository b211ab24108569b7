"""Check how a functional model of Keras calls its layers: the operands of each call, and their order."""

from __future__ import annotations

import keras

from tfrobust.security import keras_names as names
from tfrobust.security import keras_values as values


def first_call(layer: dict) -> int:
    """Return the calls that a layer has from the start: one of an input, and of a nested functional model."""
    role = names.CLASSES.get(layer.get("module"), ("",))[0]
    return int(role != names.LAYER or layer["class_name"] == "InputLayer")


def require_order(waiting: dict[str, list], calls_made: dict[str, int], where: str) -> None:
    """Simulate the loop in which Keras calls the layers, whose rounds are bounded."""
    attempts, most = 0, 20 * sum(map(len, waiting.values())) + 1000
    waiting = {name: nodes for name, nodes in waiting.items() if nodes}
    while waiting:
        before = sum(map(len, waiting.values()))
        for name in list(waiting):
            nodes = waiting[name]
            while nodes and all(calls_made[source] > number for source, number in nodes[0]):
                nodes.pop(0)
                calls_made[name] += 1
                attempts += 1
            attempts += 1
            if not nodes:
                del waiting[name]
        if sum(map(len, waiting.values())) == before:
            raise values.Refused(f"{where} has a loop, or a layer that nothing reaches")
        if attempts > most:
            raise values.Refused(f"{where} has layers that are out of order")


def tensors_of_call(node, layers: dict, where: str) -> list[tuple[str, int]]:
    """Check the operands of one call; return the tensors among them, as (layer, number of its call)."""
    if not isinstance(node, dict) or set(node) != {"args", "kwargs"}:
        raise values.Refused(f"{where} has {values.shown(node)} as a call")
    if not isinstance(node["args"], list) or not isinstance(node["kwargs"], dict):
        raise values.Refused(f"{where} has {values.shown(node)} as a call")
    tensors: list[tuple[str, int]] = []
    for key, value in node["kwargs"].items():
        if not key.isidentifier():
            raise values.Refused(f"{where} is called with {values.shown(key)}")
        _operand(value, layers, tensors, where, 0)
    _operand(node["args"], layers, tensors, where, 0)
    if not tensors:
        # Keras would run the operation at once.
        raise values.Refused(f"{where} is called without a tensor")
    return tensors


def _operand(value, layers: dict, tensors: list, where: str, depth: int) -> None:
    if depth > 8:
        raise values.Refused(f"{where} is called with values that are nested more than 8 deep")
    if isinstance(value, list):
        for item in value:
            _operand(item, layers, tensors, where, depth + 1)
    elif values.is_object(value) and value["class_name"] == "__keras_tensor__":
        tensors.append(_tensor(value, layers, where))
    elif values.is_object(value) and value["class_name"] == "__slice__" and isinstance(value["config"], dict):
        for item in value["config"].values():
            _operand(item, layers, tensors, where, depth + 1)
    elif values.is_object(value) and values.listed(value["class_name"], values.LEAVES):
        values.LEAVES[value["class_name"]](value, where)
    elif isinstance(value, dict) and not values.is_object(value):
        for key, item in value.items():
            if keras.saving.get_registered_object(key) is not None or not names.OWN_WORD.fullmatch(key):
                raise values.Refused(f"{where} is called with {values.shown(key)}")
            _operand(item, layers, tensors, where, depth + 1)
    elif isinstance(value, str) and value not in names.DTYPES:
        raise values.Refused(f"{where} is called with {values.shown(value)}, not a tensor or a number")
    elif isinstance(value, dict):
        name = values.full_name(value.get("module"), value["class_name"])
        raise values.Refused(f"{where} is called with {values.shown(name)}, no tensor")
    elif not isinstance(value, str):
        values.check_number(value, where)


def _tensor(value, layers: dict, where: str) -> tuple[str, int]:
    config = value["config"]
    history = config.get("keras_history") if isinstance(config, dict) else None
    if not isinstance(history, list) or len(history) != 3 or not isinstance(history[0], str):
        raise values.Refused(f"{where} is called with a tensor of no layer")
    if history[0] not in layers or any(type(number) is not int or number < 0 for number in history[1:]):
        raise values.Refused(f"{where} is called with a tensor of {values.shown(history[0])}, no layer of its model")
    values.check_shapes(config.get("shape"), where)
    if not values.listed(config.get("dtype"), names.DTYPES):
        raise values.Refused(f"{where} is called with a tensor of {values.shown(config.get('dtype'))}")
    return history[0], history[1]


def check_ends(value, layers: dict, where: str, depth: int = 0) -> None:
    """Check the inputs or outputs of a functional model: [layer, call, tensor] in lists and dicts."""
    if depth > 8:
        raise values.Refused(f"{where} is nested more than 8 deep")
    if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
        if value[0] not in layers or any(type(number) is not int or number < 0 for number in value[1:]):
            raise values.Refused(f"{where} names {values.shown(value)}, no tensor of its model")
    elif isinstance(value, list):
        for item in value:
            check_ends(item, layers, where, depth + 1)
    elif isinstance(value, dict):
        for item in value.values():
            check_ends(item, layers, where, depth + 1)
    else:
        raise values.Refused(f"{where} holds {values.shown(value)}")
