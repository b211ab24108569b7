"""Square: random windows of decreasing size, kept where the margin increases; no gradients.

A step draws its windows and proposes one changed image, which `RandomSearch` keeps or drops:

    Linf                              L2 and L1: the change has a fixed norm, so it is moved
    +-----------------+               +-----------------+
    |    +-----+      |               |    +-----+      |    A gets a pattern of two hills (+ above -, or lying),
    |    |+-eps|      |               |    |  A  |+---+ |    with the norm that A and B held, and what is free
    |    +-----+      |               |    +-----+| B | |    B is emptied; where both overlap, A counts
    |                 |               |           +---+ |
    +-----------------+               +-----------------+

    _draws                            corner, signs and second corner, from the example's own key
    _windows                          the masks of the windows; L2, L1: where the pattern lies in its table
    _proposals                        the function (point, draw) -> proposed point; `_rearranged` is that of L2 and L1
    shares, sides                     the schedule of the window's size
"""

import math
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.random_search import RandomSearch
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.ops import hashing
from tfrobust.ops.shapes import pick, select

# Added to denominators, as in the official code.
_TINY = 1e-12
# Tolerance by which a norm may exceed epsilon, in units of epsilon.
_ROUNDING = 1e-6
# Last steps of each share: it starts at `initial_share` and is halved after each of them.
_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
# Number of steps for which the schedule was written.
_SCHEDULED = 10_000


class _Draws(NamedTuple):
    """Random draws of one step for each example; for n steps, with an axis [n] in front.

    Attributes:
        rows: bool [b, h, 1, 1], rows of the window; with a range of frames [b, h, 1, t c], False outside of it.
        columns: bool [b, 1, w, 1], columns of the window.
        signs: bool [b, 1, 1, c]; of clips [b, 1, 1, t c].
        extra: in L2 and L1: the position of the image's corner in the table of patterns, int32 [b, 1], and rows and
            columns of the second window.
    """

    rows: tf.Tensor
    columns: tf.Tensor
    signs: tf.Tensor
    extra: tuple[tf.Tensor, ...] = ()


