"""Read the description of a Keras object as data, before Keras builds anything from it.

Keras builds what a description names: classes that read files, download, or call other functions among them. This
reader compares every class, operation, argument and word with the lists of `security.keras_names`, and counts layers and
calls. Classes that the user's own code registers with Keras may also be named, with any plain argument.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import keras

from tfrobust.errors import InputError
from tfrobust.security import keras_names as names

_MOST_LAYERS = 2_500
_MOST_CALLS = 10_000  # of layers, those of nested models counted for each call of the model
_MOST_OBJECTS = 100_000
_DEEPEST = 60
_LARGEST_NUMBER = 2**63
_LONGEST_TEXT = 2**16  # in an argument of the user's own class
_MOST_DIMENSIONS = 32
_KEYS = frozenset(
    "module class_name config registered_name name inbound_nodes build_config compile_config shared_object_id".split()
)
_FUNCTION_KEYS = frozenset("module class_name config registered_name shared_object_id".split())
_MODEL_KEYS = {
    "Functional": frozenset("name trainable layers input_layers output_layers".split()),
    "Sequential": frozenset("name trainable dtype layers build_input_shape".split()),
}
_OURS, _HUB = "tfrobust", "keras_hub"
# Packages whose registered classes are not the user's own.
_LIBRARIES = (_OURS, _HUB, "keras", "keras_nlp", "keras_cv", "tf_keras", "tensorflow")


class _Refused(Exception):
    """A fault, as a clause about the description."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a description asks for.

    Attributes:
        layers: number of layers and operations.
        modules: modules that define its registered classes, sorted.
        own: True if it names classes of the user's own code.
    """

    layers: int
    modules: tuple[str, ...]
    own: bool


def check(description, *, largest_size: int = _LARGEST_NUMBER, compiled: bool = True) -> Contents:
    """Raise InputError if a description may not be given to Keras.

    Import what defines its registered classes before.

    Args:
        description: parsed JSON of untrusted origin: an object of Keras as `keras.saving.serialize_keras_object` writes
            it, with `class_name`, `module`, `registered_name` and `config`.
        largest_size: entries of the weights that come with it; no layer may declare a larger array.
        compiled: False if the outermost object will not be compiled, so that its optimizer, loss and metrics are not
            read.

    Returns:
        What it asks for.

    Raises:
        InputError (a ValueError): the first fault, with the place and the name, without the file's name.
    """
    reader = _Reader(largest_size)
    try:
        reader.object_of(description, "the model", compiled=compiled)
    except _Refused as fault:
        raise InputError(str(fault)[:220]) from None
    except RecursionError:
        raise InputError(f"it is nested more than {_DEEPEST} deep") from None
    return Contents(reader.layers, tuple(sorted(reader.modules)), reader.own)


@dataclasses.dataclass(frozen=True)
class _Class:
    """A class that may be named. `owner`: "keras", "tfrobust", "keras_hub" or "user"."""

    name: str
    owner: str
    role: str = ""
    is_layer: bool = False


class _Reader:
    def __init__(self, largest_size: int):
        self._largest_size = largest_size
        self._objects = 0
        self._shared: dict[int, tuple] = {}
        self.layers = 0
        self.modules: set[str] = set()
        self.own = False

    # ------------------------------------------------------------------------------------------- objects

    def object_of(self, value, where: str, roles: tuple[str, ...] = (), *, depth: int = 0, compiled: bool = True):
        """Check an object; return the number of calls of layers that one call of it makes."""
        if not _is_object(value):
            raise _Refused(f"{where} is {_shown(value)}, not a class and its config")
        self._objects += 1
        if self._objects > _MOST_OBJECTS:
            raise _Refused(f"it has more than {_MOST_OBJECTS} objects")
        if depth > _DEEPEST:
            raise _Refused(f"it is nested more than {_DEEPEST} deep")
        cls = self._class_of(value, where)
        where = f"{where} ({cls.name[:60]})"
        unknown = value.keys() - _KEYS
        if unknown:
            raise _Refused(f"{where} has an entry {_shown(sorted(unknown, key=str)[0])}")
        if roles and cls.owner == "keras" and cls.role not in roles:
            raise _Refused(f"{where} is {_article(cls.role)}, where {_article(roles[0])} belongs")
        if roles and cls.owner != "keras" and not {names.LAYER, names.MODEL} & {*roles} and cls.is_layer:
            raise _Refused(f"{where} is a layer, where {_article(roles[0])} belongs")
        self._count_layer(cls)
        calls = self._config(cls, value["config"], where, depth)
        self._texts_beside(value, where)
        _shapes(value.get("build_config"), f"{where}.build_config")
        if compiled and value.get("compile_config") is not None:
            self._compile_config(cls, value["compile_config"], f"{where}.compile_config", depth)
        return self._share(value, cls, calls, where)

    def _class_of(self, value, where: str) -> _Class:
        """Return the class that Keras would take, by the order of its own look-up."""
        name, module = value["class_name"], value.get("module")
        registered = value.get("registered_name", name)
        for text in (name, module, registered):
            if text is not None and (not isinstance(text, str) or len(text) > 200):
                raise _Refused(f"{where} has {_shown(text)} as the name of a class")
        custom = keras.saving.get_registered_object(registered) if registered else None
        if custom is not None:
            return self._registered(custom, registered, where)
        if isinstance(registered, str) and registered.startswith(f"{_HUB}>") and str(module).startswith(f"{_HUB}."):
            if registered == f"{_HUB}>{name}" and name in names.BACKBONES:
                return _Class(name, _HUB, names.MODEL, True)
        role, known = names.CLASSES.get(module, ("", ()))
        if module == "keras" and name in names.POLICIES_OF_KERAS:
            role, known = names.POLICY, (name,)
        if name not in known or registered not in (None, name):
            raise _Refused(f"{where} names {_shown(_full(module, name, registered))}, which a file may not name")
        return _Class(name, "keras", role, role in (names.LAYER, names.MODEL))

    def _registered(self, custom, registered: str, where: str) -> _Class:
        if not isinstance(custom, type):
            raise _Refused(f"{where} names the function {_shown(registered)}, where an object belongs")
        package = custom.__module__.split(".")[0]
        if package == _OURS and not custom.__module__.startswith(names.PACKAGES):
            raise _Refused(f"{where} names {_shown(registered)}, which a file may not name")
        if package == _HUB and custom.__name__ not in names.BACKBONES:
            raise _Refused(f"{where} names {_shown(registered)}, which a file may not name")
        if package in _LIBRARIES and package not in (_OURS, _HUB):
            raise _Refused(f"{where} names {_shown(registered)}, which a file may not name")
        owner = package if package in (_OURS, _HUB) else "user"
        self.own = self.own or owner == "user"
        self.modules.add(custom.__module__)
        return _Class(registered, owner, "", issubclass(custom, keras.Operation))

    def _count_layer(self, cls: _Class) -> None:
        if cls.is_layer:
            self.layers += 1
        if self.layers > _MOST_LAYERS:
            raise _Refused(f"it has more than {_MOST_LAYERS} layers")

    def _share(self, value, cls: _Class, calls: int, where: str) -> int:
        """Check an object that Keras builds once and then takes wherever its number occurs."""
        number = value.get("shared_object_id")
        if number is None:
            return calls
        if not isinstance(number, int) or isinstance(number, bool):
            raise _Refused(f"{where} has {_shown(number)} as its number")
        first, most = self._shared.setdefault(number, (cls, calls))
        if first != cls:
            raise _Refused(f"{where} shares its number with {_article(first.name)}")
        return max(most, calls)

    def _texts_beside(self, value, where: str) -> None:
        name = value.get("name")
        if name is not None and not (isinstance(name, str) and names.PATTERNS["name"].fullmatch(name)):
            raise _Refused(f"{where} has the name {_shown(name)}")

    # ------------------------------------------------------------------------------------------- configs

    def _config(self, cls: _Class, config, where: str, depth: int) -> int:
        if config is None:
            return 1
        if not isinstance(config, dict):
            raise _Refused(f"{where} has {_shown(config)} as its config")
        if cls.role == names.MODEL and cls.owner == "keras":
            return self._model(cls, config, where, depth)
        if cls.owner == "user":
            return self._free(config, where, depth)
        if cls.role == names.POLICY:
            self._policy(config, where, depth)
            return 1
        calls = 1
        for argument, value in config.items():
            if not isinstance(argument, str) or not argument.isidentifier():
                raise _Refused(f"{where} has an argument {_shown(argument)}")
            calls += self._argument(cls, argument, value, f"{where}.{argument[:40]}", depth)
        return calls

    def _argument(self, cls: _Class, name: str, value, where: str, depth: int) -> int:
        """Check the value of an argument; return the calls of the layers in it."""
        if names.OUTSIDE.fullmatch(name):
            if value not in (None, "", [], {}):
                raise _Refused(f"{where} is {_shown(value)}; a file may not name what lies outside of it")
            return 0
        if names.REPETITIONS.fullmatch(name):
            self._repetitions(value, where)
        if cls.owner == "keras" and name in names.WEIGHTED and isinstance(value, int) and value > self._largest_size:
            raise _Refused(f"{where} is {value}, more than the file has weights")
        return self._value(cls, name, value, where, depth)

    def _value(self, cls: _Class, name: str, value, where: str, depth: int) -> int:
        if isinstance(value, str):
            self._word(cls, name, value, where)
            return 0
        if isinstance(value, list):
            return sum(self._value(cls, name, item, where, depth + 1) for item in self._bounded(value, where, depth))
        if _is_object(value):
            return self._object_in(cls, name, value, where, depth)
        if isinstance(value, dict):
            for key in value:
                self._key(key, where)
            return sum(
                # The entries of a dict of another class are arguments, such as those of a constructor.
                self._argument(cls, key, item, f"{where}.{key[:40]}", depth + 1)
                if key.isidentifier()
                else self._value(cls, name, item, where, depth + 1)
                for key, item in self._bounded(value, where, depth).items()
            )
        _number(value, where)
        return 0

    def _object_in(self, cls: _Class, name: str, value, where: str, depth: int) -> int:
        if value["class_name"] in ("__numpy__", "__tensor__"):
            _array(value, where)
            return 0
        if value["class_name"] == "function":
            self._function(value, name, where)
            return 0
        roles = _roles(name)
        if not roles and cls.owner == "keras":
            raise _Refused(f"{where} is {_shown(value['class_name'])}, where a number belongs")
        return self.object_of(value, where, roles, depth=depth + 1)

    def _function(self, value, argument: str, where: str) -> None:
        """Check a function: an activation of Keras by its name, or a function that the user's code registers."""
        name, module = value["config"], value.get("module")
        if value.keys() - _FUNCTION_KEYS or not isinstance(name, str):
            raise _Refused(f"{where} is {_shown(value)}, no function")
        registered = keras.saving.get_registered_object(name)
        if registered is not None:
            if not _is_users_function(registered):
                raise _Refused(f"{where} names {_shown(name)}, which a file may not name")
            self.own = True
            self.modules.add(registered.__module__)
            return
        listed = {"keras.activations": names.ACTIVATIONS, "keras.losses": names.NAMED[names.LOSS]}
        listed["keras.metrics"] = names.NAMED[names.METRIC]
        if module == "builtins":
            listed["builtins"] = frozenset.union(*listed.values())
        fits = argument.endswith("activation") or argument in ("loss", "metrics", "weighted_metrics")
        if not fits or name not in listed.get(module, ()) or value.get("registered_name") not in (None, name):
            raise _Refused(f"{where} names the function {_shown(_full(module, name))}, which a file may not name")

    def _word(self, cls: _Class, argument: str, word: str, where: str) -> None:
        if argument.endswith("activation"):
            fits = word in names.ACTIVATIONS or _is_users_function(keras.saving.get_registered_object(word))
        elif keras.saving.get_registered_object(word) is not None:
            # Keras would take the class or function of that name.
            fits = False
        elif argument in names.PATTERNS:
            fits = bool(names.PATTERNS[argument].fullmatch(word))
        elif names.is_dtype(word, argument) or word in names.WORDS.get(argument, ()):
            fits = True
        elif cls.role == names.QUANTIZER or argument == "quantization_mode":
            fits = names.is_policy(word)
        elif set(_roles(argument)) & names.NAMED.keys():
            fits = any(word in names.NAMED.get(role, ()) for role in _roles(argument))
        else:
            fits = cls.owner != "keras" and bool(names.OWN_WORD.fullmatch(word))
        if not fits:
            raise _Refused(f"{where} is {_shown(word)}, which a file may not name")

    def _free(self, value, where: str, depth: int) -> int:
        """Check an argument of the user's own class: any plain value, and objects of the lists."""
        if isinstance(value, str):
            if len(value) > _LONGEST_TEXT:
                raise _Refused(f"{where} is a text of {len(value)} characters")
            if _is_foreign(keras.saving.get_registered_object(value)):
                raise _Refused(f"{where} is {_shown(value)}, which a file may not name")
            return 0
        if isinstance(value, list):
            return sum(self._free(item, where, depth + 1) for item in self._bounded(value, where, depth))
        if _is_object(value):
            if value["class_name"] == "function":
                self._function(value, "activation", where)
                return 0
            if value["class_name"] in _LEAVES:
                _LEAVES[value["class_name"]](value, where)
                return 0
            return self.object_of(value, where, depth=depth + 1)
        if isinstance(value, dict):
            items = self._bounded(value, where, depth).items()
            return 1 + sum(self._free(item, f"{where}.{str(key)[:40]}"[:120], depth + 1) for key, item in items)
        _number(value, where)
        return 0

    def _policy(self, config: dict, where: str, depth: int) -> None:
        for argument, value in config.items():
            if argument == "policy_map" and isinstance(value, dict):
                for key in value:
                    self._key(key.replace("/", " "), where)
                items = [*value.values()]
            else:
                items = [value]
            for item in items:
                if _is_object(item):
                    self.object_of(item, where, (names.POLICY,), depth=depth + 1)
                elif not (isinstance(item, str) and names.is_policy(item)):
                    _number(item, where)

    def _compile_config(self, cls: _Class, config, where: str, depth: int) -> None:
        if cls.owner == "user":
            self._free(config, where, depth)
            return
        if not isinstance(config, dict):
            raise _Refused(f"{where} is {_shown(config)}")
        for argument, value in config.items():
            if not isinstance(argument, str) or not argument.isidentifier():
                raise _Refused(f"{where} has an argument {_shown(argument)}")
            self._compile_value(argument, value, f"{where}.{argument[:40]}", depth)

    def _compile_value(self, argument: str, value, where: str, depth: int) -> None:
        """Check losses and metrics, which may lie in lists and dicts by the names of outputs."""
        if isinstance(value, list):
            for item in self._bounded(value, where, depth):
                self._compile_value(argument, item, where, depth + 1)
        elif isinstance(value, dict) and not _is_object(value):
            for key, item in self._bounded(value, where, depth).items():
                self._key(key, where)
                self._compile_value(argument, item, where, depth + 1)
        else:
            self._value(_COMPILED, argument, value, where, depth)

    def _bounded(self, items, where: str, depth: int):
        if depth > _DEEPEST:
            raise _Refused(f"{where} is nested more than {_DEEPEST} deep")
        return items

    def _key(self, key, where: str) -> None:
        fits = isinstance(key, str) and names.OWN_WORD.fullmatch(key)
        if not fits or keras.saving.get_registered_object(key) is not None:
            raise _Refused(f"{where} has an entry {_shown(key)}")

    def _repetitions(self, value, where: str) -> None:
        numbers = [value]
        total = 0
        while numbers:
            item = numbers.pop()
            if isinstance(item, list):
                numbers += item
            elif isinstance(item, (int, float)):
                total += abs(item)
        if total > names.MOST_REPETITIONS:
            raise _Refused(f"{where} is {_shown(value)}; more than {names.MOST_REPETITIONS} are not built")

    # -------------------------------------------------------------------------------------------- models

    def _model(self, cls: _Class, config: dict, where: str, depth: int) -> int:
        unknown = config.keys() - _MODEL_KEYS[cls.name]
        if unknown:
            raise _Refused(f"{where} has an argument {_shown(sorted(unknown, key=str)[0])}")
        layers = config.get("layers")
        if not isinstance(layers, list):
            raise _Refused(f"{where} has no list of layers")
        for argument in ("name", "trainable", "dtype"):
            if argument in config:
                self._value(cls, argument, config[argument], f"{where}.{argument}", depth)
        _shapes(config.get("build_input_shape"), f"{where}.build_input_shape")
        costs, graph = [], []
        for number, layer in enumerate(layers):
            place = f"layer {number}"
            if isinstance(layer, dict) and isinstance(layer.get("name"), str):
                place = f"layer {layer['name'][:40]!r}"
            costs.append(self.object_of(layer, place, (names.LAYER, names.MODEL), depth=depth + 1))
            graph.append(layer)
        if cls.name == "Functional":
            calls = self._graph(graph, costs, config, where)
        else:
            calls = sum(costs)
        if calls > _MOST_CALLS:
            raise _Refused(f"{where} calls more than {_MOST_CALLS} layers")
        return calls

    def _graph(self, layers: list[dict], costs: list[int], config: dict, where: str) -> int:
        """Check the nodes of a functional model; return the number of calls."""
        by_name = {}
        for layer in layers:
            name = layer.get("name")
            if not isinstance(name, str) or name in by_name:
                raise _Refused(f"{where} has {_shown(name)} as the name of a layer, none or twice")
            by_name[name] = layer
        _ends(config.get("input_layers"), by_name, f"{where}.input_layers")
        _ends(config.get("output_layers"), by_name, f"{where}.output_layers")
        calls, waiting = 0, {}
        for layer, cost in zip(layers, costs, strict=True):
            nodes = layer.get("inbound_nodes", [])
            if not isinstance(nodes, list):
                raise _Refused(f"layer {layer['name'][:40]!r} has {_shown(nodes)} as its calls")
            calls += cost * max(1, len(nodes))
            if calls > _MOST_CALLS:
                raise _Refused(f"{where} calls more than {_MOST_CALLS} layers")
            waiting[layer["name"]] = [_node(node, by_name, f"layer {layer['name'][:40]!r}") for node in nodes]
        _require_order(waiting, {name: _first_call(layer) for name, layer in by_name.items()}, where)
        return calls


