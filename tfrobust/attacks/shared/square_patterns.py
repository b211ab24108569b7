"""Tables of the Square attack, built once per image shape: window sides by step, and window patterns."""

import numpy as np

# Last steps of each share: it starts at `initial_share` and is halved after each of them.
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
# Number of steps for which the schedule was written.
_SCHEDULED = 10_000


def sides(height: int, width: int, kind: str, *, steps: int, initial_share: float, rescale: bool) -> np.ndarray:
    """Return the side of the window at each step.

    s = round(sqrt(share x h x w)), at least 1 (Linf), or at least 3 and odd (L2, L1); never above min(h, w).

    Args:
        height: of the images, in pixels, >= 1.
        width: of the images, in pixels, >= 1.
        kind: 'linf', 'l2' or 'l1'.
        steps: of one round, >= 1.
        initial_share: share of the pixels in the first window, 0 < share <= 1.
        rescale: True: spread the schedule of 10,000 steps over `steps`.

    Returns:
        int32 [steps], in pixels.
    """
    iterations = np.arange(steps)
    if rescale:
        iterations = (iterations / steps * _SCHEDULED).astype(np.int64)
    share = initial_share / 2.0 ** np.searchsorted(_HALVINGS, iterations, side="left")
    side = np.rint(np.sqrt(share * height * width)).astype(np.int32)
    if kind == "linf":
        side = np.maximum(side, 1)
    else:
        side = np.maximum(side, 3)
        side += side % 2 == 0
    return np.minimum(side, min(height, width)).astype(np.int32)


def window_pattern(side: int, kind: str) -> np.ndarray:
    """Return the pattern of an L2 or L1 window: two hills of opposite sign, one above the other, of norm 1.

    Both hills have the same norm. Their height decreases in rectangular rings from the center.

    Args:
        side: of the window, >= 1; a window of one pixel has one hill, negative.
        kind: 'l2' or 'l1'.

    Returns:
        float64 [side, side].
    """
    upper = _hill(side // 2, side, kind) if side > 1 else np.zeros([0, side])
    return _normalized(np.concatenate([upper, -_hill(side - side // 2, side, kind)]), kind)


def placed_patterns(window_sides: np.ndarray, height: int, width: int, kind: str) -> np.ndarray:
    """Return all patterns, upright and transposed, each in the center of zeros.

    The pattern with its corner at (row, column) of an image is then the part [h - row, 2 h - row) x [w - column, 2 w -
    column) of a table.

    Args:
        window_sides: int [m], each <= min(h, w).
        height: of the images, in pixels.
        width: of the images, in pixels.
        kind: 'l2' or 'l1'.

    Returns:
        float32 [m, 2, 2 h, 2 w].
    """
    tables = np.zeros([len(window_sides), 2, 2 * height, 2 * width], np.float32)
    for table, side in zip(tables, window_sides, strict=True):
        pattern = window_pattern(int(side), kind)
        table[0, height : height + side, width : width + side] = pattern
        table[1, height : height + side, width : width + side] = pattern.T
    return tables


def tiling(height: int, width: int) -> tuple[int, int, int, int]:
    """Return the grid of the L2 and L1 start: (side, margin before the first tile, tiles down, tiles across).

    Five by five tiles of side min(h, w) // 5, with the remaining pixels before and after. Small images have tiles of
    one pixel, as many as fit after the margin.
    """
    short = min(height, width)
    side = max(short // 5, 1)
    before = max((short - 5 * side) // 2, 0)
    return side, before, (height - before) // side, (width - before) // side


def _hill(height: int, width: int, kind: str) -> np.ndarray:
    """Return a hill of norm 1: ring i around the center adds 1 / (i + 1)^2 (L2) or 1 / (i + 1)^4 (L1) to its inside."""
    hill = np.zeros([height, width])
    row, column = height // 2, width // 2
    for ring in range(max(row, column) + 1):
        rows = slice(max(row - ring, 0), row + ring + 1)
        hill[rows, max(column - ring, 0) : column + ring + 1] += (ring + 1.0) ** (-2 if kind == "l2" else -4)
    return _normalized(hill, kind)


def _normalized(pattern: np.ndarray, kind: str) -> np.ndarray:
    return pattern / (np.sqrt(np.sum(pattern**2)) if kind == "l2" else np.sum(np.abs(pattern)))
