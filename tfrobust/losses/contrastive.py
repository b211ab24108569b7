"""Masked contrastive loss: NT-Xent, SupCon, ASCL and related losses are this function with different masks."""

import functools
from collections.abc import Callable

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import similarity as similarities
from tfrobust.ops.shapes import batch_size
from tfrobust.structs import PairMasks

# Elements of one [block, m] array (32 MiB of float32). About a dozen such arrays coexist in the backward pass, so
# 16,384 x 16,384 pairs take a few hundred MiB instead of a dozen GiB.
_BLOCK_ELEMENTS = 2**23


def masked_contrastive(
    anchors: tf.Tensor,
    keys: tf.Tensor,
    masks: PairMasks | Callable[[tf.Tensor], PairMasks],
    *,
    temperature,
    similarity: str = "cosine",
    block_size: int | None = None,
) -> tf.Tensor:
    """Compute the loss that pulls each anchor to its positive keys and away from its negative keys, per anchor.

        l_i = -1/|P_i| sum_{j in P_i} log( exp(s_ij / t) / sum_{k in P_i u N_i} exp(s_ik / t) )

    A row without positives gives 0 with zero gradient. Keys in neither mask are ignored for the anchor. Above a size
    limit the anchors are processed in blocks, and each block is recomputed in the backward pass: memory then grows with
    n + m, not with n x m. Values and gradients stay the same.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> first = second = tf.eye(3)  # two views of three images
        >>> own = tf.eye(3, dtype=tf.bool)  # each view attracts its twin and repels the other images
        >>> masks = robust.losses.PairMasks(positive=own, negative=~own)
        >>> values = robust.losses.masked_contrastive(first, second, masks, temperature=1.0)
        >>> print(values.numpy().round(3))  # log(1 + 2 / e)
        [0.551 0.551 0.551]

    Args:
        anchors: float [n, d].
        keys: float [m, d]; with several replicas gathered from all of them, while the anchors stay local.
        masks: `PairMasks` of bool [n, m]; or, so that nothing of size n x m is ever held, a function from
            the positions of anchors (int32 [r]) to their `PairMasks` [r, m], such as `pairs.masks.ByRows`. It
            must not read variables, and no gradient flows through it.
        temperature: t > 0, number or scalar tensor; gradients flow.
        similarity: s, one of `ops.similarity.SIMILARITIES`. Distances use the embeddings unnormalized; pass
            `ops.similarity.normalize(z)` for distances on the unit sphere, as the released ASCL code does.
        block_size: anchors per block, >= 1; None: one block if it is small (or if a shape is not static), else as many
            anchors as keep one array of a block at 32 MiB.

    Returns:
        float32 [n], nats, >= 0.

    Raises:
        ValueError: temperature <= 0, block_size < 1, an unknown similarity, shapes that do not fit.

    Source:
        Khosla et al. 2020 (SupCon), arXiv:2004.11362, eq 2 (without its factor t / base temperature); Bui et
        al. 2021 (ASCL), arXiv:2101.10027, eqs 1 and 2, whose eq 3 is l(clean) + l(adversarial), averaged over
        the N images: twice the released code's mean over the 2N anchors.
    """
    anchors, keys = tf.cast(anchors, tf.float32), tf.cast(keys, tf.float32)
    if not callable(masks):
        masks = PairMasks(*map(tf.convert_to_tensor, masks))
    _check(anchors, keys, masks, temperature, block_size)
    temperature = tf.convert_to_tensor(temperature, tf.float32)
    if block_size is None:
        block_size = _automatic_block(anchors, keys, similarity)
    count = anchors.shape[0]
    if block_size is None or (count is not None and block_size >= count):
        pair_masks = masks(tf.range(batch_size(anchors))) if callable(masks) else masks
        return _rows(anchors, keys, pair_masks, temperature, similarity)
    masks_of = masks if callable(masks) else functools.partial(_rows_of, masks)
    return _blockwise(anchors, keys, masks_of, temperature, similarity, block_size)


def _rows_of(masks: PairMasks, rows: tf.Tensor) -> PairMasks:
    return PairMasks(tf.gather(masks.positive, rows), tf.gather(masks.negative, rows))


