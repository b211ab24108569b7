"""Destinations of the tensors of a PyTorch file: variables of Keras layers, and the order of their axes."""

import dataclasses

import keras
import numpy as np

from tfrobust.models.shared.normalization import BranchedBatchNormalization

# Axes of a kernel: (out, in, (t,) h, w) in PyTorch, ((t,) h, w, in, out) in Keras; of a matrix (out, in), (in, out).
_TO_KERAS = {5: (2, 3, 4, 1, 0), 4: (2, 3, 1, 0), 2: (1, 0)}
_TO_TORCH = {5: (4, 3, 0, 1, 2), 4: (3, 2, 0, 1), 2: (1, 0)}


@dataclasses.dataclass(frozen=True)
class Destination:
    """Variables that a tensor is assigned to.

    Attributes:
        variables: Keras variables; several if a normalization has branches, which all get the same values.
        shape: shape of the tensor, with PyTorch's order of axes.
        positive: true for a variance, which must not be below 0.
    """

    variables: tuple[keras.Variable, ...]
    shape: tuple[int, ...]
    positive: bool = False

    @classmethod
    def of(cls, variable: keras.Variable) -> "Destination":
        """Return the destination of a tensor that has the shape of its only variable."""
        return cls((variable,), tuple(variable.shape))

    def assign(self, value: np.ndarray) -> None:
        """Assign a tensor in PyTorch's order of axes to the variables."""
        value = value.transpose(_TO_KERAS[value.ndim]) if value.ndim in _TO_KERAS else value
        for variable in self.variables:
            variable.assign(value)


def layer_destinations(name: str, layer: keras.layers.Layer) -> dict[str, Destination]:
    """Map the tensor names of a convolution, a dense layer or a normalization called `name` to destinations."""
    if isinstance(layer, BranchedBatchNormalization):
        kinds = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
        destinations = {}
        for kind, ours in kinds.items():
            variables = tuple(getattr(norm, ours) for norm in layer.norms)
            destinations[f"{name}.{kind}"] = Destination(
                variables, tuple(variables[0].shape), positive=kind == "running_var"
            )
        return destinations
    if isinstance(layer, keras.layers.LayerNormalization):
        return {f"{name}.weight": Destination.of(layer.gamma), f"{name}.bias": Destination.of(layer.beta)}
    shape = tuple(layer.kernel.shape)
    destinations = {
        f"{name}.weight": Destination((layer.kernel,), tuple(shape[axis] for axis in _TO_TORCH[len(shape)]))
    }
    if layer.bias is not None:
        destinations[f"{name}.bias"] = Destination((layer.bias,), tuple(layer.bias.shape))
    return destinations
