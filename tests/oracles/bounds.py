"""Bounds of small ReLU networks as loops over NumPy arrays in float64, and their exact ranges by enumeration.

A network is a list of (matrix [outputs, inputs], offset [outputs]) with ReLU between them.
"""

import itertools

import numpy as np
from scipy.optimize import linprog


def forward(layers, image):
    for matrix, offset in layers[:-1]:
        image = np.maximum(matrix @ image + offset, 0.0)
    matrix, offset = layers[-1]
    return matrix @ image + offset


def hidden_boxes(layers, lower, upper):
    """Boxes before each activation, and that of the output: each entry takes the end that its sign asks for."""
    boxes = []
    for matrix, offset in layers:
        low, high = [], []
        for row, shift in zip(matrix, offset, strict=True):
            low.append(sum(w * (a if w > 0 else b) for w, a, b in zip(row, lower, upper, strict=True)) + shift)
            high.append(sum(w * (b if w > 0 else a) for w, a, b in zip(row, lower, upper, strict=True)) + shift)
        boxes.append((np.array(low), np.array(high)))
        lower, upper = np.maximum(low, 0.0), np.maximum(high, 0.0)
    return boxes


def linear_lower_bound(layers, boxes, lower, upper, function, slope):
    """Lower bound of function . output by CROWN, neuron by neuron."""
    row, constant = np.array(function, float), 0.0
    for number in reversed(range(len(layers))):
        matrix, offset = layers[number]
        constant += float(row @ offset)
        row = row @ matrix
        if not number:
            break
        before = list(row)
        for unit, (low, high) in enumerate(zip(*boxes[number - 1], strict=True)):
            if low >= 0:
                continue
            if high <= 0:
                row[unit] = 0.0
                continue
            chord = high / (high - low)
            under = {"adaptive": float(high > -low), "zero": 0.0, "same": chord}[slope]
            if before[unit] >= 0:
                row[unit] = before[unit] * under
            else:
                row[unit] = before[unit] * chord
                constant += before[unit] * -low * chord
    return constant + sum(w * (a if w > 0 else b) for w, a, b in zip(row, lower, upper, strict=True))


def exact_minimum(layers, lower, upper, function):
    """Least value of function . output of a two-layer network: a linear program per pattern of active units."""
    (first, shift), (second, offset) = layers
    least = np.inf
    for pattern in itertools.product((0.0, 1.0), repeat=len(shift)):
        active = np.array(pattern)
        row = np.array(function) @ (second * active)
        signs = np.where(active > 0, -1.0, 1.0)  # active: matrix x + shift >= 0
        optimum = linprog(
            row @ first, A_ub=signs[:, None] * first, b_ub=-signs * shift, bounds=list(zip(lower, upper, strict=True))
        )
        if optimum.status == 0:
            least = min(least, optimum.fun + row @ shift + np.array(function) @ offset)
    return least
