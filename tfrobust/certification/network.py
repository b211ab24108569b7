"""From a Keras model to the sequence of operations that it computes in inference mode."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from tfrobust.certification import affine, balls, nonlinear
from tfrobust.certification.handlers import (
    ACTIVATIONS,
    ARITHMETIC,
    AUGMENTATIONS,
    HANDLERS,
    MERGERS,
    NoBoundsError,
    refuse,
)
from tfrobust.certification.operations import Operation
from tfrobust.models.backbone import Backbone
from tfrobust.models.shared import foreign
from tfrobust.models.shared.encoder import Encoder
from tfrobust.ops import keras_private


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """The operations of a classifier, in the order of their computation.

    Attributes:
        nodes: (operation, positions of its inputs); position 0 is the image, position i the output of node i - 1.
        other_arithmetic: which part does not compute in float32, by name, or casts its input; "" if none. There are no
            sound bounds then.
        probabilities: True if a softmax followed the last node. It keeps the order of the logits.
    """

    nodes: tuple[tuple[Operation, tuple[int, ...]], ...]
    other_arithmetic: str = ""
    probabilities: bool = False

    def after_scaling(self, scale: float, shift: float) -> Network:
        """Return the network of x -> scale x + shift, then this network."""
        return self._after(affine.Scaling("pixel range", scale, shift))

    def in_ball(self, norm: str, radius: float, bounds: tuple[float, float]) -> Network:
        """Return the network whose first operation is the L2 or L1 ball around position 0 (`balls.NormBall`)."""
        return self._after(balls.NormBall(norm, radius, bounds))

    @property
    def ball(self) -> balls.NormBall | None:
        """The L2 or L1 ball at the beginning; None for boxes, which are balls in L∞."""
        first = self.nodes[0][0] if self.nodes else None
        return first if isinstance(first, balls.NormBall) else None

    def _after(self, first: Operation) -> Network:
        """Return the network with one operation before it."""
        moved = [(operation, tuple(position + 1 for position in positions)) for operation, positions in self.nodes]
        return dataclasses.replace(self, nodes=((first, (0,)), *moved))


def walk(model: keras.Layer) -> Network:
    """Return the operations of a built classifier.

    Covered are sequential, functional and tfrobust's own models (encoders, heads, methods) of these layers: dense,
    convolutions, normalizations, activations, pooling, and what moves, merges or keeps values; the guide
    bounds_and_sets.md has the table. A softmax is covered as the last one, a sigmoid is not: it makes large logits
    equal in float32.

    Args:
        model: images [b, h, w, c] (or clips [b, t, h, w, c]) -> logits or probabilities [b, k].

    Returns:
        The network, which reads the variables of the model whenever bounds are computed.

    Raises:
        NoBoundsError (a ValueError): the first layer that is not covered, by name.
    """
    if isinstance(model, keras.Sequential) and not model.built:
        refuse(model, "which is not built: begin it with keras.Input")
    return Walker().network(model)


def require_call_of(model: keras.Layer, package: str) -> None:
    """Refuse a model whose class defines `call` outside a package: it may compute what its layers do not show."""
    if type(model).call.__module__.partition(".")[0] != package:
        refuse(model, "which defines `call` itself")


class Walker:
    """Collects the operations; a value is known by its position."""

    def __init__(self):
        self.nodes: list[tuple[Operation, tuple[int, ...]]] = []
        self.other_arithmetic = ""

    def network(self, model) -> Network:
        """Return the network of a model."""
        end, nodes = self.walk(model, 0), self.nodes
        if end != len(nodes):
            raise NoBoundsError(f"the model {model.name} does not end with the last of its layers, so it has no bounds")
        last = nodes[-1][0] if nodes else None
        final = isinstance(last, nonlinear.Softmax)
        if getattr(last, "function", None) is tf.math.sigmoid:
            refuse(last, "as the last layer, where float32 makes large logits equal")
        nodes = nodes[:-1] if final else nodes
        for operation, _ in nodes:
            if isinstance(operation, nonlinear.Softmax):
                refuse(operation, "before the end of the network")
        return Network(tuple(nodes), self.other_arithmetic, final)

    def add(self, operation: Operation, *positions: int) -> int:
        """Add an operation on the values at positions; return the position of its output."""
        self.nodes.append((operation, positions))
        return len(self.nodes)

    def require_float32(self, part, dtype: str, verb: str) -> None:
        """Note the first part that does not do with float32 what the verb says."""
        if dtype != "float32" and not self.other_arithmetic:
            kind = type(part).__name__
            self.other_arithmetic = f"the layer {part.name} of type {kind} {verb} {dtype}, not float32"

    def walk(self, layer, position: int) -> int:
        """Add the operations of a layer or model with one input; return the position of its output."""
        if isinstance(layer, keras.Layer):
            self.require_float32(layer, layer.compute_dtype, "computes in")
            self.require_float32(layer, layer.dtype_policy.name, "has the policy")
        if hasattr(layer, "propagate"):  # a training method, whose deployed path this is
            require_call_of(layer, "tfrobust")
            if type(layer).propagate.__module__.partition(".")[0] != "tfrobust":
                refuse(layer, "which defines `propagate` itself")
            return self.chain([layer.encoder, layer.head], position)
        if isinstance(layer, Encoder):
            return self.encoder(layer, position)
        if (functional := keras_private.functional(layer)) is not None:
            require_call_of(layer, "keras")
            return self.functional(functional, position)
        if isinstance(layer, keras.Sequential):
            require_call_of(layer, "keras")
            return self.chain(layer.layers, position)
        handler = HANDLERS.get(type(layer))
        if handler is None:
            refuse(layer)
        return handler(self, layer, position)

    def chain(self, layers, position: int) -> int:
        """Add layers in sequence."""
        for layer in layers:
            position = self.walk(layer, position)
        return position

    def encoder(self, encoder: Encoder, position: int) -> int:
        """Add the normalization of pixels, the stages and the neck."""
        kind = type(encoder)
        standard = kind.standardize in (Encoder.standardize, Backbone.standardize)
        if isinstance(encoder, Backbone):
            gray = encoder.input_spec.shape[-1] != foreign.input_shape(encoder.model)[-1]
            standard = standard and encoder.channel_order == "rgb" and not gray
        if kind.call is not Encoder.call or not standard or encoder.resize_to:
            refuse(encoder, "which changes pixels or runs its stages in a way of its own")
        mean = 0.0 if encoder.pixel_mean is None else np.asarray(encoder.pixel_mean)
        std = 1.0 if encoder.pixel_std is None else np.asarray(encoder.pixel_std)
        if encoder.pixel_mean is not None or encoder.pixel_std is not None:
            position = self.add(affine.Scaling(f"{encoder.name}: pixels", 1 / std, -mean / std), position)
        return self.chain([layer for part in (*encoder.stage_layers, encoder.neck) for layer in part], position)

    def functional(self, model, position: int) -> int:
        """Add the calls of a functional model."""
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            refuse(model, f"{len(model.inputs)} inputs and {len(model.outputs)} outputs")
        positions = {id(model.inputs[0]): position}
        for call in keras_private.calls(model):
            if call.is_input:
                self.require_float32(call.operation, call.outputs[0].dtype, "casts pixels to")
                continue
            settings = dict(call.arguments.kwargs)
            # Keras notes False for every Dropout, and True for every augmentation; inference mode overrides it.
            if settings.get("training") is False or isinstance(call.operation, AUGMENTATIONS):
                settings.pop("training", None)
            if any(value is not None for value in settings.values()):
                refuse(call.operation, "called with arguments besides its input")
            sources = [positions[id(tensor)] for tensor in call.input_tensors]
            merge = MERGERS.get(type(call.operation))
            if merge is None and type(call.operation).__module__.partition(".")[0] == "keras":
                merge = ARITHMETIC.get(type(call.operation).__name__)
            if merge is not None:
                shapes = {tuple(tensor.shape) for tensor in call.input_tensors}
                end = merge(self, call.operation, sources, shapes)
            elif len(sources) == 1 and len(call.outputs) == 1:
                end = self.walk(call.operation, sources[0])
            else:
                refuse(call.operation)
            self.require_float32(call.operation, call.outputs[0].dtype, "returns")
            positions[id(call.outputs[0])] = end
        return positions[id(model.outputs[0])]

    def activation(self, layer, position: int, function=None) -> int:
        """Add an activation function: that of a layer, or a given one."""
        function = layer.activation if function is None else function
        try:
            handler = ACTIVATIONS[function]
        except (KeyError, TypeError):
            refuse(layer, f"with the activation {getattr(function, '__name__', function)}")
        return handler(self, layer, position)
