"""Randomized smoothing: confidence bounds, radii of a linear model, and noise on a grid."""

import math
from fractions import Fraction
from unittest import mock

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf
from scipy import special, stats

from tfrobust.certification import smoothing
from tfrobust.certification.smoothing_noise import Gaussian, Uniform, make_noise

ALPHA = 0.001
# 3 x + 4 y - 1 at (1, 0.5) is 4: the distance of the other class is 0.8 in L2 and 1 in L1.
POINT = np.array([1.0, 0.5]).reshape(1, 2, 1, 1)
DISTANCES = {"gaussian": 0.8, "uniform": 1.0}


def linear(images):
    value = tf.tensordot(images[:, :, 0, 0], [3.0, 4.0], 1) - 1.0
    return tf.stack([-value, value], axis=-1)


@pytest.mark.parametrize("successes, draws, probability, radius", stored.rows(globals(), "bounds_and_radii_have_their"))
def test_bounds_and_radii_have_their_known_values(successes, draws, probability, radius):
    bound = smoothing.lower_bound(successes, draws, ALPHA)
    assert bound == pytest.approx(probability, abs=2e-12) and bound < probability
    for sigma in (0.25, 1.0):
        assert Gaussian(sigma).radius(bound) == pytest.approx(sigma * radius, abs=1e-8)
        assert Uniform(sigma).radius(bound) == pytest.approx(2 * math.sqrt(3) * sigma * (bound - 0.5), abs=1e-8)


@pytest.mark.parametrize(("draws", "least"), [(100, 66), (1000, 550), (10_000, 5156), (100_000, 50_490)])
def test_the_smallest_count_that_certifies(draws, least):
    assert smoothing.lower_bound(least - 1, draws, ALPHA) <= 0.5 < smoothing.lower_bound(least, draws, ALPHA)


@pytest.mark.parametrize("successes", [0, 1, 7, 29, 30])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_the_bound_solves_the_binomial_equation_exactly(successes, alpha):
    draws = 30
    bound = Fraction(float(smoothing.lower_bound(successes, draws, alpha)))
    tail = sum(math.comb(draws, k) * bound**k * (1 - bound) ** (draws - k) for k in range(max(successes, 1), draws + 1))
    assert tail <= Fraction(alpha)  # on the safe side
    assert successes == 0 or float(tail) == pytest.approx(alpha, rel=1e-6)
    theirs = stats.binomtest(successes, draws).proportion_ci(1 - 2 * alpha, "exact").low
    assert float(bound) == pytest.approx(theirs, abs=1e-11)


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.97])
def test_the_bound_is_above_the_probability_with_at_most_alpha(probability):
    counts = np.arange(201)
    too_high = smoothing.lower_bound(counts, 200, 0.05) > probability
    assert 0 < stats.binom.pmf(counts[too_high], 200, probability).sum() <= 0.05


@pytest.mark.parametrize(
    "votes, answer", [((66, 34), -1), ((67, 33), 0), ((448, 552), -1), ((447, 553), 1), ((5, 5), -1), ((0, 0), -1)]
)
def test_predictions_follow_the_binomial_test(votes, answer):
    assert smoothing.majority_classes(np.array([votes]), ALPHA) == [answer]
    if sum(votes):
        p_value = stats.binomtest(max(votes), sum(votes)).pvalue
        assert (p_value <= ALPHA) == (answer >= 0)


@pytest.mark.parametrize("noise", DISTANCES)
@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_radii_of_a_linear_model_approach_its_distance_from_below(noise, sigma):
    exact, radii = DISTANCES[noise], []
    for draws in (200, 20_000):
        certificates = smoothing.smoothed_certificates(linear, POINT, sigma=sigma, noise=noise, draws=draws, copies=500)
        assert certificates.classes == [1] and 0 < certificates.radii[0] < exact
        radii.append(certificates.radii[0])
    # The limit of uniform noise is 2 b (p - 1/2), which no draws can exceed; the Gaussian's is the distance.
    half = math.sqrt(3) * sigma
    grid = (np.arange(4000) + 0.5) / 4000 * 2 * half - half
    correct = np.mean(3 * (1 + grid[:, None]) + 4 * (0.5 + grid) > 1)
    limit = 2 * half * (correct - 0.5) if noise == "uniform" else exact
    assert radii[0] < radii[1] < limit and radii[1] == pytest.approx(limit, rel=0.06)


def test_certificates_cover_as_often_as_promised():
    points = np.repeat(POINT, 300, axis=0)
    certificates = smoothing.smoothed_certificates(
        linear, points, sigma=1.0, selection=20, draws=100, alpha=0.1, copies=120
    )
    # With a limit of 0.1 and 300 images, 54 or more wrong ones have a probability below 1e-4.
    assert 5 < np.sum(certificates.radii > 0.8) < 54
    assert len(np.unique(certificates.radii)) > 10  # each image has draws of its own


