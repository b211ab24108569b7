"""The exact smallest margin of a small network of ReLUs and maxima over a box, by HiGHS as a mixed-integer program."""

import keras
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from tfrobust.models.shared.group_sort import GroupSort
from tfrobust.ops import keras_private

LAYERS = keras.layers
LINEAR = keras.activations.linear
# Slopes below 0 and largest values of the activations that a program has.
_RECTIFIERS = {"relu": (0.0, None), "relu6": (0.0, 6.0), "leaky_relu": (0.2, None)}
_JOINS = (LAYERS.Add, LAYERS.Subtract, LAYERS.Average, LAYERS.Concatenate)
_AFFINE = (LAYERS.Dense, LAYERS.Conv1D, LAYERS.Conv2D, LAYERS.DepthwiseConv2D, LAYERS.BatchNormalization)
_AFFINE += (LAYERS.AveragePooling2D, LAYERS.UpSampling2D, LAYERS.Cropping2D, LAYERS.Permute, LAYERS.Flatten)
_AFFINE += (LAYERS.Reshape, LAYERS.Dropout, LAYERS.Rescaling, LAYERS.Normalization, *_JOINS)
_COLUMNS = 600


class UnsolvedError(Exception):
    """A network with other layers, or with too many integer variables."""


class Value:
    """Entries, flat: linear functions of the variables of a program, matrix [n, columns] and offset, within ends."""

    def __init__(self, matrix, offset, low, high):
        self.matrix, self.offset, self.low, self.high = matrix, offset, low, high

    def __rmatmul__(self, matrix):
        """Return matrix self."""
        positive, negative = np.maximum(matrix, 0), np.minimum(matrix, 0)
        ends = (positive @ first + negative @ last for first, last in ((self.low, self.high), (self.high, self.low)))
        return Value(matrix @ self.matrix, matrix @ self.offset, *ends)

    def __add__(self, other):
        """Return the sum with entries or numbers."""
        if not isinstance(other, Value):
            return Value(self.matrix, self.offset + other, self.low + other, self.high + other)
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Value(*(first + second for first, second in pairs))

    __array_ufunc__ = None

    def __rmul__(self, factor):
        """Return the entries times numbers."""
        return np.diag(factor * np.ones(len(self.offset))) @ self

    def __sub__(self, other):
        """Return the difference."""
        return self + (-1.0) * other


class Program:
    """A mixed-integer program whose first variables are an input within a box.

    Args:
        lower: of the input, [n].
        upper: of the input, [n].
        most: number of integer variables above which `UnsolvedError` is raised.
    """

    def __init__(self, lower, upper, most: int = _COLUMNS):
        self.low, self.high, self.integral = [], [], []
        self.rows, self.most = [], most
        self.input = self.variables(lower, upper)

    def variables(self, low, high, integral: bool = False) -> Value:
        """Return new variables within ends."""
        count, start = len(low), len(self.low)
        self.low, self.high, self.integral = [*self.low, *low], [*self.high, *high], self.integral + [integral] * count
        if sum(self.integral) > self.most or len(self.low) > _COLUMNS:
            raise UnsolvedError
        return Value(np.eye(count, _COLUMNS, start), np.zeros(count), np.array(low, float), np.array(high, float))

    def require(self, value: Value) -> None:
        """Require entries of at least 0."""
        self.rows.append(LinearConstraint(value.matrix, -value.offset, np.inf))

    def rectified(self, value: Value, below=0.0) -> Value:
        """Return h = max(z, below z), below in [0, 1).

        That is z = positive - negative of two variables >= 0, of which a switch lets one be above 0.
        """
        low, high = np.minimum(value.low, 0.0), np.maximum(value.high, 0.0)
        loose = np.flatnonzero((low < 0) & (high > 0))
        positive, negative = self.variables(0 * low, high), self.variables(0 * low, -low)
        switch = self.variables(0 * loose, 0 * loose + 1, integral=True)
        chosen = np.eye(len(low))[loose]
        for sign in (1.0, -1.0):
            self.require(sign * (value - positive + negative))
        self.require(high[loose] * switch - chosen @ positive)
        self.require((-low[loose]) * ((-1.0) * switch + 1.0) - chosen @ negative)
        return positive - below * negative

    def maxima(self, value: Value, members: np.ndarray) -> Value:
        """Return the largest entry of each set, bool [sets, n]: a switch says which."""
        sets, entries = np.nonzero(members)
        ends = ([end[row].max() for row in members] for end in (value.low, value.high))
        largest = self.variables(*ends)
        switch = self.variables(0 * sets, 0 * sets + 1, integral=True)
        owners, chosen = np.eye(len(members))[sets], np.eye(len(value.low))[entries]
        gap = owners @ largest - chosen @ value
        self.require(gap)
        self.require((largest.high[sets] - value.low[entries]) * ((-1.0) * switch + 1.0) - gap)
        self.require(owners.T @ switch + -1.0)
        return largest

    def least(self, value: Value, limits=()) -> float:
        """Return the minimum of a single entry; limits: (vector, number), vector . input <= number."""
        for vector, number in limits:
            self.require((-1.0) * (np.array([vector]) @ self.input) + number)
        count = len(self.low)
        solution = milp(
            value.matrix[0, :count],
            constraints=[LinearConstraint(row.A[:, :count], row.lb, row.ub) for row in self.rows],
            bounds=Bounds(self.low, self.high),
            integrality=np.array(self.integral, int),
            options={"mip_rel_gap": 0.0},
        )
        assert solution.status == 0, solution.message
        return solution.fun + value.offset[0]


