"""Position vectors of image patches: the fixed ones, and how a table of learned ones is resized."""

import numpy as np

CUBIC = -0.75  # the free coefficient of PyTorch's bicubic interpolation; TensorFlow's is -0.5


def patch_sinusoids(rows: int, columns: int, width: int) -> np.ndarray:
    """Return fixed position vectors: [sin(r w), cos(r w), sin(c w), cos(c w)] of the patch in row r and column c.

    w runs over width / 4 frequencies 10000^(-4 i / width), i = 0, 1, ...

    Args:
        rows: patches of a column of the image.
        columns: patches of a row of the image.
        width: features, a multiple of 4.

    Returns:
        float32 [rows * columns, width]; patches are numbered row by row.

    Source: Chen et al. 2021 (MoCo v3), section 5; the order of the four parts is that of the released code.
    """
    frequencies = 10000.0 ** (-4 * np.arange(width // 4) / width)
    row, column = (coordinate.reshape(-1, 1) * frequencies for coordinate in np.indices((rows, columns)))
    return np.concatenate([np.sin(row), np.cos(row), np.sin(column), np.cos(column)], axis=1).astype(np.float32)


def resizing_matrix(size: int, target: int) -> np.ndarray:
    """Return the matrix that resizes an axis of a position table, as DINO does it.

    DINO resizes bicubically in PyTorch by the factor (target + 0.1) / size. A given factor also decides which places
    are sampled: (i + 0.5) size / (target + 0.1) - 0.5. Places outside the table are those at its border.

    Args:
        size: patches of the axis in the table.
        target: patches of the axis in the image.

    Returns:
        float64 [target, size]; each row sums to 1.

    Source: Caron et al. 2021 (DINO), interpolate_pos_encoding of the released code.
    """
    places = (np.arange(target) + 0.5) * size / (target + 0.1) - 0.5
    matrix = np.zeros((target, size))
    for offset in (-1, 0, 1, 2):
        neighbors = np.floor(places).astype(int) + offset
        weights = _cubic(np.abs(places - neighbors))
        np.add.at(matrix, (np.arange(target), np.clip(neighbors, 0, size - 1)), weights)
    return matrix


def _cubic(distance: np.ndarray) -> np.ndarray:
    """Return Keys's convolution kernel at distances in [0, 2]."""
    near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance**2 + 1
    far = CUBIC * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, far)
