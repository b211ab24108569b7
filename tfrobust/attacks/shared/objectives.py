"""Objectives that attacks maximize: functions `inputs -> [b]`, larger = worse for the model.

Each factory takes `predict`: inputs [b, ...] -> logits [b, k], and holds the labels or embeddings to compare with. The
functions of logits below are for evaluation attacks, which need the logits themselves too.
"""

from collections.abc import Callable

import tensorflow as tf

from tfrobust.losses import classification
from tfrobust.losses import contrastive as contrastive_loss
from tfrobust.ops import batch_checks, probabilities
from tfrobust.structs import PairMasks


def cross_entropy(predict: Callable, labels: tf.Tensor) -> Callable:
    """Return the cross-entropy, -log softmax(predict(x))_y: the objective of FGSM and PGD.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: images[:, 0, 0]
        >>> objective = robust.attacks.objectives.cross_entropy(predict, np.array([0]))
        >>> print(objective(np.zeros((1, 1, 1, 2), "float32")).numpy().round(3))
        [0.693]

    Args:
        predict: inputs -> logits [b, k].
        labels: int [b], or float [b, k] a distribution over the classes.

    Returns:
        inputs -> float32 [b], nats.

    Source:
        Madry et al. 2018, https://arxiv.org/abs/1706.06083, eq. 2.1.
    """
    return lambda inputs: cross_entropy_of(predict(inputs), labels)


def targeted_cross_entropy(predict: Callable, targets: tf.Tensor) -> Callable:
    """Return log softmax(predict(x))_t, minus the cross-entropy of a target class.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: images[:, 0, 0]
        >>> objective = robust.attacks.objectives.targeted_cross_entropy(predict, np.array([1]))
        >>> print(objective(np.zeros((1, 1, 1, 2), "float32")).numpy().round(3))
        [-0.693]

    Args:
        predict: inputs -> logits [b, k].
        targets: int [b].

    Returns:
        inputs -> float32 [b], <= 0.
    """
    return lambda inputs: -classification.cross_entropy(predict(inputs), targets)


def margin(predict: Callable, labels: tf.Tensor) -> Callable:
    """Return the margin, max over c != y of z_c, minus z_y: positive exactly where the model is wrong.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: images[:, 0, 0]
        >>> objective = robust.attacks.objectives.margin(predict, np.array([0]))
        >>> objective(np.array([[[[1.0, 0.25]]]], "float32")).numpy().tolist()
        [-0.75]

    Args:
        predict: inputs -> logits [b, k], k >= 2.
        labels: int [b].

    Returns:
        inputs -> float32 [b], in units of logits.

    Source:
        Carlini & Wagner 2017, https://arxiv.org/abs/1608.04644, f_6 without its clamp.
    """
    return lambda inputs: classification.margin(predict(inputs), labels)


def dlr(predict: Callable, labels: tf.Tensor) -> Callable:
    """Return the difference of logits ratio (DLR): the margin, divided by the spread of the largest logits.

    (max over c != y of z_c, minus z_y) / (z_(1) - z_(3) + 1e-12), with z_(1) >= z_(2) >= ... the sorted logits. Scaling
    or shifting all logits does not change it, so high confidence does not make its gradient vanish. With two classes
    there is no third logit: the margin alone is used.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: images[:, 0, 0]
        >>> objective = robust.attacks.objectives.dlr(predict, np.array([0]))
        >>> logits = np.array([[[[4.0, 3.0, 2.0]]]], "float32")
        >>> objective(logits).numpy().tolist(), objective(100 * logits).numpy().tolist()
        ([-0.5], [-0.5])

    Args:
        predict: inputs -> logits [b, k], k >= 2.
        labels: int [b].

    Returns:
        inputs -> float32 [b], > 0 where the model is wrong, >= -1 from three classes on.

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/2003.01690, eq. 6. The case of two classes is not in the paper.
    """
    return lambda inputs: dlr_of(_logits(predict, inputs), labels)


def targeted_dlr(predict: Callable, labels: tf.Tensor, targets: tf.Tensor) -> Callable:
    """Return the difference of logits ratio (DLR) towards a target class.

    (z_t - z_y) / (z_(1) - (z_(3) + z_(4)) / 2 + 1e-12), with z_(1) >= z_(2) >= ... the sorted logits. With three
    classes there is no fourth logit: the denominator is z_(1) - z_(3). With two classes there is no denominator.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: images[:, 0, 0]
        >>> objective = robust.attacks.objectives.targeted_dlr(predict, np.array([0]), np.array([2]))
        >>> objective(np.array([[[[6.0, 5.0, 3.0, 1.0]]]], "float32")).numpy().tolist()
        [-0.75]

    Args:
        predict: inputs -> logits [b, k], k >= 2.
        labels: int [b].
        targets: int [b].

    Returns:
        inputs -> float32 [b].

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/2003.01690, eq. 7. The cases of fewer than four classes are not in the
        paper.
    """
    return lambda inputs: targeted_dlr_of(_logits(predict, inputs), labels, targets)