def test_abstains_where_no_class_has_half_of_the_votes():
    on_the_boundary = np.array([1 / 3, 0.0]).reshape(1, 2, 1, 1)
    certificates = smoothing.smoothed_certificates(linear, on_the_boundary, sigma=0.5, draws=500)
    assert certificates.classes == [smoothing.ABSTAINED] and certificates.radii == [0.0]
    assert smoothing.smoothed_predictions(linear, on_the_boundary, sigma=0.5) == [smoothing.ABSTAINED]
    assert smoothing.smoothed_predictions(linear, POINT, sigma=0.5) == [1]


def test_other_draws_choose_the_class_than_bound_it():
    selection, estimation = np.array([[3, 7, 0]]), np.array([[90, 6, 4]])
    certificates = smoothing.certificates(selection, estimation, 100, noise=Gaussian(1.0), alpha=ALPHA, values=4)
    assert certificates.classes == [-1] and certificates.probabilities[0] == pytest.approx(
        smoothing.lower_bound(6, 100, ALPHA)
    )
    certificates = smoothing.certificates(estimation, estimation, 120, noise=Gaussian(1.0), alpha=ALPHA, values=4)
    assert certificates.classes == [0]
    # 20 draws gave NaN; they are no votes, and stay in the count.
    bound = smoothing.lower_bound(90, 120, ALPHA) - Gaussian(1.0).distance(4)
    assert certificates.radii[0] == pytest.approx(stats.norm.ppf(bound) - 2 / 2**14, abs=1e-9)


def test_the_draws_that_choose_are_independent_of_those_that_count(monkeypatch):
    keys = []
    count = lambda _, image, key, draws: keys.append((*key.numpy(), draws))  # noqa: E731
    monkeypatch.setattr(smoothing.Voting, "count", count)
    voting = smoothing.Voting(linear, (2, 1, 1), Gaussian(0.5))
    for position in (0, 1):
        voting.both(POINT[0], smoothing.draw_key(0, position), 10, 20)
    assert len({key[:2] for key in keys}) == 4 and [draws for *_, draws in keys] == [10, 20, 10, 20]


def test_votes_depend_on_seed_index_and_number_alone():
    points = POINT + np.linspace(-0.4, 0.1, 6).reshape(6, 1, 1, 1)
    options = {"sigma": 0.5, "draws": 300}
    certificates = smoothing.smoothed_certificates(linear, points, **options)
    part = smoothing.smoothed_certificates(linear, points[[4, 1]], index=[4, 1], **options)
    np.testing.assert_array_equal(part.radii, certificates.radii[[4, 1]])
    other = smoothing.smoothed_certificates(linear, points, seed=1, **options)
    assert (other.radii != certificates.radii).any()
    voting = smoothing.Voting(linear, (2, 1, 1), make_noise("gaussian", 0.5))
    key = smoothing.draw_key(0, 3)
    # The first votes do not depend on how many follow, nor on how many passes one call has.
    first, more = (voting.count(points[3], key, draws) for draws in (200, 128))
    assert first.sum() == 200 and more.sum() == 128 and (first >= more).all()
    single = sum(
        voting._add(tf.constant(points[3], tf.float32), key, *map(tf.constant, (n, n + 1, 300))) for n in (0, 1, 2)
    )
    np.testing.assert_array_equal(single, voting.count(points[3], key, 300))
    selection, estimation = voting.both(points[3], key, 100, 100)
    assert selection.sum() == estimation.sum() == 100 and (selection != estimation).any()


def test_outputs_with_nan_are_no_votes():
    def failing(images):
        return tf.where(images[:, :1, 0, 0] > 1.0, np.nan, linear(images))

    voting = smoothing.Voting(failing, (2, 1, 1), Gaussian(0.5))
    votes = voting.count(POINT[0], smoothing.draw_key(0, 0), 1000)
    assert 350 < votes.sum() < 650


