"""The exact smallest margin of a small ReLU network over a box, by HiGHS as a mixed-integer program."""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp


def smallest_margin(layers, lower, upper, label: int, rival: int, limits=()) -> float:
    """Return the minimum of logit `label` less logit `rival`.

    Each ReLU h = max(z, 0) of an input z in [l, u] is h >= 0, h >= z, h <= z - l (1 - s), h <= u s, s in {0, 1}.

    Args:
        layers: (matrix [out, in], offset [out]) of each dense layer; ReLU between them.
        lower: of the input, [in].
        upper: of the input, [in].
        label: class.
        rival: class.
        limits: (vector [in], number) of further constraints on the input, vector . input <= number.
    """
    columns = [np.arange(len(lower))]
    ends = [(np.asarray(lower, float), np.asarray(upper, float))]
    total, integral = len(lower), []
    rows = [(dict(enumerate(vector)), -np.inf, number) for vector, number in limits]
    for matrix, offset in layers[:-1]:
        low, high = ends[-1]
        positive, negative = np.maximum(matrix, 0), np.minimum(matrix, 0)
        least, most = positive @ low + negative @ high + offset, positive @ high + negative @ low + offset
        count = len(offset)
        hidden, switch = np.arange(total, total + count), np.arange(total + count, total + 2 * count)
        for unit in range(count):
            floor, ceiling = min(least[unit], 0.0), max(most[unit], 0.0)
            before = {int(column): weight for column, weight in zip(columns[-1], matrix[unit], strict=True)}
            negated = {column: -weight for column, weight in before.items()}
            rows.append(({hidden[unit]: 1.0, **negated}, offset[unit], np.inf))  # h - W x >= b
            rows.append(({hidden[unit]: 1.0, switch[unit]: -floor, **negated}, -np.inf, offset[unit] - floor))
            rows.append(({hidden[unit]: 1.0, switch[unit]: -ceiling}, -np.inf, 0.0))
        integral += [*switch]
        ends.append((np.zeros(count), np.maximum(most, 0.0)))
        columns.append(hidden)
        total += 2 * count
    matrix, offset = layers[-1]
    objective = np.zeros(total)
    objective[columns[-1]] = matrix[label] - matrix[rival]
    constraints = np.zeros((len(rows), total))
    for index, (weights, _, _) in enumerate(rows):
        for column, weight in weights.items():
            constraints[index, column] += weight
    low, high = np.zeros(total), np.full(total, np.inf)
    low[: len(lower)], high[: len(lower)] = lower, upper
    low[integral], high[integral] = 0.0, 1.0
    integrality = np.zeros(total)
    integrality[integral] = 1
    solution = milp(
        objective,
        constraints=LinearConstraint(constraints, [row[1] for row in rows], [row[2] for row in rows]),
        bounds=Bounds(low, high),
        integrality=integrality,
        options={"mip_rel_gap": 0.0},
    )
    assert solution.status == 0, solution.message
    return solution.fun + offset[label] - offset[rival]