def _rows(anchors, keys, masks, temperature, similarity):
    """Compute the loss of anchors [r, d] with masks [r, m] at once."""
    positive, negative = masks
    candidate = positive | negative
    logits = similarities.pairwise(anchors, keys, similarity) / temperature
    zeros = tf.zeros_like(logits)
    largest = tf.reduce_max(tf.where(candidate, logits, zeros + tf.float32.min), axis=1, keepdims=True)
    # Only candidates are kept after the shift. Any other entry may lie far above the largest candidate, and its exp
    # would overflow into a NaN gradient even inside a `where`.
    logits = tf.where(candidate, logits - tf.stop_gradient(largest), zeros)
    total = tf.reduce_sum(tf.where(candidate, tf.exp(logits), zeros), axis=1)
    count = tf.reduce_sum(tf.cast(positive, tf.float32), axis=1)
    mean = tf.reduce_sum(tf.where(positive, logits, zeros), axis=1) / tf.maximum(count, 1.0)
    usable = count > 0
    values = tf.math.log(tf.where(usable, total, tf.ones_like(total))) - mean
    return tf.where(usable, values, tf.zeros_like(values))


def _blockwise(anchors, keys, masks_of, temperature, similarity, block_size):
    """Compute `_rows` over blocks of anchors, forward and backward each in a loop that keeps no block."""
    count = batch_size(anchors)
    blocks = (count + block_size - 1) // block_size
    # Every block has one static size; the surplus places of the last block repeat the last anchor and have weight 0.
    places = tf.reshape(tf.range(blocks * block_size), [blocks, block_size])
    rows = tf.minimum(places, count - 1)

    def losses(anchors, keys, temperature, block):
        return _rows(tf.gather(anchors, block), keys, masks_of(block), temperature, similarity)

    @tf.custom_gradient
    def forward(anchors, keys, temperature):
        # Stopped, because an eager tape would keep the arrays of every block although the gradient below replaces
        # theirs.
        detached = [tf.stop_gradient(tensor) for tensor in (anchors, keys, temperature)]
        values = tf.map_fn(
            functools.partial(losses, *detached),
            rows,
            parallel_iterations=1,
            fn_output_signature=tf.TensorSpec([block_size], tf.float32),
        )

        def backward(upstream):
            padding = [[0, blocks * block_size - count]]
            weights = tf.reshape(tf.pad(upstream, padding), [blocks, block_size])
            return _gradients(losses, (anchors, keys, temperature), rows, weights)

        return tf.reshape(values, [-1])[:count], backward

    return tf.ensure_shape(forward(anchors, keys, temperature), [anchors.shape[0]])


def _gradients(losses, inputs, rows, weights):
    """Compute the gradients of sum_i weight_i loss_i by anchors, keys and temperature, block by block."""

    def add_block(position, *sums):
        # Copies, because anchors and keys may be one tensor, and each must get its own part only.
        sources = [tf.identity(tensor) for tensor in inputs]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            values = losses(*sources, rows[position])
        gradients = tape.gradient(values, sources, output_gradients=weights[position])
        return position + 1, *(old + tf.convert_to_tensor(new) for old, new in zip(sums, gradients, strict=True))

    _, *sums = tf.while_loop(
        lambda position, *_: position < tf.shape(rows)[0],
        add_block,
        (tf.constant(0), *(tf.zeros_like(tensor) for tensor in inputs)),
        parallel_iterations=1,
    )
    return tuple(sums)


def _automatic_block(anchors, keys, similarity):
    """Return the number of anchors per block, or None where a shape is not static."""
    (count, features), width = anchors.shape, keys.shape[0]
    if None in (count, features, width):
        return None
    per_anchor = width * similarities.elements_per_pair(similarity, features)
    return min(count, max(1, _BLOCK_ELEMENTS // max(1, per_anchor)))


def _check(anchors, keys, masks, temperature, block_size):
    if isinstance(temperature, (int, float)) and not temperature > 0:
        raise InputError(f"temperature is {temperature}; it must be > 0.")
    if block_size is not None and block_size < 1:
        raise InputError(f"block_size is {block_size}; it must be at least 1 anchor.")
    if callable(masks):
        return
    shape = [anchors.shape[0], keys.shape[0]]
    for name, mask in zip(PairMasks._fields, masks, strict=True):
        if not mask.shape.is_compatible_with(shape):
            raise InputError(f"masks.{name} has shape {tuple(mask.shape)}; anchors and keys require {shape}.")
