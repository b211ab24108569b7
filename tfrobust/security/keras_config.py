"""Read the description of a Keras object as data, before Keras builds anything from it.

Keras builds what a description names: classes that read files, download, or call other functions among them. This
reader compares every class, operation, argument and word with the lists of `security.keras_names`, and counts layers
and calls. Classes that the user's own code registers with Keras may also be named, with any plain argument.
"""

from __future__ import annotations

import dataclasses

import keras

from tfrobust.errors import InputError
from tfrobust.security import keras_graph
from tfrobust.security import keras_names as names
from tfrobust.security import keras_values as values

_MOST_LAYERS = 2_500
_MOST_CALLS = 10_000  # of layers, those of nested models counted for each call of the model
# Keras builds a Sequential again for each of its layers: 250 layers take 12 s.
_MOST_REBUILT = 40_000
_MOST_OBJECTS = 100_000
_DEEPEST = 60
_LONGEST_TEXT = 2**16  # in an argument of the user's own class
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


@dataclasses.dataclass(frozen=True)
class Contents:
    """Contents of a description of Keras objects, counted before anything is built.

    Attributes:
        layers: number of layers and operations.
        modules: modules that define its registered classes, sorted.
        has_user_code: True if it names classes of the user's own code.
    """

    layers: int
    modules: tuple[str, ...]
    has_user_code: bool