# Stands for the arguments of `Model.compile`.
_COMPILED = _Class("compile", "keras")


def _first_call(layer: dict) -> int:
    """Return the calls that a layer has from the start: one of an input, and of a nested functional model."""
    role = names.CLASSES.get(layer.get("module"), ("",))[0]
    return int(role != names.LAYER or layer["class_name"] == "InputLayer")


def _require_order(waiting: dict[str, list], made: dict[str, int], where: str) -> None:
    """Simulate the loop in which Keras calls the layers, whose rounds are bounded."""
    attempts, most = 0, 20 * sum(map(len, waiting.values())) + 1000
    waiting = {name: nodes for name, nodes in waiting.items() if nodes}
    while waiting:
        before = sum(map(len, waiting.values()))
        for name in list(waiting):
            nodes = waiting[name]
            while nodes and all(made[source] > number for source, number in nodes[0]):
                nodes.pop(0)
                made[name] += 1
                attempts += 1
            attempts += 1
            if not nodes:
                del waiting[name]
        if sum(map(len, waiting.values())) == before:
            raise _Refused(f"{where} has a loop, or a layer that nothing reaches")
        if attempts > most:
            raise _Refused(f"{where} has layers that are out of order")


def _node(node, layers: dict, where: str) -> list[tuple[str, int]]:
    """Check the operands of one call; return the tensors among them, as (layer, number of its call)."""
    if not isinstance(node, dict) or set(node) != {"args", "kwargs"}:
        raise _Refused(f"{where} has {_shown(node)} as a call")
    if not isinstance(node["args"], list) or not isinstance(node["kwargs"], dict):
        raise _Refused(f"{where} has {_shown(node)} as a call")
    tensors: list[tuple[str, int]] = []
    for key, value in node["kwargs"].items():
        if not key.isidentifier():
            raise _Refused(f"{where} is called with {_shown(key)}")
        _operand(value, layers, tensors, where, 0)
    _operand(node["args"], layers, tensors, where, 0)
    if not tensors:
        # Keras would run the operation at once.
        raise _Refused(f"{where} is called without a tensor")
    return tensors


