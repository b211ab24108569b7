import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.augment.utility_perturbation import UtilityPerturbation

KEY = tf.constant([3, 4])
SHAPE = (6, 5, 3)


def _inputs(count=4, seed=0):
    generator = np.random.default_rng(seed)
    images = generator.uniform(size=(count, *SHAPE)).astype(np.float32)
    # Many equal utilities, as a network has them at pixels that are always 0.
    utility = np.maximum(generator.integers(-5, 6, images.shape), 0).astype(np.float32)
    return images, utility


@pytest.mark.parametrize("count", [1, 10, 0.1, 15, 0.5])
@pytest.mark.parametrize("unit", ["values", "pixels"])
def test_noise_is_on_exactly_the_chosen_features(unit, count):
    images, utility = _inputs()
    noisy = UtilityPerturbation(count=count, unit=unit)(images, utility, KEY)
    scores = utility.reshape(len(images), -1) if unit == "values" else utility.sum(-1).reshape(len(images), -1)
    expected = count if isinstance(count, int) else round(count * scores.shape[1])
    for copy, sign in ((noisy.least, 1), (noisy.most, -1)):
        change = (copy - images).numpy() != 0
        touched = change if unit == "values" else change.all(-1)
        assert unit == "values" or np.array_equal(touched, change.any(-1))
        touched = touched.reshape(len(images), -1)
        assert np.array_equal(touched.sum(1), np.full(len(images), expected))
        for row, mask in zip(sign * scores, touched, strict=True):
            assert np.array_equal(np.sort(row[mask]), np.sort(row)[:expected])


def test_double_precision_is_converted():
    single, double = (
        UtilityPerturbation(count=3)(*(values.astype(dtype) for values in _inputs()), KEY)
        for dtype in ("float32", "float64")
    )
    assert all(np.array_equal(*pair) for pair in zip(single, double, strict=True))


def test_the_noise_is_gaussian_and_drawn_twice():
    images = np.zeros((400, *SHAPE), np.float32)
    # One half of the values is useful, and each copy has noise on 45 of the 90.
    utility = np.tile(np.arange(90).reshape(SHAPE), (400, 1, 1, 1)).astype(np.float32)
    noisy = UtilityPerturbation(count=45, deviation=0.5)(images, utility, KEY)
    least = noisy.least.numpy().reshape(400, 90)[:, :45].ravel()
    most = noisy.most.numpy().reshape(400, 90)[:, 45:].ravel()
    error = 0.5 / np.sqrt(least.size)
    for draws in (least, most):
        assert abs(draws.mean()) < 5 * error and abs(draws.std() - 0.5) < 5 * error
        assert abs(np.mean(draws**4) / 0.5**4 - 3) < 0.2
    assert abs(np.corrcoef(least, most)[0, 1]) < 5 / np.sqrt(least.size)


def test_equals_are_taken_at_random():
    """Four of ten features of utility 0 are changed, each about equally often, wherever it is."""
    images = np.zeros((1, 1, 12, 1), np.float32)
    utility = np.array([0] * 5 + [1, 1] + [0] * 5, np.float32).reshape(images.shape)
    perturbation = UtilityPerturbation(count=4)
    keys = tf.stack([tf.range(400), tf.zeros(400, tf.int32)], axis=1)
    least = tf.function(lambda key: perturbation(images, utility, key).least, autograph=False)
    often = sum((least(key).numpy().ravel() != 0).astype(int) for key in keys)
    assert often[5] == often[6] == 0
    equals = np.delete(often, [5, 6])
    assert np.sum((equals - 160) ** 2 / (160 * 0.6)) < 27.9  # chi-squared, 9 degrees of freedom, 0.1 %


@pytest.mark.parametrize("count", [1, 5, 6])
def test_equals_are_never_both_least_and_most_useful(count):
    """Twelve features, of which all, ten or one have utility 0."""
    utility = np.zeros((3, 12), np.float32)
    utility[1, 3:5], utility[2, 1:] = (1, 2), np.arange(11) + 1
    for seed in range(20):
        least, most = UtilityPerturbation(count=count).choose(tf.constant(utility), tf.constant([seed, 0]))
        for row, other in zip(least.numpy(), most.numpy(), strict=True):
            assert len({*row, *other}) == 2 * count


def test_images_without_utility_are_not_usable():
    images, utility = _inputs(3)
    utility[1] *= 1e-14
    utility[2] *= 1e-11
    assert UtilityPerturbation(count=5)(images, utility, KEY).usable.numpy().tolist() == [True, False, True]


@pytest.mark.parametrize("arguments, shape, message", stored.rows(globals(), "a_count_above_half_of_the_features_is"))
def test_a_count_above_half_of_the_features_is_refused(arguments, shape, message):
    perturbation = UtilityPerturbation(**arguments)
    images = tf.zeros([2, *shape])
    for refused in (lambda: perturbation.check(shape), lambda: perturbation(images, images, KEY)):
        with pytest.raises(ValueError, match=message):
            refused()
    UtilityPerturbation(count=32).check((8, 8, 1))
