"""Mixup, CutMix, Manifold Mixup and NFM (mixup.py, cutmix.py, manifold_mixup.py, nfm.py) by loops, given the draws."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import tiny_network
from tfrobust.augment.mixing import FeatureNoise, Mixing
from tfrobust.methods.cutmix import CutMix
from tfrobust.methods.manifold_mixup import ManifoldMixup
from tfrobust.methods.mixup import Mixup
from tfrobust.methods.nfm import NFM
from tfrobust.models.encoder import Encoder
from tfrobust.models.heads import LinearHead
from tfrobust.ops import randomness
from tfrobust.structs import Context

GROUP = 4
WIDTHS = (7, 5)
LARGE = (10, 6, 1)


class Staged(Encoder):
    """Two stages, each one matrix and tanh; pixels are normalised before stage 0."""

    def __init__(self, **kwargs):
        super().__init__(pixel_mean=0.5, pixel_std=0.25, **kwargs)
        large = keras.initializers.RandomNormal(stddev=1.0, seed=4)
        first, second = (keras.layers.Dense(w, activation="tanh", kernel_initializer=large) for w in WIDTHS)
        self.compose([[keras.layers.Flatten(), first], [second]], [], dim=WIDTHS[1])


def staged(kind, **keywords):
    head = LinearHead(3, kernel_initializer=keras.initializers.RandomNormal(stddev=2.0, seed=1))
    method = kind(Staged(), head, mixing=Mixing(group=GROUP), **keywords)
    method.build((None, *tiny_network.SHAPE))
    return method


def cutmix(**keywords):
    """CutMix over the tiny network, for images that a box fits into."""
    encoder = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(5, activation="tanh")])
    method = CutMix(encoder, tiny_network.parts()[1], **keywords)
    method.build((None, *LARGE))
    return method


def step(number, count=8):
    """(Batch, Context) of one step; the keys of two steps differ."""
    batch, _ = tiny_network.batch(count)
    rows = tf.range(count, dtype=tf.int64)
    return batch, Context(randomness.make_key(0, "train", number), tf.constant(number, tf.int64), rows)


def drawn(method, context, count=8):
    """The draw that a method makes in a step, as arrays: weights [b], partners [b]."""
    mix = method.mixing.draw(randomness.fold(context.key, "mixing"), count)
    return np.broadcast_to(mix.weight.numpy().astype(np.float64), count), mix.partner.numpy()


def mixed_entropy(logits, labels, weights, partner):
    """lambda CE(y) + (1 - lambda) CE(y'), one by one."""
    own = tiny_network.cross_entropy(logits, labels)
    other = tiny_network.cross_entropy(logits, labels[partner])
    return np.array([w * a + (1 - w) * b for w, a, b in zip(weights, own, other, strict=True)])


def mixed_by_rows(values, weights, partner):
    return np.stack([w * values[i] + (1 - w) * values[partner[i]] for i, w in enumerate(weights)])


def terms_of(method, batch, context):
    views = method.make_views(batch, context)
    terms, logits = method.loss_terms(views, batch, context)
    assert set(terms) == {"ce_mixed"}
    return views, terms["ce_mixed"].numpy(), logits.numpy()


# -------------------------------------------------------------------------------------------------- in the input


@pytest.mark.parametrize("per_example", [False, True])
def test_mixup_is_the_loss_of_mixed_images_and_labels(per_example):
    method = tiny_network.build(Mixup, mixing=Mixing(group=GROUP, per_example=per_example))
    batch, context = step(1)
    weights, partner = drawn(method, context)
    assert len(np.unique(weights)) == (8 if per_example else 1) and np.any(partner != np.arange(8))
    views, values, logits = terms_of(method, batch, context)
    images = mixed_by_rows(batch.images.numpy().astype(np.float64), weights, partner)
    np.testing.assert_allclose(views["mixed"], images, rtol=1e-5, atol=1e-6)
    _, expected = tiny_network.forward(method, images)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        values, mixed_entropy(expected, batch.labels.numpy(), weights, partner), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("make", [lambda: Mixup, lambda: lambda *p, **k: CutMix(*p, probability=0.0, **k)])
def test_without_mixing_it_is_cross_entropy(make):
    alpha = 0.0 if make() is Mixup else 1.0
    method = tiny_network.build(make(), mixing=Mixing(alpha=alpha))
    batch, context = step(1)
    _, values, logits = terms_of(method, batch, context)
    np.testing.assert_allclose(logits, method(batch.images), rtol=1e-5)
    np.testing.assert_allclose(values, tiny_network.cross_entropy(logits, batch.labels.numpy()), rtol=1e-4, atol=1e-5)


def pasted(images, mixed, partner):
    """Of each row that has a partner, which pixels are the partner's; all others must be its own. bool [n, h, w]."""
    found = []
    for row, other in enumerate(partner):
        if row != other:
            own, foreign = (np.all(mixed[row] == images[place], axis=-1) for place in (row, other))
            assert np.all(own ^ foreign)
            found.append(foreign)
    return np.stack(found)


@pytest.mark.parametrize("per_example", [False, True])
def test_cutmix_pastes_a_box_and_weighs_by_its_area(per_example):
    method = cutmix(mixing=Mixing(group=GROUP, per_example=per_example))
    images = np.random.default_rng(5).uniform(size=(8, *LARGE)).astype(np.float32)
    sizes = []
    for number in range(6):
        batch, context = step(number)
        batch = batch._replace(images=tf.constant(images))
        _, partner = drawn(method, context)
        if np.all(partner == np.arange(8)):
            continue
        views, values, logits = terms_of(method, batch, context)
        boxes = pasted(images, views["mixed"].numpy(), partner)
        for box in boxes:  # a box is the rows it touches times the columns it touches
            np.testing.assert_array_equal(box, np.outer(box.any(axis=1), box.any(axis=0)))
        if not per_example:
            assert np.all(boxes == boxes[0])
        weights = np.ones(8)
        weights[partner != np.arange(8)] = 1 - boxes.mean(axis=(1, 2))
        sizes += boxes.mean(axis=(1, 2)).tolist()
        expected = mixed_entropy(logits, batch.labels.numpy(), weights, partner)
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(logits, tiny_network.forward(method, views["mixed"])[1], rtol=1e-4, atol=1e-4)
    assert len(np.unique(sizes)) > 3 and max(sizes) > 0.25


@pytest.mark.parametrize("per_example", [False, True])
def test_cutmix_cuts_with_its_probability(per_example):
    # lambda is close to 1/2: no box is empty but where nothing is to be cut.
    method = cutmix(probability=0.3, mixing=Mixing(alpha=50.0, per_example=per_example, group=GROUP))
    images = tf.random.stateless_uniform([64, *LARGE], [1, 2])
    cut = []
    for number in range(10 if per_example else 100):
        batch, context = step(number, 64)
        batch = batch._replace(images=images)
        mixed = method.make_views(batch, context)["mixed"].numpy()
        rows = np.any(mixed != images.numpy(), axis=(1, 2, 3))[drawn(method, context, 64)[1] != np.arange(64)]
        assert per_example or len(set(rows)) == 1
        cut.append(rows.mean())
    assert np.mean(cut) == pytest.approx(0.3, abs=0.1 if per_example else 0.17)


# ------------------------------------------------------------------------------------------------- at the stages


def literal_forward(method, images, stage, change):
    """The network in NumPy, with `change` applied to the hidden states of one stage."""
    kernels = [np.asarray(variable, np.float64) for variable in (*method.encoder.weights, *method.head.weights)]
    hidden = (np.asarray(images, np.float64) - 0.5) / 0.25
    for index in range(3):
        if index:
            hidden = np.tanh(hidden.reshape(len(hidden), -1) @ kernels[2 * index - 2] + kernels[2 * index - 1])
        if index == stage:
            hidden = change(hidden)
    return hidden @ kernels[4] + kernels[5]


def stage_that_explains(method, batch, logits, changes):
    """The one stage at which a change gives these logits."""
    right = [
        stage
        for stage in range(3)
        if np.allclose(literal_forward(method, batch.images, stage, changes), logits, rtol=1e-3, atol=1e-4)
    ]
    assert len(right) == 1, right
    return right[0]


@pytest.mark.parametrize("kind", [ManifoldMixup, NFM])
def test_one_drawn_stage_is_mixed_and_the_loss_is_weighted_alike(kind):
    method = staged(kind, stages=(0, 1, 2))
    seen = set()
    for number in range(12):
        batch, context = step(number)
        weights, partner = drawn(method, context)
        if np.all(partner == np.arange(8)):
            continue

        def change(hidden, weights=weights, partner=partner, context=context):
            hidden = mixed_by_rows(hidden, weights, partner)
            if kind is NFM:
                noise = method.noise.draw(randomness.fold(context.key, "noise"), hidden.shape)
                hidden = hidden * noise["factor"].numpy() + noise["offset"].numpy()
            return hidden

        _, values, logits = terms_of(method, batch, context)
        seen.add(stage_that_explains(method, batch, logits, change))
        expected = mixed_entropy(logits, batch.labels.numpy(), weights, partner)
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    assert seen == {0, 1, 2}


def test_the_noise_of_nfm_is_fresh_in_every_step():
    method = staged(NFM, stages=(0,), noise=FeatureNoise(additive=0.5))
    method.mixing = Mixing(alpha=0.0)
    batch, _ = step(0)
    logits = [terms_of(method, batch, step(number)[1])[2] for number in (0, 0, 1)]
    np.testing.assert_array_equal(logits[0], logits[1])
    assert np.abs(logits[0] - logits[2]).max() > 1e-3


def test_the_released_loss_of_manifold_mixup_is_binary_cross_entropy_over_the_classes():
    method = staged(ManifoldMixup, objective="binary_cross_entropy")
    batch, context = step(2)
    weights, partner = drawn(method, context)
    _, values, logits = terms_of(method, batch, context)
    for row in range(8):
        p = tiny_network.probabilities(logits[row : row + 1].astype(np.float64))[0]
        target = (
            weights[row] * np.eye(3)[batch.labels[row]] + (1 - weights[row]) * np.eye(3)[batch.labels[partner[row]]]
        )
        terms = [-t * np.log(q) - (1 - t) * np.log(1 - q) for t, q in zip(target, p, strict=True)]
        assert values[row] == pytest.approx(sum(terms) / 3, rel=1e-3)


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("kind", [ManifoldMixup, NFM])
def test_an_encoder_without_stages_is_refused(kind):
    with pytest.raises(ValueError, match=rf"{kind.__name__} mixes hidden states .* Sequential has none"):
        kind(*tiny_network.parts())
    with pytest.raises(ValueError, match=rf"{kind.__name__}\.stages is \(0, 3\); Staged has the stages 0 to 2"):
        staged(kind, stages=(0, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda parts: CutMix(*parts, probability=1.5), r"CutMix\.probability is 1\.5"),
        (lambda parts: ManifoldMixup(Staged(), parts[1], objective="mse"), r"ManifoldMixup\.objective is 'mse'"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make(tiny_network.parts())


def test_the_defaults_are_the_papers():
    parts = tiny_network.parts()
    assert Mixup(*parts).mixing == CutMix(*parts).mixing == Mixing(alpha=1.0)
    manifold, noisy = ManifoldMixup(Staged(), parts[1]), NFM(Staged(), parts[1], stages=(0, 1, 2))
    assert manifold.mixing.alpha == 2.0 and manifold.stages == (0, 1, 2)
    assert noisy.mixing.alpha == 1.0
    assert noisy.noise == FeatureNoise(additive=0.4, multiplicative=0.2, sparsity=0.0, scale=(2.0, 5.0))
