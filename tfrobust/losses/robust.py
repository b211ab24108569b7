"""Robust losses between the adversarial and the clean prediction: TRADES, VAT, MART and ADR.

Every function returns one value per example of the local batch. The pairwise ADR terms distinguish anchors (adversarial
examples of this replica) from keys (all clean images, gathered). The mean of the returned values over the global batch
of N equals the reference's mean over the N x N pairs.
"""

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.losses import classification
from tfrobust.ops import probabilities, similarity
from tfrobust.ops.batch_checks import id_vector

DIVERGENCE_TERMS = (
    "local_compactness",
    "local_smoothness",
    "global_compactness",
    "global_smoothness",
    "confidence",
)


def trades_kl(clean_logits: tf.Tensor, adversarial_logits: tf.Tensor) -> tf.Tensor:
    """Compute KL(clean || adversarial) = sum_k p_k (log p_k - log q_k) of two predictions, per example.

    Example:
        >>> from tfrobust import keras as robust
        >>> print(robust.losses.trades_kl([[2.0, 0.0]], [[0.0, 2.0]]).numpy().round(3))
        [1.523]

    Args:
        clean_logits: float [b, k]. Gradients flow through both arguments.
        adversarial_logits: float [b, k].

    Returns:
        float32 [b], nats, >= 0 up to rounding.

    Source:
        Zhang et al. 2019 (TRADES), arXiv:1901.08573, eq 5, without its weight beta = 1 / lambda. Reference code:
        yaodongyu/TRADES, trades.py: the sum over batch and classes, divided by the batch.
    """
    return probabilities.kl_from_logits(clean_logits, adversarial_logits)


def virtual_adversarial(
    clean_logits: tf.Tensor, adversarial_logits: tf.Tensor, *, divide_by_classes: bool = False
) -> tf.Tensor:
    """Compute ASCL's smoothness term KL( h(x) || h(x^a) ), per example.

    Example:
        >>> from tfrobust import keras as robust
        >>> clean, adversarial = [[2.0, 0.0]], [[0.0, 2.0]]
        >>> print(robust.losses.virtual_adversarial(clean, adversarial, divide_by_classes=True).numpy().round(3))
        [0.762]

    Args:
        clean_logits: float [b, k]. Gradients flow through both arguments (it is not detached).
        adversarial_logits: float [b, k].
        divide_by_classes: True divides by k, as the released code does.

    Returns:
        float32 [b], nats.

    Source:
        Bui et al. 2021 (ASCL), arXiv:2101.10027, eq 5. Released code: tuananhbui89/ASCL @ ca78d7b, compact_loss_pt.py:
        PyTorch's reduction "mean" also divides by the number of classes, which makes the term 10 times weaker on
        CIFAR-10 and 100 times on CIFAR-100.
    """
    values = probabilities.kl_from_logits(clean_logits, adversarial_logits)
    if not divide_by_classes:
        return values
    return values / tf.cast(tf.shape(clean_logits)[-1], tf.float32)


def boosted_cross_entropy(logits: tf.Tensor, labels: tf.Tensor, targets: tf.Tensor | None = None) -> tf.Tensor:
    """Compute MART's boosted cross-entropy, -log p_y - log(1.0001 - max_{k != y} p_k), per example.

    Example:
        >>> from tfrobust import keras as robust
        >>> print(robust.losses.boosted_cross_entropy([[0.5, 1.0, 0.0]], [0]).numpy().round(3))
        [1.886]

    Args:
        logits: float [b, k], k >= 2, of adversarial examples.
        labels: class ids, integer [b] or [b, 1].
        targets: of the cross-entropy, [b, k], such as smoothed labels; None takes the labels.

    Returns:
        float32 [b], nats, above -0.0001.

    Source:
        Wang et al. 2020 (MART), https://openreview.net/forum?id=rklOg6EFwS, eq 8; YisenWang/MART @ 2d83e17, whose
        1.0001 bounds the second logarithm by 9.2 nats. The code also adds 1e-12 to its argument.
    """
    logits = tf.cast(logits, tf.float32)
    labels = id_vector(logits, labels)
    p = tf.nn.softmax(logits)
    rivals = p * (1.0 - tf.one_hot(labels, tf.shape(p)[-1], dtype=tf.float32))
    entropy = classification.cross_entropy(logits, labels if targets is None else targets)
    return entropy - tf.math.log(1.0001 - tf.reduce_max(rivals, axis=-1))