@keras.saving.register_keras_serializable(package="tfrobust")
class Square(RandomSearch):
    """Square attack: random search with square windows, from logits only, one forward pass per step.

    A step changes the best point so far in one window and is kept where the margin increases (largest other logit minus
    the label's; targeted: the target's minus the largest other) or the goal is reached.

        Linf: start: vertical stripes of +-epsilon. Step: the whole window, for each channel, to +epsilon or
              -epsilon of the image (what adding +-2 epsilon and clipping comes to).
        L2:   start: tiles of `window_pattern` with random signs, scaled to norm epsilon. Step:
              window A gets the pattern +- its own normalized content, with the norm that window B gives up and
              that is not used yet; B is emptied; the change is scaled to norm epsilon and clipped.
        L1:   as L2, with the L1 norm, and projected instead of scaled.

    The side of the window follows sqrt(share x h x w), the share halved after 10, 50, 200, 500, 1000, 2000, 4000, 6000,
    8000 steps. Draws are independent per example; the official code draws positions and patterns (Linf: also signs)
    once for its whole batch, which is equivalent for a single example. As there, the last row and column at which a
    window would fit are never drawn. Unlike there, a margin of exactly 0 ends the search only if the goal is reached,
    and targeted runs use the margin too, not the cross-entropy.

    A clip of t frames is treated as an image of t c channels: one window through all frames, with signs of its own in
    each. With `window_frames` 'range' the window also has a random range of frames; it extends over share^(1/3) of the
    frames and share^(2/3) of the pixels of each.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * (images[:, 0, 0] - 0.5)  # two classes: which of two channels is brighter
        >>> images = np.array([[0.6, 0.4], [1.0, 0.0]], "float32").reshape(2, 1, 1, 2)
        >>> attack = robust.attacks.Square(robust.attacks.ThreatModel(epsilon=0.2), steps=50)
        >>> robust.attacks.run_attack(attack, predict, images, np.array([0, 0])).success.tolist()
        [True, False]

    Args:
        threat: the threat model, with its radius.
        steps: windows tried per restart, one query each, >= 1; the start is one query more.
        restarts: runs from new random starts, for the remaining examples, >= 1.
        initial_share: share of the pixels in the first window, 0 < share <= 1.
        rescale_schedule: True: spread the schedule, written for 10,000 steps, over `steps`. AutoAttack does not.
        accept_ties: True: also keep a change that leaves the margin equal, to cross the plateaus of rounded logits.
        window_frames: for clips, 'all' or 'range': the frames of a window.

    Raises:
        ValueError: a value out of its range.

    Source:
        Andriushchenko et al. 2020, https://arxiv.org/abs/1912.00049, algorithms 1-3; L1 and the constants from
        AutoAttack, Croce & Hein 2020, https://arxiv.org/abs/2003.01690.
    """

    name = "square"
    clip_settings = ("window_frames",)

    def __init__(
        self,
        threat: ThreatModel | None = None,
        *,
        steps: int = 5000,
        restarts: int = 1,
        initial_share: float = 0.8,
        rescale_schedule: bool = False,
        accept_ties: bool = False,
        window_frames: str = "all",
    ):
        self.threat = required_threat(threat, type(self).__name__)
        self.steps = steps
        self.restarts = restarts
        self.initial_share = initial_share
        self.rescale_schedule = rescale_schedule
        self.accept_ties = accept_ties
        self.window_frames = require_choice(window_frames, "Square.window_frames", ("all", "range"))
        checks.check_counts(self, "steps", "restarts")
        if not 0 < initial_share <= 1:
            raise InputError(
                f"Square.initial_share is {initial_share!r}; it is a share of the pixels, above 0, up to 1."
            )

    def maximize(self, objective, images, key):
        """Raise NotImplementedError: Square uses logits only and is for evaluation."""
        raise NotImplementedError(
            "Square takes thousands of queries and uses logits only; it is for evaluation, not for training."
        )

    def rounds(self, class_count: int) -> int:
        """Return the number of restarts."""
        return self.restarts

    def _ranges(self, images) -> bool:
        return self.window_frames == "range" and images.shape.rank == 5

    def _shares(self) -> np.ndarray:
        return shares(steps=self.steps, initial_share=self.initial_share, rescale=self.rescale_schedule)

    def _sides(self, images) -> np.ndarray:
        height, width, _ = _sizes(images)
        return sides(height, width, self.threat.norm, self._shares() ** (2 / 3 if self._ranges(images) else 1))

    def _draws(self, images, keys, iterations) -> _Draws:
        height, width, channels = _sizes(images)
        # Examples at the end of their round may be advanced further, without effect on the result.
        iterations, step = tf.minimum(iterations, self.steps - 1), iterations
        side = tf.gather(tf.constant(self._sides(images)), iterations)
        bits = hashing.random_bits(keys, step, 5 + channels + self._ranges(images), "square step")
        corners = hashing.below(bits[..., :4], tf.stack([height - side, width - side] * 2, axis=-1))
        coins = hashing.coins(bits[..., 4 : 5 + channels])
        frames = None
        if self._ranges(images):
            count = images.shape[1]
            lengths = np.maximum(np.rint(np.cbrt(self._shares()) * count), 1).astype(np.int32)
            length = tf.gather(tf.constant(lengths), iterations)
            frames = _within(hashing.below(bits[..., -1], count - length + 1), length, count)
        return self._windows(images, side, corners, coins[..., 1:], coins[..., 0], frames)

    def _windows(self, images, side, corners, signs, transposed, frames=None) -> _Draws:
        """Build the masks that a step needs from its random draws.

        Args:
            images: float32 [b, h, w, c], or clips [b, t, h, w, c].
            side: int32 [n, b].
            corners: int32 [n, b, 4], row and column of the first and of the second window.
            signs: bool [n, b, c].
            transposed: bool [n, b], True where the pattern is transposed.
            frames: bool [n, b, t], those of the window; None: all.
        """
        height, width, _ = _sizes(images)

        def window(row, column):
            rows = _within(row, side, height)[..., None, None]
            if frames is not None:
                rows &= tf.repeat(frames, images.shape[-1], axis=-1)[..., None, None, :]
            return rows, _within(column, side, width)[..., None, :, None]

        row, column, *other = tf.unstack(corners, axis=-1)
        rows, columns = window(row, column)
        signs = signs[..., None, None, :]
        if self.threat.norm == "linf":
            return _Draws(rows, columns, signs)
        sides = np.unique(self._sides(images))
        row_of_side = tf.constant(np.searchsorted(sides, np.arange(sides[-1] + 1)), tf.int32)
        # `placed_patterns` has each pattern upright and transposed inside of zeros, twice as large as the image. A
        # window at (row, column) is then the part of a table that begins at (h - row, w - column): one gather of
        # constant size for windows of any size.
        table = 2 * tf.gather(row_of_side, side) + tf.cast(transposed, tf.int32)
        corner = (table * 2 * height + height - row) * 2 * width + width - column
        return _Draws(rows, columns, signs, (corner[..., None], *window(*other)))

    def _proposals(self, images):
        """Return the function (point, draw) -> the proposed point."""
        propose = self._proposals_of_images(_stacked(images), np.unique(self._sides(images)))
        return lambda point, draw: _unstacked(propose(_stacked(point), draw), images)

    def _proposals_of_images(self, images, known_sides):
        if self.threat.norm == "linf":
            low, high = self.threat.bounds
            lower = tf.maximum(images - self.threat.epsilon, low)
            upper = tf.minimum(images + self.threat.epsilon, high)
            return lambda point, draw: pick(draw.rows & draw.columns, pick(draw.signs, upper, lower), point)
        height, width, _ = images.shape[1:]
        patterns = placed_patterns(known_sides, height, width, self.threat.norm)
        patterns = tf.constant(patterns.ravel())
        inside = tf.constant((np.arange(height)[:, None] * 2 * width + np.arange(width)).reshape(1, -1), tf.int32)

        def propose(point, draw):
            corner, *other = draw.extra
            pattern = tf.reshape(tf.gather(patterns, corner + inside), [-1, height, width, 1])
            return self._bounded(images, self._rearranged(point - images, pattern, draw, *other))

        return propose

    def _rearranged(self, change, pattern, draw: _Draws, other_rows, other_columns):
        """Move the change [b, h, w, c] of the second window into the first, where the pattern is added."""
        channels, epsilon = change.shape[-1], self.threat.epsilon
        first = tf.cast(draw.rows & draw.columns, change.dtype)
        if draw.rows.shape[-1] > 1:  # a range of frames
            active = tf.reduce_max(first, [1, 2], keepdims=True)
            pattern, channels = pattern * active, tf.reduce_sum(active, -1, keepdims=True)
        either = tf.maximum(first, tf.cast(other_rows & other_columns, change.dtype))
        content, given_up = change * first, change * either
        new = tf.where(draw.signs, pattern, -pattern) + content / (_TINY + self._size(content))
        if self.threat.norm == "l2":
            used = tf.reduce_sum(tf.square(change), [1, 2, 3], keepdims=True)
            free = tf.maximum(epsilon**2 - used, 0.0) / channels
            size = tf.sqrt(free + tf.reduce_sum(tf.square(given_up), [1, 2], keepdims=True))
        else:
            # As in the official code: each channel gets all that is free, and `channels` times what its windows held.
            # The projection shortens the change.
            used = tf.reduce_sum(tf.abs(change), [1, 2, 3], keepdims=True)
            size = tf.maximum(epsilon - used, 0.0) + channels * self._size(given_up)
        return change - given_up + new * (size / (_TINY + self._size(new)))

    def _bounded(self, images, change):
        """Return the image plus a change of any size: in L2 scaled to epsilon and clipped, in L1 projected."""
        if self.threat.norm == "l1":
            return self._projected(images, images + change)
        length = tf.sqrt(tf.reduce_sum(tf.square(change), [1, 2, 3], keepdims=True))
        return tf.clip_by_value(images + change * (self.threat.epsilon / (length + _TINY)), *self.threat.bounds)

    def _projected(self, images, candidate):
        # With one channel the change has norm epsilon, and clipping to the box is the projection: no sorting needed.
        clipped = tf.clip_by_value(candidate, *self.threat.bounds)
        outside = self.threat.distance(images, clipped) > self.threat.epsilon * (1 + _ROUNDING)
        return tf.cond(
            tf.reduce_any(outside),
            lambda: select(outside, self.threat.project(images, candidate), clipped),
            lambda: clipped,
        )

    def _size(self, content):
        """Return the norm within each channel, [b, 1, 1, c]."""
        if self.threat.norm == "l2":
            return tf.sqrt(tf.reduce_sum(tf.square(content), [1, 2], keepdims=True))
        return tf.reduce_sum(tf.abs(content), [1, 2], keepdims=True)

    def _first_point(self, images, keys):
        _check_images(images)
        return _unstacked(self._first_image(_stacked(images), keys), images)

    def _first_image(self, images, keys):
        height, width, channels = images.shape[1:]
        step = tf.zeros_like(keys[:, 0])
        if self.threat.norm == "linf":
            bits = hashing.random_bits(keys, step, width * channels, "square start")
            return self._striped(images, tf.reshape(hashing.coins(bits), [-1, 1, width, channels]))
        _, _, down, across = tiling(height, width)
        bits = hashing.random_bits(keys, step, down * across * (1 + channels), "square start")
        coins = hashing.coins(tf.reshape(bits, [-1, down, across, 1 + channels]))
        return self._tiled(images, coins[..., 1:], coins[..., 0])

    def _striped(self, images, signs):
        """Return the Linf start from signs bool [b, 1, w, c]."""
        return tf.clip_by_value(images + self.threat.epsilon * _plus_minus(signs), *self.threat.bounds)

    def _tiled(self, images, signs, transposed):
        """Return the L2 and L1 start from signs bool [b, down, across, c] and transposed bool [b, down, across]."""
        height, width, channels = images.shape[1:]
        side, before, down, across = tiling(height, width)
        pattern = window_pattern(side, self.threat.norm).astype(np.float32)
        upright, lying = (tf.constant(half.reshape(side, 1, side, 1)) for half in (pattern, pattern.T))
        tiles = tf.where(transposed[:, :, None, :, None, None], lying, upright)
        tiles *= _plus_minus(signs)[:, :, None, :, None, :]
        tiles = tf.reshape(tiles, [-1, down * side, across * side, channels])
        around = [[before, height - before - down * side], [before, width - before - across * side]]
        return self._bounded(images, tf.pad(tiles, [[0, 0], *around, [0, 0]]))


