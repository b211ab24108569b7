"""The recordings of other programs below tests/golden; a page next to each says what its entries mean."""

import functools
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).with_name("golden")


@functools.cache
def arrays(name: str) -> dict[str, np.ndarray]:
    """Return the arrays of an archive by their names."""
    with np.load(FOLDER / f"{name}.npz") as archive:
        return dict(archive)