def kl(predict: Callable, clean_logits: tf.Tensor) -> Callable:
    """Return KL(softmax(clean) || softmax(predict(x))): the objective of TRADES.

    Its gradient is 0 at the clean image itself, so the attack needs a random start.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: images[:, 0, 0]
        >>> objective = robust.attacks.objectives.kl(predict, np.array([[2.0, 0.0]], "float32"))
        >>> print(objective(np.array([[[[0.0, 2.0]]]], "float32")).numpy().round(3))
        [1.523]

    Args:
        predict: inputs -> logits [b, k].
        clean_logits: float [b, k], the prediction of the clean images; no gradient flows into it.

    Returns:
        inputs -> float32 [b], nats, >= 0.

    Source:
        Zhang et al. 2019, https://arxiv.org/abs/1901.08573, algorithm 1.
    """
    clean = tf.stop_gradient(tf.cast(clean_logits, tf.float32))
    return lambda inputs: probabilities.kl_from_logits(clean, _logits(predict, inputs))


def contrastive(embed: Callable, keys, pairs: PairMasks, *, temperature=0.5) -> Callable:
    """Return the contrastive loss of inputs against fixed embeddings: the objective of an instance-wise attack.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> embed, keys = (lambda images: images[:, 0, 0]), tf.eye(2)
        >>> first = tf.constant([[True, False]])
        >>> pairs = robust.losses.PairMasks(positive=first, negative=~first)
        >>> objective = robust.attacks.objectives.contrastive(embed, keys, pairs, temperature=1.0)
        >>> print(objective(tf.constant([[[[1.0, 0.0]]]])).numpy().round(3))  # log(1 + 1 / e)
        [0.313]

    Args:
        embed: inputs -> embeddings [b, d].
        keys: float [m, d], or a function from the embeddings to the keys.
        pairs: bool [b, m] each.
        temperature: t > 0.

    Returns:
        inputs -> float32 [b], nats, >= 0.

    Source:
        Kim et al. 2020 (RoCL), https://arxiv.org/abs/2006.07589, eq. 4.
    """

    def objective(inputs):
        embeddings = embed(inputs)
        contrasts = keys(embeddings) if callable(keys) else keys
        return contrastive_loss.masked_contrastive(embeddings, contrasts, pairs, temperature=temperature)

    return objective


def joint_contrastive(embed: Callable, pairs: PairMasks, *, temperature=0.5) -> Callable:
    """Return the contrastive loss of views that are all perturbed, averaged over the views of an image.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> own = tf.eye(4, dtype=tf.bool)  # two views of two images
        >>> twin = tf.roll(own, 2, axis=1)
        >>> pairs = robust.losses.PairMasks(positive=twin, negative=~(own | twin))
        >>> objective = robust.attacks.objectives.joint_contrastive(lambda x: x[:, 0, 0], pairs, temperature=1.0)
        >>> view = tf.eye(2)[:, None, None]
        >>> print(objective((view, view)).numpy().round(3))  # log(1 + 2 / e)
        [0.551 0.551]

    Args:
        embed: inputs -> embeddings [n, d].
        pairs: bool [v b, v b] each, view by view.
        temperature: t > 0.

    Returns:
        v tensors of inputs [b, ...] -> float32 [b], nats, >= 0.

    Source:
        Jiang et al. 2020 (ACL), https://arxiv.org/abs/2010.13337, eq. 2.
    """

    def objective(views):
        embeddings = embed(tf.concat(views, axis=0))
        values = contrastive_loss.masked_contrastive(embeddings, embeddings, pairs, temperature=temperature)
        return tf.add_n(tf.split(values, len(views))) / len(views)

    return objective


# The exponent bits of a float32: alone, those of x are exactly 2^floor(log2 x).
_EXPONENT = 0x7F800000