def shares(*, steps: int, initial_share: float, rescale: bool) -> np.ndarray:
    """Return the share of the pixels in the window at each step, float64 [steps].

    Args:
        steps: of one round, >= 1.
        initial_share: share of the pixels in the first window, 0 < share <= 1.
        rescale: True: spread the schedule of 10,000 steps over `steps`.
    """
    iterations = np.arange(steps)
    if rescale:
        iterations = (iterations / steps * _SCHEDULED).astype(np.int64)
    return initial_share / 2.0 ** np.searchsorted(_HALVINGS, iterations, side="left")


def sides(height: int, width: int, kind: str, share: np.ndarray) -> np.ndarray:
    """Return the side of the window at each step.

    s = round(sqrt(share x h x w)), at least 1 (Linf), or at least 3 and odd (L2, L1); never above min(h, w).

    Args:
        height: of the images, in pixels, >= 1.
        width: of the images, in pixels, >= 1.
        kind: 'linf', 'l2' or 'l1'.
        share: float64 [steps], of the pixels in the window.

    Returns:
        int32 [steps], in pixels.
    """
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


def _check_images(images):
    if images.shape.rank not in (4, 5) or None in images.shape[1:]:
        raise InputError(
            f"Square needs images [b, h, w, c] or clips [b, t, h, w, c] of known size, found the shape {images.shape}."
        )


def _sizes(images) -> tuple[int, int, int]:
    """Return height, width and number of channels of images, and of clips as images of t c channels."""
    *frames, height, width, channels = images.shape[1:]
    return height, width, channels * math.prod(frames)


def _stacked(clips):
    """Return clips [b, t, h, w, c] as images of t c channels, frame after frame; images are returned unchanged."""
    if clips.shape.rank == 4:
        return clips
    return tf.reshape(tf.transpose(clips, [0, 2, 3, 1, 4]), [-1, *_sizes(clips)])


def _unstacked(images, clips):
    """Return images as clips of the shape of `clips`, the inverse of `_stacked`."""
    if clips.shape.rank == 4:
        return images
    count, height, width, channels = clips.shape[1:]
    return tf.transpose(tf.reshape(images, [-1, height, width, count, channels]), [0, 3, 1, 2, 4])


def _within(corner, side, size: int):
    """Return which of `size` positions lie in [corner, corner + side): int32 [...] -> bool [..., size]."""
    offset = tf.range(size) - corner[..., None]
    return (offset >= 0) & (offset < side[..., None])


def _plus_minus(signs):
    return tf.where(signs, 1.0, -1.0)
