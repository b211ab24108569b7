"""AugMix as a whole: the Pillow procedure by its draws, the distributions of the draws, epochs of a pipeline."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from oracles import augmix as pillow
from tfrobust.augment.augmix import ALL_OPERATIONS, OPERATIONS, AugMix
from tfrobust.data import pipeline, spec
from tfrobust.ops import randomness

EXTREME = AugMix(width=2, depth=4, severity=10.0, alpha=0.3, all_operations=True)


def pixels_of(shape, seed=0):
    """Smooth pictures with some noise: each level between two others, as in photographs."""
    generator = np.random.default_rng(seed)
    coarse = generator.uniform(0, 255, (shape[0], 4, 4, shape[3]))
    smooth = tf.image.resize(coarse, shape[1:3]).numpy()
    return np.clip(smooth + generator.normal(0, 8, shape), 0, 255).astype(np.uint8)


def expected_of(pixels, draw, row):
    """Return the Pillow procedure's result for one image with the same draws."""
    chains = []
    for depth, names, levels in zip(*(draw[name][row] for name in ("depth", "operation", "level")), strict=True):
        steps = zip(names[:depth], levels[:depth], strict=True)
        chains.append(
            [
                (ALL_OPERATIONS[name], pillow.parameter(ALL_OPERATIONS[name], abs(level), level < 0, pixels.shape))
                for name, level in steps
            ]
        )
    return pillow.augmix(pixels, chains, draw["weights"][row], draw["mix"][row])


@pytest.mark.parametrize("shape", [(48, 32, 32, 3), (24, 20, 31, 1)], ids=str)
@pytest.mark.parametrize("augmix", [AugMix(), EXTREME], ids=["default", "extreme"])
def test_it_is_the_pillow_procedure_with_the_same_draws(augmix, shape):
    pixels = pixels_of(shape)
    draw = augmix.draw(randomness.make_key(3, "augmix"), shape)
    images = augmix.apply(tf.constant(pixels / np.float32(255)), draw).numpy()
    draw = {name: value.numpy() for name, value in draw.items()}
    expected = np.stack([expected_of(image, draw, row) for row, image in enumerate(pixels)])
    difference = 255 * np.abs(images - expected)
    # A level off in one step may be stretched by the next, by autocontrast most of all.
    assert difference.max() < 4 and np.mean(difference > 0.01) < 1e-3


@pytest.mark.parametrize("augmix", [AugMix(), EXTREME], ids=["default", "extreme"])
def test_draws_have_the_distributions_they_name(augmix):
    count = 2000
    draw = {name: value.numpy() for name, value in augmix.draw(randomness.make_key(5), (count, 8, 8, 1)).items()}
    names = ALL_OPERATIONS if augmix.all_operations else OPERATIONS
    assert scipy.stats.chisquare(np.bincount(draw["operation"].ravel(), minlength=len(names))).pvalue > 1e-3
    assert draw["operation"].shape == (count, augmix.width, augmix.depth or 3)
    if augmix.depth is None:
        assert scipy.stats.chisquare(np.bincount(draw["depth"].ravel(), minlength=4)[1:]).pvalue > 1e-3
    else:
        assert np.all(draw["depth"] == augmix.depth)
    size, negative = np.abs(draw["level"].ravel()), int((draw["level"] < 0).sum())
    level = scipy.stats.uniform(0.1, augmix.severity - 0.1)
    assert scipy.stats.kstest(size, level.cdf).pvalue > 1e-3
    assert scipy.stats.binomtest(negative, size.size).pvalue > 1e-3
    np.testing.assert_allclose(draw["weights"].sum(axis=1), 1, rtol=1e-6)
    alpha = augmix.alpha
    assert scipy.stats.kstest(draw["mix"], scipy.stats.beta(alpha, alpha).cdf).pvalue > 1e-3
    for weight in draw["weights"].T:
        assert scipy.stats.kstest(weight, scipy.stats.beta(alpha, (augmix.width - 1) * alpha).cdf).pvalue > 1e-3
        assert abs(np.corrcoef(weight, draw["mix"])[0, 1]) < 0.1
    # Images, chains and steps have nothing in common.
    for name in ("operation", "level"):
        value = draw[name].reshape(count, -1)
        assert abs(np.corrcoef(value[1:, 0], value[:-1, 0])[0, 1]) < 0.1
        assert abs(np.corrcoef(value[:, 0], value[:, 1])[0, 1]) < 0.1


def test_one_key_stands_for_keys_of_the_rows():
    key = randomness.make_key(7)
    shared = AugMix().draw(key, (5, 8, 8, 3))
    many = AugMix().draw(randomness.example_keys(key, tf.range(5)), (5, 8, 8, 3))
    tf.nest.map_structure(np.testing.assert_array_equal, shared, many)


def test_a_pipeline_draws_anew_in_each_epoch_and_the_same_for_seed_epoch_and_index():
    examples = spec.ArrayExamples(pixels_of((12, 8, 8, 3)), np.arange(12) % 3)

    def epoch(number, batch_size, seed=1):
        steps = 12 // batch_size
        images = {}
        stream = pipeline.training_batches(
            examples,
            batch_size=batch_size,
            seed=seed,
            augmentation=AugMix(width=1, depth=1),
            start_step=number * steps,
            steps=steps,
        )
        for batch in stream:
            images |= dict(zip(batch.index.numpy().tolist(), batch.images.numpy(), strict=True))
        return np.stack([images[index] for index in range(12)])

    first = epoch(0, 4)
    assert np.array_equal(first, epoch(0, 6))
    for other in (epoch(1, 4), epoch(0, 4, seed=2)):
        assert np.mean(np.any(first != other, axis=(1, 2, 3))) > 0.9


def test_it_can_be_compiled_by_xla():
    augmix, pixels = AugMix(width=1, depth=1), pixels_of((9, 8, 8, 3))
    images = tf.constant(pixels / np.float32(255))
    draw = augmix.draw(randomness.make_key(2), images.shape)
    compiled = tf.function(augmix.apply, jit_compile=True, autograph=False)(images, draw)
    np.testing.assert_allclose(compiled, augmix.apply(images, draw), atol=1.01 / 255)
