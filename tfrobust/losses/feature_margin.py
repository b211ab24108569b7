"""Feature contrastive loss: it removes features of low utility from an embedding and keeps those of high utility."""

import tensorflow as tf

from tfrobust.errors import InputError

FORMS = ("paper", "inside")


def feature_margin(
    embeddings: tf.Tensor,
    low_utility: tf.Tensor,
    high_utility: tf.Tensor,
    *,
    margin: float = 1.0,
    form: str = "paper",
    mask: tf.Tensor | None = None,
) -> tf.Tensor:
    """Compute the feature contrastive loss |z - z+|^2 + max(0, margin - |z - z-|)^2, per example.

    | | is the Euclidean norm. The loss pulls an embedding to that of the copy without the useless details, and pushes
    it at least `margin` away from that of the copy without the useful ones.

    Example:
        >>> from tfrobust import keras as robust
        >>> here, near, far = [[0.0, 0.0]], [[0.1, 0.0]], [[0.0, 0.6]]
        >>> print(robust.losses.feature_margin(here, near, far, margin=1.0).numpy().round(3))
        [0.17]

    Args:
        embeddings: z, float [b, d].
        low_utility: z+, float [b, d], of the images with noise on the features of lowest utility.
        high_utility: z-, float [b, d], of the images with noise on the features of highest utility.
        margin: > 0, the paper's gamma, whose value it does not state.
        form: "paper": the square of the hinge, as printed. "inside": max(0, margin - |z - z-|^2), with a margin for
            squared distances.
        mask: bool [b]; for examples with False only the first term counts. None: all True.

    Returns:
        float32 [b], >= 0. The gradient of a distance of 0 is 0.

    Raises:
        ValueError: margin <= 0, or an unknown form.

    Source:
        Kim et al. 2021, appendix B, eq. 9; after Hadsell et al. 2006.
    """
    if not margin > 0 or form not in FORMS:
        raise InputError(f"feature_margin takes a margin > 0 and one of {list(FORMS)}, not {margin} and {form!r}.")
    embeddings, low_utility, high_utility = (
        tf.cast(vectors, tf.float32) for vectors in (embeddings, low_utility, high_utility)
    )
    near = tf.reduce_sum(tf.square(embeddings - low_utility), axis=-1)
    far = tf.reduce_sum(tf.square(embeddings - high_utility), axis=-1)
    if form == "inside":
        short = tf.nn.relu(margin - far)
    else:
        apart = far > 0
        # The inner `where` keeps the infinite slope of the square root at 0 out of the gradient.
        distance = tf.where(apart, tf.sqrt(tf.where(apart, far, 1.0)), 0.0)
        short = tf.square(tf.nn.relu(margin - distance))
    return near + (short if mask is None else tf.where(mask, short, 0.0))
