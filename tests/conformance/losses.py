"""The battery every loss passes: rank 1, permutation, gradients, hostile values, float16.

A row of `LOSSES` gives a function of float tensors [b, ...] (several per example are fine) and drawn inputs.
Everything else a loss needs (labels, masks, tags) is bound in the row and follows `order`, a permutation.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfrobust.adapters import losses as keras_api
from tfrobust.losses import classification, clustering, consistency, contrastive, mixed, robust, temporal
from tfrobust.losses import feature_margin as feature_contrast
from tfrobust.pairs import masks, selection

LABELS = np.array([0, 0, 1, 1, 2, 0], np.int32)
CLEAN_PREDICTIONS = np.array([0, 1, 1, 1, 0, 2], np.int32)
ADVERSARIAL_PREDICTIONS = np.array([1, 0, 1, 0, 2, 1], np.int32)
COUNT, CLASSES, FEATURES = 6, 3, 5


@dataclasses.dataclass(frozen=True)
class LossCase:
    """compute: (list of tensors [b, ...], order int32 [b]) -> [b]. shapes: of the inputs, without b.

    kinked: built on |difference|; finite differences then need entries that stay apart. detached: positions
    of inputs without gradient.
    """

    name: str
    compute: Callable
    shapes: tuple
    kinked: bool = False
    detached: tuple = ()


def draw(case, seed=3):
    generator = np.random.default_rng(seed)
    if not case.kinked:
        return [generator.normal(size=(COUNT, *shape)).astype(np.float32) for shape in case.shapes]
    sizes = [COUNT * int(np.prod(shape)) for shape in case.shapes]
    # Any two entries differ by at least 0.04, several times what a finite difference moves one of them.
    spaced = 0.1 * generator.permutation(sum(sizes)) + generator.uniform(-0.03, 0.03, sum(sizes))
    parts = np.split((spaced - spaced.mean()).astype(np.float32), np.cumsum(sizes)[:-1])
    return [part.reshape(COUNT, *shape) for part, shape in zip(parts, case.shapes, strict=True)]


def _labels(order):
    return tf.gather(tf.constant(LABELS), order)


def _ascl(rule, similarity="cosine", **options):
    def compute(inputs, order):
        views = [
            masks.tag(order, view=view, label=_labels(order), prediction=tf.gather(tf.constant(ids), order))
            for view, ids in enumerate((CLEAN_PREDICTIONS, ADVERSARIAL_PREDICTIONS))
        ]
        tags, stacked = masks.join(*views), tf.concat(inputs, axis=0)
        values = contrastive.masked_contrastive(
            stacked, stacked, masks.ByRows(rule, tags, tags), temperature=0.5, similarity=similarity, **options
        )
        return values[:COUNT] + values[COUNT:]

    return compute


def _adr(term):
    def compute(inputs, order):
        z, logits, z_a, logits_a = inputs
        return robust.adversarial_divergence((z, logits), (z_a, logits_a), _labels(order))[term]

    return compute


def _loss_object(loss, labels=True):
    def compute(inputs, order):
        return loss.call(_labels(order), *inputs) if labels else loss.call(*inputs)

    return compute


LOGITS, EMBEDDING = (CLASSES,), (FEATURES,)
ADR_SHAPES = (EMBEDDING, LOGITS, EMBEDDING, LOGITS)
SOFT = np.random.default_rng(5).dirichlet(np.ones(CLASSES), COUNT).astype(np.float32)

LOSSES = (
    LossCase("cross_entropy", lambda x, o: classification.cross_entropy(x[0], _labels(o)), (LOGITS,)),
    LossCase(
        "cross_entropy_soft",
        lambda x, o: classification.cross_entropy(x[0], tf.gather(tf.constant(SOFT), o)),
        (LOGITS,),
    ),
    LossCase("margin", lambda x, o: classification.margin(x[0], _labels(o)), (LOGITS,)),
    LossCase(
        "mixed_cross_entropy",
        lambda x, o: mixed.mixed_cross_entropy(x[0], _labels(o), (_labels(o) + 1) % CLASSES, 0.3),
        (LOGITS,),
    ),
    LossCase(
        "softmax_binary_cross_entropy",
        lambda x, o: mixed.softmax_binary_cross_entropy(x[0], tf.gather(tf.constant(SOFT), o)),
        (LOGITS,),
    ),
    LossCase("feature_margin", lambda x, o: feature_contrast.feature_margin(*x, margin=2.0), (EMBEDDING,) * 3),
    LossCase(
        "swapped_prediction",
        lambda x, o: clustering.swapped_prediction([tf.gather(tf.constant(SOFT), o)] * 2, x, temperature=0.5),
        (LOGITS, LOGITS, LOGITS),
    ),
    LossCase(
        "paired_instances",
        lambda x, o: temporal.paired_instances(x[0], x[0], o[:, None] == o[None], temperature=0.5),
        ((2, FEATURES),),
    ),
    LossCase("local_local", lambda x, o: temporal.local_local(*x, temperature=0.5), ((2, FEATURES),) * 2),
    LossCase("global_local", lambda x, o: temporal.global_local(*x, temperature=0.5), ((2, FEATURES),) * 2),
    LossCase("jensen_shannon", lambda x, o: consistency.jensen_shannon(x), (LOGITS, LOGITS, LOGITS)),
    LossCase("mixture_cross_entropy", lambda x, o: consistency.mixture_cross_entropy(x, _labels(o)), (LOGITS, LOGITS)),
    LossCase("mixture_divergence", lambda x, o: consistency.mixture_consistency(x)[0], (LOGITS, LOGITS, LOGITS)),
    LossCase("mixture_entropy", lambda x, o: consistency.mixture_consistency(x)[1], (LOGITS, LOGITS)),
    LossCase("trades_kl", lambda x, o: robust.trades_kl(*x), (LOGITS, LOGITS)),
    LossCase("boosted_cross_entropy", lambda x, o: robust.boosted_cross_entropy(*x, _labels(o)), (LOGITS,)),
    LossCase(
        "misclassification_aware_kl", lambda x, o: robust.misclassification_aware_kl(*x, _labels(o)), (LOGITS, LOGITS)
    ),
    LossCase("virtual_adversarial", lambda x, o: robust.virtual_adversarial(*x), (LOGITS, LOGITS)),
    LossCase(
        "virtual_adversarial_code",
        lambda x, o: robust.virtual_adversarial(*x, divide_by_classes=True),
        (LOGITS, LOGITS),
    ),
    *(
        LossCase(f"adr_{term}", _adr(term), ADR_SHAPES, kinked="compact" in term, detached=(0, 1))
        for term in tuple("local_compactness local_smoothness global_compactness global_smoothness confidence".split())
    ),
    LossCase("ascl_global", _ascl(selection.GlobalSelection()), (EMBEDDING, EMBEDDING)),
    LossCase("ascl_hard", _ascl(selection.HardSelection()), (EMBEDDING, EMBEDDING)),
    LossCase("ascl_soft", _ascl(selection.SoftSelection()), (EMBEDDING, EMBEDDING)),
    LossCase("ascl_leaked", _ascl(selection.LeakedSelection()), (EMBEDDING, EMBEDDING)),
    LossCase("ascl_leaked_code", _ascl(selection.LeakedSelection(counterpart="code")), (EMBEDDING, EMBEDDING)),
    LossCase("ascl_blockwise", _ascl(selection.LeakedSelection(), block_size=5), (EMBEDDING, EMBEDDING)),
    *(
        LossCase(
            f"ascl_{similarity}",
            _ascl(selection.GlobalSelection(), similarity),
            (EMBEDDING, EMBEDDING),
            kinked=similarity.startswith("l"),
        )
        for similarity in ("dot", "l1", "l2", "linf", "lkinf")
    ),
    LossCase("simclr", _ascl(selection.sample_ids), (EMBEDDING, EMBEDDING)),
    LossCase(
        "SupervisedContrastiveLoss", _loss_object(keras_api.SupervisedContrastiveLoss(temperature=0.5)), (EMBEDDING,)
    ),
    LossCase("LogitsKLDivergence", _loss_object(keras_api.LogitsKLDivergence(), False), (LOGITS, LOGITS)),
)

ORDER = np.arange(COUNT, dtype=np.int32)


def gradients(case, inputs, weights=None):
    """Values [b] and the gradients of their weighted sum by each input (zeros where there is none)."""
    tensors = [tf.convert_to_tensor(item) for item in inputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        values = case.compute(tensors, tf.constant(ORDER))
        total = tf.reduce_sum(values if weights is None else values * weights)
    slopes = tape.gradient(total, tensors, unconnected_gradients="zero")
    return values.numpy(), [gradient.numpy() for gradient in slopes]


def check_rank(case):
    values = case.compute([tf.constant(item) for item in draw(case)], tf.constant(ORDER))
    assert values.shape == [COUNT]
    assert values.dtype == tf.float32
    traced = tf.function(case.compute)([tf.constant(item) for item in draw(case)], tf.constant(ORDER))
    np.testing.assert_allclose(values, traced, rtol=1e-5, atol=1e-6)


def check_permutation(case):
    order = np.array([4, 2, 0, 5, 1, 3], np.int32)
    inputs = draw(case)
    plain = case.compute([tf.constant(item) for item in inputs], tf.constant(ORDER))
    moved = case.compute([tf.constant(item[order]) for item in inputs], tf.constant(order))
    np.testing.assert_allclose(np.asarray(plain)[order], moved, rtol=1e-5, atol=1e-6)


def check_gradient(case):
    """Central differences along random directions, of each input alone; detached inputs must have zero."""
    inputs, weights = draw(case), np.linspace(0.5, 1.5, COUNT).astype(np.float32)
    _, slopes = gradients(case, inputs, weights)
    generator, step = np.random.default_rng(8), 1e-2
    for position, gradient in enumerate(slopes):
        if position in case.detached:
            np.testing.assert_array_equal(gradient, 0)
            continue
        for _ in range(3):
            direction = generator.normal(size=gradient.shape).astype(np.float32)
            direction /= np.linalg.norm(direction)
            ends = []
            for sign in (1, -1):
                shifted = [item.copy() for item in inputs]
                shifted[position] += sign * step * direction
                values = case.compute([tf.constant(item) for item in shifted], tf.constant(ORDER))
                ends.append(float(np.sum(np.asarray(values, np.float64) * weights)))
            numeric = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(np.sum(gradient * direction), numeric, rtol=2e-3, atol=2e-3)


def check_finite(case):
    drawn = draw(case)
    hostile = {
        "zeros": [0 * item for item in drawn],
        "equal rows": [np.ones_like(item) for item in drawn],
        "huge": [np.sign(item) * np.float32(1e4) for item in drawn],
        "saturated": [1e4 * item for item in drawn],
        "tiny": [1e-20 * item for item in drawn],
    }
    for name, inputs in hostile.items():
        values, slopes = gradients(case, inputs)
        assert np.isfinite(values).all(), f"{case.name}: values on {name}"
        for gradient in slopes:
            assert np.isfinite(gradient).all(), f"{case.name}: gradient on {name}"


def check_float16(case):
    halves = [item.astype(np.float16) for item in draw(case)]
    values, slopes = gradients(case, halves)
    assert values.dtype == np.float32
    exact, _ = gradients(case, [item.astype(np.float32) for item in halves])
    np.testing.assert_allclose(values, exact, rtol=1e-5, atol=1e-6)
    for gradient in slopes:
        assert gradient.dtype == np.float16 and np.isfinite(gradient).all()


CHECKS = (check_rank, check_permutation, check_gradient, check_finite, check_float16)