def _operand(value, layers: dict, tensors: list, where: str, depth: int) -> None:
    if depth > 8:
        raise _Refused(f"{where} is called with values that are nested more than 8 deep")
    if isinstance(value, list):
        for item in value:
            _operand(item, layers, tensors, where, depth + 1)
    elif _is_object(value) and value["class_name"] == "__keras_tensor__":
        tensors.append(_tensor(value, layers, where))
    elif _is_object(value) and value["class_name"] == "__slice__" and isinstance(value["config"], dict):
        for item in value["config"].values():
            _operand(item, layers, tensors, where, depth + 1)
    elif _is_object(value) and value["class_name"] in _LEAVES:
        _LEAVES[value["class_name"]](value, where)
    elif isinstance(value, dict) and not _is_object(value):
        for key, item in value.items():
            if keras.saving.get_registered_object(key) is not None or not names.OWN_WORD.fullmatch(key):
                raise _Refused(f"{where} is called with {_shown(key)}")
            _operand(item, layers, tensors, where, depth + 1)
    elif isinstance(value, str) and value not in names.DTYPES:
        raise _Refused(f"{where} is called with {_shown(value)}, not a tensor or a number")
    elif isinstance(value, dict):
        raise _Refused(f"{where} is called with {_shown(_full(value.get('module'), value['class_name']))}, no tensor")
    elif not isinstance(value, str):
        _number(value, where)