def test_a_keras_model_runs_in_inference_mode():
    layers = [keras.Input((2, 1, 1)), keras.layers.Flatten(), keras.layers.Dropout(0.9), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    model.layers[-1].set_weights([np.array([[-3.0, 3.0], [-4.0, 4.0]]), np.array([1.0, -1.0])])
    theirs, ours = (smoothing.smoothed_certificates(f, POINT, sigma=0.5, draws=300) for f in (model, linear))
    np.testing.assert_array_equal(theirs.radii, ours.radii)


@pytest.mark.parametrize("noise", [Gaussian(0.25), Gaussian(2.0), Uniform(0.5)])
def test_noise_lies_on_the_grid_and_has_its_distribution(noise):
    image = tf.constant([[[0.3], [0.7]]])
    steps = noise.onto_grid(image).numpy()
    noisy = noise.noisy(steps, tf.constant([1, 2]), 20_000).numpy()
    noisy_steps = noisy.astype(np.float64) * noise.grid
    np.testing.assert_array_equal(noisy_steps, np.rint(noisy_steps))
    np.testing.assert_array_equal(noisy.astype(np.float64) * noise.grid - steps, np.rint(noisy_steps - steps))
    drawn = (noisy_steps - steps).reshape(-1, 2) / noise.grid
    b = math.sqrt(3) * noise.sigma
    expected = stats.norm(0, noise.sigma) if noise.norm == "l2" else stats.uniform(-b, 2 * b)
    for column in drawn.T:
        assert stats.kstest(column, expected.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.03
    np.testing.assert_array_less(np.abs(steps / noise.grid - image), 0.51 / noise.grid)


@pytest.mark.parametrize("noise", [Gaussian(0.25), Uniform(0.5)])
def test_noise_is_the_rounded_quantile_of_numbers_that_are_never_0_or_1(noise):
    uniform = np.linspace(0, 1 - 2.0**-52, 9)
    with mock.patch.object(tf.random, "stateless_uniform", lambda shape, *_, **__: tf.constant(uniform, shape=shape)):
        noisy = noise.noisy(tf.zeros([1], tf.float64), tf.constant([0, 0]), 9).numpy()[:, 0]
    between = uniform + 2.0**-53
    b = math.sqrt(3) * noise.sigma
    real = noise.sigma * stats.norm.ppf(between) if noise.norm == "l2" else b * (2 * between - 1)
    assert np.isfinite(noisy).all()
    np.testing.assert_array_equal(noisy[1:-1], (np.rint(real * noise.grid) / noise.grid)[1:-1].astype(np.float32))


@pytest.mark.parametrize("noise", [Gaussian(0.25), Uniform(0.5)])
def test_the_distance_of_drawn_from_real_noise_is_bounded(noise):
    # The distribution function of the draws at some steps, by bisection over all 2^52 uniform numbers.
    last = int(6 * noise.sigma * noise.grid) if noise.norm == "l2" else int(noise.half_width * noise.grid) - 1
    at = np.linspace(-last, last, 301).astype(np.int64)
    low, high = np.full(at.shape, -1), np.full(at.shape, 2**52 - 1)  # the last number below or at, the first above
    while (high - low > 1).any():
        middle = (low + high) // 2
        drawn = np.rint(noise.quantile(tf.constant(middle * 2.0**-52 + 2.0**-53)).numpy() * noise.grid)
        low, high = np.where(drawn <= at, middle, low), np.where(drawn <= at, high, middle)
    cumulative, edge = (low + 1) * 2.0**-52, (at + 0.5) / noise.grid
    real = special.ndtr(edge / noise.sigma) if noise.norm == "l2" else (edge / noise.half_width + 1) / 2
    steps = (2 * last + 1) * np.mean(np.abs(cumulative - real))
    assert 0 < steps < noise.distance(1) and noise.distance(12) == pytest.approx(12 * noise.distance(1))


def test_rounding_to_the_grid_never_lengthens_a_certificate():
    generator = np.random.default_rng(0)
    for noise, order in ((Gaussian(0.5), 2), (Uniform(0.5), 1)):
        first = generator.uniform(size=(50, 12))
        second = first + generator.normal(size=(50, 12)) * 0.01
        apart = np.linalg.norm((first - second), order, axis=1)
        rounded = np.linalg.norm((noise.onto_grid(first) - noise.onto_grid(second)) / noise.grid, order, axis=1)
        assert (rounded <= apart + noise.rounding(12)).all()


@pytest.mark.parametrize("options, words", stored.rows(globals(), "wrong_arguments_are_named"))
def test_wrong_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        smoothing.smoothed_certificates(linear, POINT, **options)


def test_an_output_that_is_no_batch_of_logits_is_refused():
    with pytest.raises(ValueError, match="votes need logits"):
        smoothing.smoothed_certificates(lambda images: tf.reduce_sum(images), POINT, sigma=0.5)


def test_an_output_of_one_class_which_would_have_all_votes_is_refused():
    with pytest.raises(ValueError, match="two classes. A model of two classes with one output returns"):
        smoothing.smoothed_certificates(lambda images: linear(images)[:, :1], POINT, sigma=0.5)


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_pixels_whose_sums_with_noise_are_not_exact_give_no_certificate(noise):
    images = np.stack([POINT[0], POINT[0] + 8.5, POINT[0] * np.nan, POINT[0] - np.inf])
    certificates = smoothing.smoothed_certificates(linear, images, sigma=0.25, noise=noise, draws=500)
    assert (
        certificates.classes.tolist() == [1, -1, -1, -1]
        and certificates.radii[0] > 0
        and not certificates.radii[1:].any()
    )
    assert smoothing.smoothed_predictions(linear, images, sigma=0.25, noise=noise).tolist() == [1, -1, -1, -1]
    # Up to the limit a step of the grid remains one.
    grid = make_noise(noise, 2.0)
    steps = grid.onto_grid(tf.constant(8.0 + np.array([0.0, 1.0]) / grid.grid, tf.float64))
    key = tf.constant([1, 2])
    first, second = (grid.noisy(steps[number], key, 5000) for number in (0, 1))
    np.testing.assert_array_equal((second - first) * grid.grid, np.ones(5000))


def test_outputs_that_are_not_finite_are_no_votes():
    def broken(images):
        logits = linear(images)
        return logits + tf.where(images[:, :1, 0, 0] > 1.0, np.inf, 0.0)

    certificates = smoothing.smoothed_certificates(broken, POINT, sigma=0.25, draws=1000)
    assert certificates.probabilities[0] < 0.55