def misclassification_aware_kl(clean_logits: tf.Tensor, adversarial_logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Compute MART's KL(p || q) (1 - p_y), with p the clean and q the adversarial prediction, per example.

    Example:
        >>> from tfrobust import keras as robust
        >>> clean, adversarial = [[2.0, 1.0, 0.0]], [[0.5, 1.0, 0.0]]
        >>> print(robust.losses.misclassification_aware_kl(clean, adversarial, [0]).numpy().round(4))
        [0.0906]

    Args:
        clean_logits: float [b, k]. Gradients flow through both predictions, and through the weight 1 - p_y.
        adversarial_logits: float [b, k].
        labels: class ids, integer [b] or [b, 1].

    Returns:
        float32 [b], nats, >= 0 up to rounding.

    Source:
        Wang et al. 2020 (MART), eq 8, without its weight lambda. The code's weight is 1.0000001 - p_y, and it adds
        1e-12 to q, which bounds the divergence by 28 nats.
    """
    p = tf.nn.softmax(tf.cast(clean_logits, tf.float32))
    labels = id_vector(p, labels)
    doubt = 1.0 - tf.gather(p, labels, batch_dims=1)
    return probabilities.kl_from_logits(clean_logits, adversarial_logits) * doubt


def pair_weights(labels: tf.Tensor, key_labels: tf.Tensor, *, scale: float = 0.99) -> tf.Tensor:
    """Compute ADR's weights of pairs, w_ij = (s - d_ij) / s, with d_ij = 0 for equal and 1 for different labels.

    Args:
        labels: integer [b], of the adversarial examples.
        key_labels: integer [m], of the clean images.
        scale: s, in (0, 1]; 0.99 gives 1 for equal labels and -0.0101 for different ones.

    Returns:
        float32 [b, m], no gradient.

    Raises:
        ValueError: scale outside (0, 1].

    Source:
        Bui et al. 2020 (ADR), arXiv:2007.05123, section 3.2; tuananhbui89/Adversarial-Divergence-Reduction @ 7304fa5,
        ADR_tf/compact_loss.py. Difference: that code divides d by its largest value in the batch, which is 0 / 0 when
        all labels agree; here such a batch has weights 1.
    """
    if not 0 < scale <= 1:
        raise InputError(f"scale is {scale}; ADR's label scale must lie in (0, 1].")
    different = tf.cast(tf.not_equal(labels[:, None], key_labels[None, :]), tf.float32)
    return (scale - different) / scale


def local_compactness(clean_embedding: tf.Tensor, adversarial_embedding: tf.Tensor) -> tf.Tensor:
    """Compute mean_d |z_d - z^a_d| between an image and its adversarial example, which alone gets a gradient.

    Args:
        clean_embedding: float [b, d], detached.
        adversarial_embedding: float [b, d].

    Returns:
        float32 [b], >= 0.

    Source: as `adversarial_divergence`.
    """
    clean = tf.stop_gradient(tf.cast(clean_embedding, tf.float32))
    return tf.reduce_mean(tf.abs(clean - tf.cast(adversarial_embedding, tf.float32)), axis=-1)


def local_smoothness(clean_logits: tf.Tensor, adversarial_logits: tf.Tensor) -> tf.Tensor:
    """Compute -sum_k p_k log q_k, with p the prediction of an image (detached) and q that of its adversarial example.

    Args:
        clean_logits: float [b, k], detached.
        adversarial_logits: float [b, k].

    Returns:
        float32 [b], one per example, nats.

    Source: as `adversarial_divergence`.
    """
    target = tf.stop_gradient(tf.nn.softmax(tf.cast(clean_logits, tf.float32)))
    return classification.cross_entropy(adversarial_logits, target)


def global_compactness(adversarial_embedding: tf.Tensor, key_embedding: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Compute mean_j w_ij mean_d |z_jd - z^a_id| over all clean keys j, per adversarial example i.

    Args:
        adversarial_embedding: float [b, d].
        key_embedding: float [m, d], clean, of the global batch, detached.
        weights: float32 [b, m], from `pair_weights`.

    Returns:
        float32 [b].

    Source: as `adversarial_divergence`.
    """
    keys = tf.stop_gradient(key_embedding)
    features = tf.cast(tf.shape(keys)[-1], tf.float32)
    gaps = -similarity.pairwise(adversarial_embedding, keys, "l1") / features
    return tf.reduce_mean(tf.stop_gradient(weights) * gaps, axis=-1)


def global_smoothness(adversarial_logits: tf.Tensor, key_logits: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Compute -mean_j w_ij sum_k p_jk log q_ik over all clean keys j, per adversarial example i.

    Args:
        adversarial_logits: float [b, k], q = their softmax.
        key_logits: float [m, k], clean, of the global batch, detached; p = their softmax.
        weights: float32 [b, m], from `pair_weights`.

    Returns:
        float32 [b].

    Source: as `adversarial_divergence`.
    """
    targets = tf.stop_gradient(tf.nn.softmax(tf.cast(key_logits, tf.float32)))
    log_q = tf.nn.log_softmax(tf.cast(adversarial_logits, tf.float32))
    pairs = -tf.matmul(log_q, targets, transpose_b=True)  # [b, m]
    return tf.reduce_mean(tf.stop_gradient(weights) * pairs, axis=-1)


def adversarial_divergence(
    clean: tuple, adversarial: tuple, labels: tf.Tensor, *, keys: tuple | None = None, scale: float = 0.99
) -> dict:
    """Compute the five terms of ADR by name, per example.

        local_compactness, local_smoothness: an adversarial example against its own image
        global_compactness, global_smoothness: against all clean images, weighted by `pair_weights`
        confidence: the entropy of the adversarial prediction, gradient through both factors

    Args:
        clean: (embedding [b, d], logits [b, k]) of the images; detached everywhere.
        adversarial: (embedding [b, d], logits [b, k]) of their adversarial examples.
        labels: integer [b].
        keys: (embedding [m, d], logits [m, k], labels [m]) of all clean images, gathered over the replicas;
            None takes the local ones.
        scale: the label scale s of `pair_weights`.

    Returns:
        name -> float32 [b]. The mean of a global term over the batch is the mean over all pairs.

    Source:
        Bui et al. 2020 (ADR), arXiv:2007.05123, section 3; tuananhbui89/ASCL @ ca78d7b, adr.py and
        compact_loss_pt.py. Their ASCL comparison runs set the weight of global_smoothness to 0.
    """
    embedding, logits = adversarial
    key_embedding, key_logits, key_labels = (*clean, labels) if keys is None else keys
    weights = pair_weights(labels, key_labels, scale=scale)
    return {
        "local_compactness": local_compactness(clean[0], embedding),
        "local_smoothness": local_smoothness(clean[1], logits),
        "global_compactness": global_compactness(embedding, key_embedding, weights),
        "global_smoothness": global_smoothness(logits, key_logits, weights),
        "confidence": probabilities.entropy_from_logits(logits),
    }