def smallest_margin(layers, lower, upper, label: int, rival: int, limits=()) -> float:
    """Return the minimum of logit `label` less logit `rival` of dense layers with ReLU between them.

    Args:
        layers: (matrix [out, in], offset [out]) of each layer.
        lower: of the input, [in].
        upper: of the input, [in].
        label: class.
        rival: class.
        limits: (vector [in], number) of further constraints on the input, vector . input <= number.
    """
    program = Program(lower, upper)
    value = program.input
    for number, (matrix, offset) in enumerate(layers):
        value = matrix @ (program.rectified(value) if number else value) + offset
    return program.least(_margin(value, label, rival), limits)


def smallest_margin_of_model(model: keras.Model, lower, upper, label: int, most: int) -> float:
    """Return the minimum of the logit `label` less the largest other one, of a functional model.

    The matrices of affine layers are what these layers make of unit vectors.

    Args:
        model: the model.
        lower: of the input, [1, ...].
        upper: of the input, [1, ...].
        label: class.
        most: number of ReLUs and members of maxima above which `UnsolvedError` is raised.
    """
    program = Program(np.ravel(lower), np.ravel(upper), most)
    logits = _output(program, model, program.input)
    rivals = [rival for rival in range(len(logits.offset)) if rival != label]
    return min(program.least(_margin(logits, label, rival)) for rival in rivals)


def _margin(logits: Value, label: int, rival: int) -> Value:
    identity = np.eye(len(logits.offset))
    return (identity[label] - identity[rival])[None] @ logits


def _output(program: Program, model: keras.Model, value: Value) -> Value:
    values = {id(model.inputs[0]): value}
    for call in keras_private.calls(model):
        if not call.is_input:
            inputs = [values[id(tensor)] for tensor in call.input_tensors]
            shapes = [tuple(tensor.shape[1:]) for tensor in call.input_tensors]
            values[id(call.outputs[0])] = _called(program, call.operation, inputs, shapes)
    return values[id(model.outputs[0])]


def _called(program: Program, layer, inputs: list[Value], shapes: list[tuple]) -> Value:
    """Return the output of a layer."""
    if (inner := keras_private.functional(layer)) is not None:
        return _output(program, inner, inputs[0])
    if isinstance(layer, LAYERS.MaxPooling2D):
        return program.maxima(inputs[0], _matrices(layer, shapes)[0][0] > 0)
    if isinstance(layer, GroupSort) and layer.size == 2:
        pairs = np.repeat(np.eye(len(inputs[0].low) // 2), 2, axis=1)
        largest = program.maxima(inputs[0], pairs > 0)
        ends = np.eye(2)[:, None]
        least = pairs @ inputs[0] - largest
        return np.kron(np.eye(len(pairs)), ends[0].T) @ least + np.kron(np.eye(len(pairs)), ends[1].T) @ largest
    if isinstance(layer, LAYERS.ReLU) and not layer.threshold:
        return _rectified(program, inputs[0], layer.negative_slope, layer.max_value)
    if isinstance(layer, LAYERS.PReLU):
        return program.rectified(inputs[0], np.ravel(np.broadcast_to(layer.alpha, shapes[0])))
    function = getattr(layer, "activation", LINEAR)
    if not isinstance(layer, (LAYERS.Activation, *_AFFINE)) or function is not LINEAR and not _of(function):
        raise UnsolvedError
    value = inputs[0]
    if not isinstance(layer, LAYERS.Activation):
        matrices, offset = _matrices(layer, shapes)
        value = sum((matrix @ part for matrix, part in zip(matrices[1:], inputs[1:], strict=True)), matrices[0] @ value)
        value += offset
    return value if function is LINEAR else _rectified(program, value, *_of(function))


def _of(function) -> tuple | None:
    return _RECTIFIERS.get(function.__name__)


def _rectified(program: Program, value: Value, below: float, most: float | None) -> Value:
    value = program.rectified(value, below)
    return value if most is None else (-1.0) * program.rectified((-1.0) * value + most) + most


def _matrices(layer, shapes: list[tuple]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the matrix of each input of an affine layer, and its offset, from its outputs for unit vectors."""
    function = getattr(layer, "activation", None)
    if function is not None:
        layer.activation = LINEAR
    try:
        matrices, zeros = [], [np.zeros((1, *shape), np.float32) for shape in shapes]
        offset = _flat(layer, zeros)[0]
        for index, shape in enumerate(shapes):
            units = np.eye(int(np.prod(shape)), dtype=np.float32).reshape(-1, *shape)
            parts = [np.repeat(zero, len(units), 0) for zero in zeros]
            parts[index] = units
            matrices.append((_flat(layer, parts) - offset).T.astype(float))
    finally:
        if function is not None:
            layer.activation = function
    return matrices, offset.astype(float)


def _flat(layer, parts: list[np.ndarray]) -> np.ndarray:
    output = layer(parts[0] if len(parts) == 1 else parts, training=False)
    return np.asarray(output).reshape(len(parts[0]), -1)
