"""Functional Keras models as encoders: stages between named layers, and batch-norm branches.

A functional model is a graph of tensors. A cut is a tensor through which every path from the input to the output runs,
so that the model is one part up to the cut, and one part from it.
"""

import collections
import itertools
from collections.abc import Sequence

import keras

from tfrobust.common.nearest import nearest
from tfrobust.errors import InputError
from tfrobust.models.shared.normalization import check_branch
from tfrobust.ops import keras_private

RULES = ("resolution", "pyramid")


class BranchedModels(keras.layers.Layer):
    """One model per batch-norm branch; the models share all layers but their batch normalizations.

    Args:
        models: built functional models of equal structure, one per branch.
    """

    branched = True

    def __init__(self, models: Sequence[keras.Model], **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.models = list(models)
        self.built = True

    @property
    def norm_branches(self) -> list[tuple]:
        """The batch normalizations: one tuple of layers, one layer per branch, for each of them."""
        return list(zip(*map(_norms, self.models), strict=True))

    def compute_output_shape(self, input_shape):
        """Return the output shape of the models."""
        return self.models[0].compute_output_shape(input_shape)

    def call(self, hidden, *, training=None, branch=0):
        """Run the model of one branch."""
        return self.models[check_branch(branch, len(self.models), self.name)](hidden, training=training)


def make_stages(model: keras.Model, names: str | Sequence[str] = (), *, branches: int = 1) -> list[keras.Layer]:
    """Split a model into stages at its layers, with batch-norm branches.

    The stages share the weights of the model; only the batch normalizations of further branches have their own.

    Args:
        model: a Keras model; functional or sequential with one input and one output tensor, if `names` or `branches`
            ask for more than the model itself.
        names: as in `find_cuts`.
        branches: sets of batch-norm variables, >= 1.

    Returns:
        One layer per stage, one more than there are cuts. With several branches, those with batch normalization have
        an attribute `branched` and take `branch` when they are called.

    Raises:
        InputError (a ValueError): as `find_cuts` and `separate_norms`.
    """
    if not names and branches == 1:
        return [model]
    places = find_cuts(model, names)
    parts = [split(copy, places) for copy in separate_norms(model, branches)]
    return [
        group[0] if branches == 1 or not _norms(group[0]) else BranchedModels(group)
        for group in zip(*parts, strict=True)
    ]


# ------------------------------------------------------------------------------------------------------- stages


def cuts(model: keras.Model) -> list[keras.KerasTensor]:
    """Return the tensors that alone separate the input of a model from its output, in the order of the network.

    The input and the output are not among them.

    Args:
        model: functional or sequential, with one input and one output tensor.

    Raises:
        InputError (a ValueError): a model that is not functional, or several inputs or outputs.
    """
    nodes = _nodes(model)
    uses = collections.Counter(id(tensor) for node in nodes for tensor in node.input_tensors)
    uses[id(model.outputs[0])] += 1
    waiting, separators = set(), []
    for node in nodes:
        for tensor in node.input_tensors:
            uses[id(tensor)] -= 1
            if not uses[id(tensor)]:
                waiting.discard(id(tensor))
        used = [tensor for tensor in node.outputs if uses[id(tensor)]]
        waiting.update(map(id, used))
        # All that follows is computed from this tensor if no other is still waited for.
        if len(used) == len(waiting) == 1:
            separators.append(used[0])
    return separators[1:-1]


def find_cuts(model: keras.Model, names: str | Sequence[str]) -> list[int]:
    """Return places in `cuts(model)`, in increasing order.

    Args:
        model: functional or sequential, with one input and one output tensor.
        names: names of layers in the order of the network, each once, whose outputs are cuts; or "resolution", the
            last cut before each reduction of the height of the maps, except for padding; or "pyramid", the
            `pyramid_outputs` of a KerasHub backbone.

    Raises:
        InputError (a ValueError): an unknown rule, or a model without such layers; a layer that does not exist, is used
            several times, is bypassed or out of order.
    """
    if names == "resolution":
        return _last_of_each_resolution(model)
    if names == "pyramid":
        tensors = getattr(model, "pyramid_outputs", None)
        if not tensors:
            raise InputError(f"stage_names='pyramid' needs a model with pyramid_outputs; {model.name} has none.")
        names = [_name(tensor) for tensor in tensors.values() if _name(tensor) != _name(model.outputs[0])]
    if isinstance(names, str):
        raise InputError(f"stage_names is {names!r}; it is a tuple of names of layers or one of {list(RULES)}.")
    possible = cuts(model)
    places = [_cut_index(model, name, possible) for name in names]
    if sorted(set(places)) != places:
        raise InputError(f"stage_names must be in the order of {model.name}, each once, got {list(names)}.")
    return places


def split(model: keras.Model, places: Sequence[int]) -> list[keras.Model]:
    """Split a model into functional models that share its layers.

    Args:
        model: functional or sequential, with one input and one output tensor.
        places: as of `find_cuts`.

    Returns:
        One model more than there are places; their composition is `model`.
    """
    if not places:
        return [model]
    possible = cuts(model)
    tensors = [model.inputs[0], *(possible[index] for index in places), model.outputs[0]]
    return [_part(*ends, f"{model.name}_stage_{k}") for k, ends in enumerate(itertools.pairwise(tensors), 1)]


def _part(start, end, name: str, shape: tuple | None = None) -> keras.Model:
    # A Model from `start` to `end` would copy nodes, and copy a further call of the layer before `start` wrongly.
    inputs = keras.Input(batch_shape=shape or start.shape, dtype=start.dtype)
    return keras.Model(inputs, keras.Function(start, end).call(inputs), name=name)


def _nodes(model) -> list:
    """Return the calls of layers in a model, each after those that compute its inputs."""
    name, model = model.name, keras_private.functional(model)
    if model is None:
        raise InputError(
            f"{name} is no functional model, so there are no layers to cut after, and no branches: leave "
            "stage_names=() and branches=1."
        )
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise InputError(
            f"{model.name} has {len(model.inputs)} inputs and {len(model.outputs)} outputs; stages need one of each."
        )
    return keras_private.calls(model)


def _name(tensor) -> str:
    return keras_private.operation_of(tensor).name


def _cut_index(model, name: str, possible: list) -> int:
    """Return the place of a layer's output among the cuts, or raise InputError if it is none."""
    calls = [node for node in _nodes(model) if node.operation.name == name]
    if not calls:
        around = [layer.name for layer in model.layers if _holds(layer, name)]
        inside = f" It is inside of {around[0]!r}, which is cut only if it is the model." if around else ""
        raise InputError(f"{model.name} has no layer {name!r} to cut after.{inside} {_advice(model, name, possible)}")
    if len(calls) > 1:
        raise InputError(f"{model.name} uses the layer {name!r} {len(calls)} times: it names no single place to cut.")
    (call,) = calls
    if not isinstance(call.operation, keras.Layer):
        raise InputError(
            f"{name!r} is an operation of {model.name} and no layer, and Keras may name it otherwise next time: cut "
            "after a layer, or set stage_names='resolution'."
        )
    outputs = set(map(id, call.outputs))
    if call.is_input or id(model.outputs[0]) in outputs:
        raise InputError(f"{name!r} is the input or the output of {model.name}, where it cannot be cut.")
    for index, tensor in enumerate(possible):
        if id(tensor) in outputs:
            return index
    around = sorted({_name(tensor) for tensor in _bypassing(model, call)})
    raise InputError(
        f"{model.name} cannot be cut after the layer {name!r}: the output of {', '.join(around)} bypasses it. "
        f"{_advice(model, name, possible)}"
    )


def _holds(layer, name: str) -> bool:
    return any(inner.name == name for inner in keras_private.all_layers(layer, include_self=False))


def _bypassing(model, call) -> list:
    """Return the tensors other than the call's only output that are computed up to a call and used after it."""
    before, waiting = set(), [call]
    while waiting:
        node = waiting.pop()
        if node not in before:
            before.add(node)
            waiting += node.parent_nodes
    later = {id(tensor) for node in _nodes(model) if node not in before for tensor in node.input_tensors}
    through = call.outputs[0] if len(call.outputs) == 1 else None
    return [tensor for node in before for tensor in node.outputs if id(tensor) in later and tensor is not through]


def _advice(model, name: str, possible: list) -> str:
    layers = [_name(tensor) for tensor in possible if isinstance(keras_private.operation_of(tensor), keras.Layer)]
    shown = nearest(name, layers) or layers[-3:]
    return f"It can be cut after {', '.join(shown)}." if shown else "It can be cut nowhere: leave stage_names=()."


def _last_of_each_resolution(model) -> list[int]:
    if None in model.inputs[0].shape[1:]:
        # Any size shows where the resolution changes; a network for photographs accepts this one.
        shape = (None, *(side or 256 for side in model.inputs[0].shape[1:]))
        model = _part(model.inputs[0], model.outputs[0], model.name, shape)
    image, smallest, last = model.inputs[0], model.inputs[0].shape[1], {}
    for index, tensor in enumerate([*cuts(model), model.outputs[0]]):
        if len(tensor.shape) != 4:
            break
        # Padding enlarges a map, and rescaled pixels are no hidden state.
        if tensor.shape[1] <= smallest and tensor.shape[1:] != image.shape[1:]:
            smallest = tensor.shape[1]
            last[smallest] = index
    if len(last) < 2:
        raise InputError(
            f"stage_names='resolution' finds no place in {model.name} where one map of a higher resolution than the "
            "last separates input from output: leave stage_names=()."
        )
    return list(last.values())[:-1]


# ----------------------------------------------------------------------------------------------------- branches


def separate_norms(model: keras.Model, branches: int = 2) -> list[keras.Model]:
    """Make one model per batch-norm branch; they share all layers but their batch normalizations.

    Branch 0 is the model itself. All branches begin with equal values.

    Args:
        model: functional or sequential; models nested in it are treated alike.
        branches: number of models, >= 1.

    Raises:
        InputError (a ValueError): a model that is not functional, or a batch normalization inside another layer.
    """
    if branches > 1:
        _nodes(model)
    return [model, *(_with_norms(model, branch) for branch in range(1, branches))]


def _with_norms(model, branch: int) -> keras.Model:
    copies = []

    def replace(layer):
        if not isinstance(layer, keras.layers.BatchNormalization):
            if isinstance(layer, keras.Layer) and _norms(layer):
                raise InputError(
                    f"The layer {layer.name!r} ({type(layer).__name__}) of {model.name} holds a batch normalization "
                    "that is no layer of the functional model, so it cannot have branches: set branches=1."
                )
            return layer
        copy = type(layer).from_config({**layer.get_config(), "name": f"{layer.name}_branch_{branch}"})
        copies.append((layer, copy))
        return copy

    clone = keras.models.clone_model(model, clone_function=replace, recursive=True)
    for layer, copy in copies:
        copy.set_weights(layer.get_weights())
    return clone


def _norms(layer) -> list:
    """Return the batch normalizations of a model or layer, also those that its layers hold."""
    return [part for part in keras_private.all_layers(layer) if isinstance(part, keras.layers.BatchNormalization)]
