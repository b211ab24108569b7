"""Labels as class ids, from ids or one-hot rows."""

import numpy as np

from tfrobust.errors import InputError


def without_one_hot(labels: np.ndarray) -> np.ndarray:
    """Return ids [n] from one-hot rows [n, k] or a column of ids [n, 1]; labels of rank 1 are unchanged.

    Args:
        labels: array of numbers.

    Returns:
        [n]: int32 from one-hot rows, else the dtype given.

    Raises:
        ValueError: another rank, or rows that are not one-hot, since success against a soft label is not defined.
    """
    if labels.ndim == 2 and labels.shape[1] == 1:
        return labels[:, 0]
    if labels.ndim == 1:
        return labels
    if labels.ndim != 2:
        raise InputError(f"Labels are ids [n] or one-hot rows [n, k], not of the shape {list(labels.shape)}.")
    if labels.dtype.kind not in "biuf" or not (
        np.all((labels == 0) | (labels == 1)) and np.all(labels.sum(axis=1) == 1)
    ):
        raise InputError("Labels of rank 2 must be one-hot rows: one 1 and zeros in each.")
    return labels.argmax(axis=1).astype(np.int32)