def check(description, *, largest_size: int = values.LARGEST_NUMBER, compiled: bool = True) -> Contents:
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
    except values.Refused as fault:
        raise InputError(str(fault)[:220]) from None
    except RecursionError:
        raise InputError(f"it is nested more than {_DEEPEST} deep") from None
    return Contents(reader.layers, tuple(sorted(reader.modules)), reader.has_user_code)


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
        self._objects = self._rebuilt = 0
        self._shared: dict[int, tuple] = {}
        self.layers = 0
        self.modules: set[str] = set()
        self.has_user_code = False

    # ------------------------------------------------------------------------------------------- objects

    def object_of(self, value, where: str, roles: tuple[str, ...] = (), *, depth: int = 0, compiled: bool = True):
        """Check an object; return the number of calls of layers that one call of it makes."""
        if not values.is_object(value):
            raise values.Refused(f"{where} is {values.shown(value)}, not a class and its config")
        self._objects += 1
        if self._objects > _MOST_OBJECTS:
            raise values.Refused(f"it has more than {_MOST_OBJECTS} objects")
        if depth > _DEEPEST:
            raise values.Refused(f"it is nested more than {_DEEPEST} deep")
        cls = self._class_of(value, where)
        where = f"{where} ({cls.name[:60]})"
        unknown = value.keys() - _KEYS
        if unknown:
            raise values.Refused(f"{where} has an entry {values.shown(sorted(unknown, key=str)[0])}")
        if roles and cls.owner == "keras" and cls.role not in roles:
            raise values.Refused(f"{where} is {values.article(cls.role)}, where {values.article(roles[0])} belongs")
        if roles and cls.owner != "keras" and not {names.LAYER, names.MODEL} & {*roles} and cls.is_layer:
            raise values.Refused(f"{where} is a layer, where {values.article(roles[0])} belongs")
        self._count_layer(cls)
        calls = self._config(cls, value["config"], where, depth)
        self._texts_beside(value, where)
        values.check_shapes(value.get("build_config"), f"{where}.build_config")
        if compiled and value.get("compile_config") is not None:
            self._compile_config(cls, value["compile_config"], f"{where}.compile_config", depth)
        return self._share(value, cls, calls, where)

    def _class_of(self, value, where: str) -> _Class:
        """Return the class that Keras would take, by the order of its own look-up."""
        name, module = value["class_name"], value.get("module")
        registered = value.get("registered_name", name)
        for text in (name, module, registered):
            if text is not None and (not isinstance(text, str) or len(text) > 200):
                raise values.Refused(f"{where} has {values.shown(text)} as the name of a class")
        custom = keras.saving.get_registered_object(registered) if registered else None
        if custom is not None:
            return self._registered_class(custom, registered, where)
        if isinstance(registered, str) and registered.startswith(f"{_HUB}>") and str(module).startswith(f"{_HUB}."):
            if registered == f"{_HUB}>{name}" and name in names.BACKBONES:
                return _Class(name, _HUB, names.MODEL, True)
        role, allowed = names.CLASSES.get(module, ("", ()))
        if module == "keras" and name in names.POLICIES_OF_KERAS:
            role, allowed = names.POLICY, (name,)
        if name not in allowed or registered not in (None, name):
            raise values.Refused(
                f"{where} names {values.shown(values.full_name(module, name, registered))}, which a file may not name"
            )
        return _Class(name, "keras", role, role in (names.LAYER, names.MODEL))

    def _registered_class(self, custom, registered: str, where: str) -> _Class:
        if not isinstance(custom, type):
            raise values.Refused(f"{where} names the function {values.shown(registered)}, where an object belongs")
        package = custom.__module__.split(".")[0]
        listed = package not in _LIBRARIES
        if package == _OURS:
            listed = custom.__module__.startswith(names.PACKAGES)
        elif package == _HUB:
            listed = custom.__name__ in names.BACKBONES
        if not listed:
            raise _unlisted_refusal(where, registered)
        owner = package if package in (_OURS, _HUB) else "user"
        self.has_user_code = self.has_user_code or owner == "user"
        self.modules.add(custom.__module__)
        return _Class(registered, owner, "", issubclass(custom, keras.Operation))

    def _count_layer(self, cls: _Class) -> None:
        if cls.is_layer:
            self.layers += 1
        if self.layers > _MOST_LAYERS:
            raise values.Refused(f"it has more than {_MOST_LAYERS} layers")

    def _share(self, value, cls: _Class, calls: int, where: str) -> int:
        """Check an object that Keras builds once and then takes wherever its number occurs."""
        number = value.get("shared_object_id")
        if number is None:
            return calls
        if not isinstance(number, int) or isinstance(number, bool):
            raise values.Refused(f"{where} has {values.shown(number)} as its number")
        first, most = self._shared.setdefault(number, (cls, calls))
        if first != cls:
            raise values.Refused(f"{where} shares its number with {values.article(first.name)}")
        return max(most, calls)

    def _texts_beside(self, value, where: str) -> None:
        name = value.get("name")
        if name is not None and not (isinstance(name, str) and names.PATTERNS["name"].fullmatch(name)):
            raise values.Refused(f"{where} has the name {values.shown(name)}")

    # ------------------------------------------------------------------------------------------- configs

    def _config(self, cls: _Class, config, where: str, depth: int) -> int:
        if config is None:
            return int(cls.is_layer)
        if not isinstance(config, dict):
            raise values.Refused(f"{where} has {values.shown(config)} as its config")
        if cls.role == names.MODEL and cls.owner == "keras":
            return self._model(cls, config, where, depth)
        if cls.owner == "user":
            return self._free(config, where, depth)
        if cls.role == names.POLICY:
            self._policy(config, where, depth)
            return 0
        calls = int(cls.is_layer)
        for argument, value in config.items():
            if not isinstance(argument, str) or not argument.isidentifier():
                raise values.Refused(f"{where} has an argument {values.shown(argument)}")
            calls += self._argument(cls, argument, value, f"{where}.{argument[:40]}", depth)
        return calls

    def _argument(self, cls: _Class, name: str, value, where: str, depth: int) -> int:
        """Check the value of an argument; return the calls of the layers in it."""
        if names.OUTSIDE.fullmatch(name):
            if value not in (None, "", [], {}):
                raise values.Refused(f"{where} is {values.shown(value)}; a file may not name what lies outside of it")
            return 0
        if names.REPETITIONS.fullmatch(name):
            self._repetitions(value, where)
        if cls.owner == "keras" and name in names.WEIGHTED and isinstance(value, int) and value > self._largest_size:
            raise values.Refused(f"{where} is {value}, more than the file has weights")
        return self._value(cls, name, value, where, depth)

    def _value(self, cls: _Class, name: str, value, where: str, depth: int) -> int:
        if isinstance(value, str):
            self._word(cls, name, value, where)
            return 0
        if isinstance(value, list):
            return sum(
                self._value(cls, name, item, where, depth + 1) for item in self._require_depth(value, where, depth)
            )
        if values.is_object(value):
            return self._object_in(cls, name, value, where, depth)
        if isinstance(value, dict):
            for key in value:
                self._key(key, where)
            return sum(
                # The entries of a dict of another class are arguments, such as those of a constructor.
                self._argument(cls, key, item, f"{where}.{key[:40]}", depth + 1)
                if key.isidentifier()
                else self._value(cls, name, item, where, depth + 1)
                for key, item in self._require_depth(value, where, depth).items()
            )
        values.check_number(value, where)
        return 0

    def _object_in(self, cls: _Class, name: str, value, where: str, depth: int) -> int:
        if value["class_name"] in ("__numpy__", "__tensor__"):
            values.check_array(value, where)
            return 0
        if value["class_name"] == "function":
            self._function(value, name, where)
            return 0
        roles = _roles(name)
        if not roles and cls.owner == "keras":
            raise values.Refused(f"{where} is {values.shown(value['class_name'])}, where a number belongs")
        return self.object_of(value, where, roles, depth=depth + 1)

    def _function(self, value, argument: str, where: str) -> None:
        """Check a function: an activation of Keras by its name, or a function that the user's code registers."""
        name, module = value["config"], value.get("module")
        if value.keys() - _FUNCTION_KEYS or not isinstance(name, str):
            raise values.Refused(f"{where} is {values.shown(value)}, no function")
        registered = keras.saving.get_registered_object(name)
        if registered is not None:
            if not _is_users_function(registered):
                raise _unlisted_refusal(where, name)
            self.has_user_code = True
            self.modules.add(registered.__module__)
            return
        listed = {"keras.activations": names.ACTIVATIONS, "keras.losses": names.NAMED[names.LOSS]}
        listed["keras.metrics"] = names.NAMED[names.METRIC]
        if module == "builtins":
            listed["builtins"] = frozenset.union(*listed.values())
        fits = argument.endswith("activation") or argument in ("loss", "metrics", "weighted_metrics")
        fits = fits and value.get("registered_name") in (None, name, "function")  # Keras 3.15 writes the last
        if not fits or name not in listed.get(str(module), ()):
            raise values.Refused(
                f"{where} names the function {values.shown(values.full_name(module, name))}, which a file may not name"
            )

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
            raise values.Refused(f"{where} is {values.shown(word)}, which a file may not name")

    def _free(self, value, where: str, depth: int) -> int:
        """Check an argument of the user's own class: any plain value, and objects of the lists."""
        if isinstance(value, str):
            if len(value) > _LONGEST_TEXT:
                raise values.Refused(f"{where} is a text of {len(value)} characters")
            if _is_foreign(keras.saving.get_registered_object(value)):
                raise values.Refused(f"{where} is {values.shown(value)}, which a file may not name")
            return 0
        if isinstance(value, list):
            return sum(self._free(item, where, depth + 1) for item in self._require_depth(value, where, depth))
        if values.is_object(value):
            if value["class_name"] == "function":
                self._function(value, "activation", where)
                return 0
            if values.listed(value["class_name"], values.LEAVES):
                values.LEAVES[value["class_name"]](value, where)
                return 0
            return self.object_of(value, where, depth=depth + 1)
        if isinstance(value, dict):
            items = self._require_depth(value, where, depth).items()
            return 1 + sum(self._free(item, f"{where}.{str(key)[:40]}"[:120], depth + 1) for key, item in items)
        values.check_number(value, where)
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
                if values.is_object(item):
                    self.object_of(item, where, (names.POLICY,), depth=depth + 1)
                elif not (isinstance(item, str) and names.is_policy(item)):
                    values.check_number(item, where)

    def _compile_config(self, cls: _Class, config, where: str, depth: int) -> None:
        if cls.owner == "user":
            self._free(config, where, depth)
            return
        if not isinstance(config, dict):
            raise values.Refused(f"{where} is {values.shown(config)}")
        for argument, value in config.items():
            if not isinstance(argument, str) or not argument.isidentifier():
                raise values.Refused(f"{where} has an argument {values.shown(argument)}")
            self._compile_value(argument, value, f"{where}.{argument[:40]}", depth)

    def _compile_value(self, argument: str, value, where: str, depth: int) -> None:
        """Check losses and metrics, which may lie in lists and dicts by the names of outputs."""
        if isinstance(value, list):
            for item in self._require_depth(value, where, depth):
                self._compile_value(argument, item, where, depth + 1)
        elif isinstance(value, dict) and not values.is_object(value):
            for key, item in self._require_depth(value, where, depth).items():
                self._key(key, where)
                self._compile_value(argument, item, where, depth + 1)
        else:
            self._value(_COMPILED, argument, value, where, depth)

    def _require_depth(self, items, where: str, depth: int):
        if depth > _DEEPEST:
            raise values.Refused(f"{where} is nested more than {_DEEPEST} deep")
        return items

    def _key(self, key, where: str) -> None:
        fits = isinstance(key, str) and names.OWN_WORD.fullmatch(key)
        if not fits or keras.saving.get_registered_object(key) is not None:
            raise values.Refused(f"{where} has an entry {values.shown(key)}")

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
            raise values.Refused(f"{where} is {values.shown(value)}; more than {names.MOST_REPETITIONS} are not built")

    # -------------------------------------------------------------------------------------------- models

    def _model(self, cls: _Class, config: dict, where: str, depth: int) -> int:
        unknown = config.keys() - _MODEL_KEYS[cls.name]
        if unknown:
            raise values.Refused(f"{where} has an argument {values.shown(sorted(unknown, key=str)[0])}")
        layers = config.get("layers")
        if not isinstance(layers, list):
            raise values.Refused(f"{where} has no list of layers")
        for argument in ("name", "trainable", "dtype"):
            if argument in config:
                self._value(cls, argument, config[argument], f"{where}.{argument}", depth)
        values.check_shapes(config.get("build_input_shape"), f"{where}.build_input_shape")
        costs, graph = [], []
        for number, layer in enumerate(layers):
            title = f"layer {number}"
            if isinstance(layer, dict) and isinstance(layer.get("name"), str):
                title = f"layer {layer['name'][:40]!r}"
            costs.append(self.object_of(layer, title, (names.LAYER, names.MODEL), depth=depth + 1))
            graph.append(layer)
        if cls.name == "Functional":
            calls = self._graph(graph, costs, config, where)
        else:
            calls = sum(costs)
            self._rebuilt += len(layers) * calls
        if self._rebuilt > _MOST_REBUILT:
            raise values.Refused(
                f"{where} has too many layers in a row, which Keras builds again for each; nest models"
            )
        if calls > _MOST_CALLS:
            raise values.Refused(f"{where} calls more than {_MOST_CALLS} layers")
        return calls

    def _graph(self, layers: list[dict], costs: list[int], config: dict, where: str) -> int:
        """Check the nodes of a functional model; return the number of calls."""
        by_name = {}
        for layer in layers:
            name = layer.get("name")
            if not isinstance(name, str) or name in by_name:
                raise values.Refused(f"{where} has {values.shown(name)} as the name of a layer, none or twice")
            by_name[name] = layer
        keras_graph.check_ends(config.get("input_layers"), by_name, f"{where}.input_layers")
        keras_graph.check_ends(config.get("output_layers"), by_name, f"{where}.output_layers")
        calls, waiting = 0, {}
        for layer, cost in zip(layers, costs, strict=True):
            nodes = layer.get("inbound_nodes", [])
            if not isinstance(nodes, list):
                raise values.Refused(f"layer {layer['name'][:40]!r} has {values.shown(nodes)} as its calls")
            calls += cost * max(1, len(nodes))
            if calls > _MOST_CALLS:
                raise values.Refused(f"{where} calls more than {_MOST_CALLS} layers")
            waiting[layer["name"]] = [
                keras_graph.tensors_of_call(node, by_name, f"layer {layer['name'][:40]!r}") for node in nodes
            ]
        keras_graph.require_order(
            waiting, {name: keras_graph.first_call(layer) for name, layer in by_name.items()}, where
        )
        return calls


# Stands for the arguments of `Model.compile`.
_COMPILED = _Class("compile", "keras")


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


def _unlisted_refusal(where: str, name: str) -> values.Refused:
    return values.Refused(f"{where} names {values.shown(name)}, which a file may not name")


def _is_users_function(registered) -> bool:
    return callable(registered) and not isinstance(registered, type) and not _is_foreign(registered)


def _is_foreign(registered) -> bool:
    """Return True for a registered class or function that is not the user's own."""
    return registered is not None and str(registered.__module__).split(".")[0] in _LIBRARIES