def _tensor(value, layers: dict, where: str) -> tuple[str, int]:
    config = value["config"]
    history = config.get("keras_history") if isinstance(config, dict) else None
    if not isinstance(history, list) or len(history) != 3 or not isinstance(history[0], str):
        raise _Refused(f"{where} is called with a tensor of no layer")
    if history[0] not in layers or any(type(number) is not int or number < 0 for number in history[1:]):
        raise _Refused(f"{where} is called with a tensor of {_shown(history[0])}, no layer of its model")
    _shapes(config.get("shape"), where)
    if config.get("dtype") not in names.DTYPES:
        raise _Refused(f"{where} is called with a tensor of {_shown(config.get('dtype'))}")
    return history[0], history[1]


def _ends(value, layers: dict, where: str, depth: int = 0) -> None:
    """Check the inputs or outputs of a functional model: [layer, call, tensor] in lists and dicts."""
    if depth > 8:
        raise _Refused(f"{where} is nested more than 8 deep")
    if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
        if value[0] not in layers or any(type(number) is not int or number < 0 for number in value[1:]):
            raise _Refused(f"{where} names {_shown(value)}, no tensor of its model")
    elif isinstance(value, list):
        for item in value:
            _ends(item, layers, where, depth + 1)
    elif isinstance(value, dict):
        for item in value.values():
            _ends(item, layers, where, depth + 1)
    else:
        raise _Refused(f"{where} holds {_shown(value)}")


