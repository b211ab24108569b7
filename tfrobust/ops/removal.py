"""Token removal in sentences, and the change of the loss or the embedding when each token is removed."""

from collections.abc import Callable

import tensorflow as tf

from tfrobust.errors import InputError

# Tokens in one forward pass. A layer keeps a few hundred numbers per token, so 2,048 sentences of 32 tokens (the
# removals of 64 sentences) are processed at once, and the removals of a large batch of long sentences in several
# passes.
_BLOCK_TOKENS = 2**16


def is_token(tokens: tf.Tensor) -> tf.Tensor:
    """Return where tokens are: bool in the shape of `tokens`; id 0 is padding."""
    return tf.not_equal(tokens, 0)


def without(tokens: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Remove one token from each sentence; later tokens move up, and padding fills the end.

    Args:
        tokens: integer [r, l].
        places: integer [r], 0 .. l - 1.

    Returns:
        [r, l] of the same dtype.
    """
    length = tokens.shape[1]
    positions = tf.range(length)[None]
    after = positions >= tf.cast(places, tf.int32)[:, None]
    return tf.gather(tf.pad(tokens, [[0, 0], [0, 1]]), positions + tf.cast(after, tf.int32), batch_dims=1)


def remove(tokens: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    """Remove the chosen tokens from sentences; the others move up in their order, and padding fills the end.

    Args:
        tokens: integer [b, l].
        chosen: bool [b, l].

    Returns:
        [b, l] of the same dtype.
    """
    remaining = tf.where(chosen, tf.zeros_like(tokens), tokens)
    order = tf.argsort(tf.cast(~is_token(remaining), tf.int32), axis=1, stable=True)
    return tf.gather(remaining, order, batch_dims=1)


def utility(objective: Callable, tokens: tf.Tensor, labels: tf.Tensor, *, block_size: int | None = None) -> tf.Tensor:
    r"""Compute the change of the loss when each token is removed.

    u_ij = |l(y_i, f(x_i)) - l(y_i, f(x_i \ x_ij))|, one batched pass for all tokens of all sentences.

    Args:
        objective: (tokens [r, l], labels [r]) -> float [r], the loss of each sentence.
        tokens: int32 [b, l], l static.
        labels: [b, ...].
        block_size: removals in one pass, >= 1; None: all of them, or as many as make 65,536 tokens.

    Returns:
        float32 [b, l], >= 0, 0 at padding, with gradients stopped.

    Raises:
        ValueError: block_size below 1, or tokens that are not [b, l] with static l.

    Source:
        Kim et al. 2021, definition 1 (discrete inputs).
    """
    clean = tf.cast(objective(tokens, labels), tf.float32)

    def change(removed, rows):
        return tf.abs(tf.cast(objective(removed, tf.gather(labels, rows)), tf.float32) - tf.gather(clean, rows))

    return _over_removals(change, tokens, block_size)


def sensitivity(embed: Callable, tokens: tf.Tensor, *, block_size: int | None = None) -> tf.Tensor:
    r"""Compute the distance that the embedding moves when each token is removed.

    s_ij = |phi(x_i) - phi(x_i \ x_ij)|_2, one batched pass for all tokens of all sentences.

    Args:
        embed: tokens [r, l] -> float [r, d], the penultimate features.
        tokens: as in `utility`.
        block_size: as in `utility`.

    Returns:
        float32 [b, l], >= 0, 0 at padding, with gradients stopped.

    Raises:
        ValueError: as `utility`.

    Source:
        Kim et al. 2021, definition 2 (discrete inputs).
    """
    clean = tf.cast(embed(tokens), tf.float32)

    def change(removed, rows):
        return tf.norm(tf.cast(embed(removed), tf.float32) - tf.gather(clean, rows), axis=-1)

    return _over_removals(change, tokens, block_size)


def _over_removals(change: Callable, tokens: tf.Tensor, block_size: int | None) -> tf.Tensor:
    """Apply (sentences without one token [r, l], their rows [r]) -> [r] to every token of every sentence: [b, l]."""
    if tokens.shape.rank != 2 or tokens.shape[1] is None:
        raise InputError(f"Tokens have the shape {tokens.shape}; removal needs sentences [b, l] of a known length.")
    if block_size is not None and block_size < 1:
        raise InputError(f"block_size is {block_size}; it must be at least 1 removal.")
    sentences, length = tokens.shape
    block_size = block_size or max(1, _BLOCK_TOKENS // length)

    def block(places):
        rows, columns = _pairs(places, length)
        return change(without(tf.gather(tokens, rows), columns), rows)

    if sentences is not None and sentences * length <= block_size:
        changes = block(tf.range(sentences * length))
    else:
        changes = _by_blocks(block, tf.shape(tokens)[0] * length, block_size)
    changes = tf.ensure_shape(tf.reshape(changes, [-1, length]), [sentences, length])
    return tf.stop_gradient(tf.where(is_token(tokens), changes, tf.zeros_like(changes)))


def _by_blocks(block: Callable, count: tf.Tensor, size: int) -> tf.Tensor:
    """Apply `block` to the numbers 0 .. count - 1, `size` at a time; the last block repeats its last number."""
    blocks = (count + size - 1) // size
    places = tf.minimum(tf.reshape(tf.range(blocks * size), [blocks, size]), count - 1)
    changes = tf.map_fn(block, places, parallel_iterations=1, fn_output_signature=tf.TensorSpec([size], tf.float32))
    return tf.reshape(changes, [-1])[:count]


def _pairs(numbers: tf.Tensor, length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Convert flat positions in a batch of sentences into rows and positions within a row."""
    return numbers // length, numbers % length