def in_range(logits: tf.Tensor, *, per_example: bool = True) -> tf.Tensor:
    """Return the logits unchanged; their gradient is multiplied by a power of two.

    The power of two brings the largest entry of the gradient into [1, 2), so that the 16-bit layers of a
    mixed-precision model do not flush it to zero: the loss of a confident model has gradients far below the smallest
    float16 (6e-8). In float32 the scaling is exact and leaves every direction unchanged, bit for bit. It is meant for
    attacks, which take steps of fixed length.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> logits = tf.constant([[1.0, 2.0]])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(logits)
        ...     value = 1e-9 * tf.reduce_sum(robust.attacks.objectives.in_range(logits) * [3.0, 1.0])
        >>> gradient = tape.gradient(value, logits).numpy()[0]
        >>> bool(1 <= gradient[0] < 2), bool(abs(gradient[0] / gradient[1] - 3) < 1e-5)
        (True, True)

    Args:
        logits: float32 [b, k].
        per_example: True: one factor per example. False: one for the batch, for batch norm that couples the examples,
            so that the gradient of one is a sum over all.

    Returns:
        float32 [b, k].
    """

    @tf.custom_gradient
    def unchanged(logits):
        def backward(upstream):
            largest = tf.reduce_max(tf.abs(upstream), axis=-1 if per_example else None, keepdims=True)
            bits = tf.bitwise.bitwise_and(tf.bitcast(largest, tf.int32), _EXPONENT)
            usable = (bits > 0) & (bits < _EXPONENT)  # neither zero (or subnormal) nor infinite
            return upstream / tf.where(usable, tf.bitcast(bits, tf.float32), tf.ones_like(largest))

        return tf.identity(logits), backward

    return unchanged(logits)


def ranged(predict: Callable, *, per_example: bool = True) -> Callable:
    """Return `predict` with float32 logits whose gradients are scaled by `in_range`, for attacks.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = robust.attacks.objectives.ranged(lambda images: images[:, 0, 0])
        >>> objective = robust.attacks.objectives.cross_entropy(predict, np.array([0]))
        >>> print(objective(np.zeros((1, 1, 1, 2), "float32")).numpy().round(3))
        [0.693]

    Args:
        predict: inputs -> logits [b, k].
        per_example: as in `in_range`.

    Returns:
        inputs -> float32 [b, k].
    """
    return lambda inputs: in_range(_logits(predict, inputs), per_example=per_example)


# The margin below which the label's probability is so close to 1 that float32 rounds away what it lacks.
_SURE = -14.0


def cross_entropy_of(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return `cross_entropy` [b] of logits [b, k], with a value and a gradient that do not round to 0.

    The gradient toward the label is p_y - 1. Where p_y rounds to 1, the label's logit would not be lowered at all, and
    with logits [0, z] no gradient would be left. There it is log(1 + exp(m)), m = log sum exp of the others minus z_y.
    """
    values = classification.cross_entropy(logits, labels)
    logits, labels = tf.cast(logits, tf.float32), tf.convert_to_tensor(labels)
    if labels.shape.rank != 1 and labels.shape[-1] != 1:  # distributions
        return values
    labels = batch_checks.id_vector(logits, labels)
    is_label = tf.one_hot(labels, tf.shape(logits)[1], on_value=True, off_value=False, dtype=tf.bool)
    rivals = tf.where(is_label, tf.float32.min, tf.maximum(logits, tf.float32.min))
    margin = tf.reduce_logsumexp(rivals, axis=1) - tf.gather(logits, labels, batch_dims=1)
    is_sure = margin < _SURE
    return tf.where(is_sure, tf.nn.softplus(tf.where(is_sure, margin, _SURE)), values)


# Added to the denominators of the DLR losses, as in the authors' code.
_SMALLEST_SPREAD = 1e-12


def dlr_of(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return `dlr` [b] of logits [b, k]; which of equal logits counts as the larger depends on the sorting order."""
    count = min(logits.shape[-1], 3)
    values, order = tf.math.top_k(logits, count)
    top = tf.unstack(values, axis=-1)
    rival = tf.raw_ops.Select(condition=order[:, 0] == tf.cast(labels, tf.int32), x=top[1], y=top[0])
    margin = rival - tf.gather(logits, labels, batch_dims=1)
    return margin if count < 3 else margin / (top[0] - top[2] + _SMALLEST_SPREAD)


def targeted_dlr_of(logits: tf.Tensor, labels: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return `targeted_dlr` [b] of logits [b, k]."""
    count = min(logits.shape[-1], 4)
    pair = tf.gather(logits, tf.stack([tf.cast(labels, tf.int32), tf.cast(targets, tf.int32)], axis=-1), batch_dims=1)
    difference = pair[:, 1] - pair[:, 0]
    if count < 3:
        return difference
    top = tf.unstack(tf.math.top_k(logits, count).values, axis=-1)
    low = top[2] if count == 3 else 0.5 * (top[2] + top[3])
    return difference / (top[0] - low + _SMALLEST_SPREAD)


def _logits(predict: Callable, inputs) -> tf.Tensor:
    return tf.cast(predict(inputs), tf.float32)