def _shapes(value, where: str, depth: int = 0) -> None:
    """Check shapes: whole numbers and None in lists, and these in dicts by words."""
    if depth > 8:
        raise _Refused(f"{where} is nested more than 8 deep")
    if isinstance(value, list):
        if len(value) > _MOST_DIMENSIONS and not any(isinstance(item, list) for item in value):
            raise _Refused(f"{where} has {len(value)} dimensions")
        for item in value:
            _shapes(item, where, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not names.PATTERNS["name"].fullmatch(key) or keras.saving.get_registered_object(key) is not None:
                raise _Refused(f"{where} has an entry {_shown(key)}")
            _shapes(item, where, depth + 1)
    elif value is not None and not isinstance(value, str):
        _number(value, where)
    elif isinstance(value, str) and value not in names.DTYPES:
        raise _Refused(f"{where} is {_shown(value)}, no shape")


def _number(value, where: str) -> None:
    if value is None or isinstance(value, (bool, float)):
        return
    if not isinstance(value, int):
        raise _Refused(f"{where} is {_shown(value)}")
    if not -_LARGEST_NUMBER <= value < 2 * _LARGEST_NUMBER:
        raise _Refused(f"{where} is a number of {int(math.log10(abs(value))) + 1} digits")


def _array(value, where: str) -> None:
    config = value["config"]
    if not isinstance(config, dict) or set(config) != {"value", "dtype"} or config["dtype"] not in names.DTYPES:
        raise _Refused(f"{where} holds an array of {_shown(config)}")
    waiting = [config["value"]]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        else:
            _number(item, where)


def _slice(value, where: str) -> None:
    if not isinstance(value["config"], dict):
        raise _Refused(f"{where} holds {_shown(value)}")
    for item in value["config"].values():
        _number(item, where)


# Values that Keras describes as objects.
_LEAVES: dict[str, Callable] = {
    "__numpy__": _array,
    "__tensor__": _array,
    "__slice__": _slice,
    "__ellipsis__": lambda value, where: None,
}


def _roles(argument: str) -> tuple[str, ...]:
    """Return the roles of the objects that an argument of a class of Keras takes."""
    if argument in _OBJECTS:
        return _OBJECTS[argument]
    return next((roles for ending, roles in _ENDINGS.items() if argument.endswith(ending)), ())


_ENDINGS = {
    "activation": (names.LAYER,),
    "initializer": (names.INITIALIZER,),
    "regularizer": (names.REGULARIZER,),
    "constraint": (names.CONSTRAINT,),
    "dtype": (names.POLICY,),
    "quantizer": (names.QUANTIZER,),
}
_OBJECTS = {
    **dict.fromkeys(("layer", "layers", "backward_layer", "cell", "cells"), (names.LAYER, names.MODEL)),
    "quantization_config": (names.QUANTIZER,),
    "learning_rate": (names.SCHEDULE,),
    **dict.fromkeys(("optimizer", "inner_optimizer"), (names.OPTIMIZER,)),
    "loss": (names.LOSS,),
    **dict.fromkeys(("metrics", "weighted_metrics"), (names.METRIC,)),
}


def _is_object(value) -> bool:
    """Return True for what Keras takes for an object, a function, a tensor or another special value."""
    return isinstance(value, dict) and "class_name" in value and "config" in value


def _is_users_function(registered) -> bool:
    return callable(registered) and not isinstance(registered, type) and not _is_foreign(registered)


def _is_foreign(registered) -> bool:
    """Return True for a registered class or function that is not the user's own."""
    return registered is not None and str(registered.__module__).split(".")[0] in _LIBRARIES


def _full(module, name, registered=None) -> str:
    text = f"{module}.{name}" if module else str(name)
    return text if registered in (None, name) else f"{text} as {registered}"


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def _shown(value) -> str:
    text = "".join(letter if letter.isprintable() else "?" for letter in repr(value)[:200])
    return text if len(text) <= 70 else f"{text[:67]}..."
