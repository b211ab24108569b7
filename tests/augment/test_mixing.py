"""Weights, partners, boxes and noise of the mixing family: distributions, closed forms, literal loops."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfrobust import keras as robust
from tfrobust.augment import mixing
from tfrobust.augment.mixing import FeatureNoise, Mix, Mixing
from tfrobust.ops import randomness, shapes

KEY = randomness.make_key(3, "mixing")


def over_keys(count, sample, signature=tf.float32):
    """Return `sample` of each of many keys."""
    keys = randomness.example_keys(KEY, tf.range(count))
    return tf.function(lambda: tf.map_fn(sample, keys, fn_output_signature=signature))()


# ----------------------------------------------------------------------------------------------- distributions


@pytest.mark.parametrize("concentration", [0.2, 1.0, 2.0, 5.0])
def test_log_gamma_is_distributed_as_the_logarithm_of_a_gamma(concentration):
    draws = mixing.log_gamma(concentration)([4000], KEY).numpy()
    assert stats.kstest(draws, stats.loggamma(concentration).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("first", "second"), [(0.2, 0.2), (1.0, 1.0), (2.0, 2.0), (2.0, 5.0)])
def test_beta_is_distributed_as_a_beta(first, second):
    draws = mixing.beta(first, second)([4000], KEY).numpy()
    assert stats.kstest(draws, stats.beta(first, second).cdf).pvalue > 1e-3
    exact = stats.beta(first, second)
    assert draws.mean() == pytest.approx(exact.mean(), abs=4 * exact.std() / np.sqrt(4000))


def test_a_tiny_concentration_is_a_coin_and_no_number_is_lost():
    draws = mixing.beta(1e-3, 1e-3)([2000], KEY).numpy()
    assert np.isfinite(draws).all() and np.mean((draws < 0.01) | (draws > 0.99)) > 0.98
    assert np.mean(draws > 0.5) == pytest.approx(0.5, abs=0.05)


def test_draws_compile_and_need_no_random_state():
    operations = {
        node.op
        for node in tf.function(lambda: Mixing(group=4).draw(KEY, 10)).get_concrete_function().graph.as_graph_def().node
    }
    # XLA has no kernel for stateless gammas, and a training step must compile.
    assert not {name for name in operations if "Gamma" in name or name.startswith("Random")}


# ---------------------------------------------------------------------------------------------------- partners


@pytest.mark.parametrize(("count", "group"), [(12, 4), (12, 32), (14, 4), (5, 1), (1, 32)])
def test_partners_are_a_permutation_inside_each_group(count, group):
    rows = mixing.partners(KEY, count, group).numpy()
    assert rows.dtype == np.int32
    np.testing.assert_array_equal(np.sort(rows), np.arange(count))
    np.testing.assert_array_equal(rows // group, np.arange(count) // group)


def test_each_row_of_a_group_is_as_likely_as_any_other_also_in_an_unknown_count():
    rows = mixing.partners(KEY, 3 * 3000, 3).numpy().reshape(3000, 3) % 3
    orders, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(orders) == 6 and stats.chisquare(counts).pvalue > 1e-3
    traced = tf.function(
        lambda values: mixing.partners(KEY, shapes.batch_size(values), 4), input_signature=[tf.TensorSpec([None])]
    )
    np.testing.assert_array_equal(traced(tf.zeros([14])), mixing.partners(KEY, 14, 4))


def test_a_replica_has_the_partners_of_its_rows_of_the_global_batch(monkeypatch):
    partners = mixing.partners(KEY, 12, 3).numpy()
    parts = []
    for position in (0, 1):
        monkeypatch.setattr(mixing.distribution, "replica", lambda position=position: (2, position))
        parts.append(mixing.partners(KEY, 6, 3).numpy() + 6 * position)
    np.testing.assert_array_equal(np.concatenate(parts), partners)
    with pytest.raises(ValueError, match=r"groups of 4.* the 6 rows .*Mixing\.group to a divisor of 6"):
        mixing.partners(KEY, 6, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Mixing\.group 4"):
        mixing.partners(KEY, tf.constant(6), 4)


# ------------------------------------------------------------------------------------------------------ mixing


def test_a_step_draws_one_weight_of_its_beta_or_one_for_each_example():
    single, many = (Mixing(per_example=per_example).draw(KEY, 50).weight.numpy() for per_example in (False, True))
    assert single.shape == () and many.shape == (50,)
    assert len(np.unique(many)) == 50 and 0 <= many.min() < 0.2 and 0.8 < many.max() <= 1
    np.testing.assert_array_equal(Mixing(alpha=0).draw(KEY, 3).weight, 1.0)
    np.testing.assert_array_equal(Mixing(alpha=0, per_example=True).draw(KEY, 3).weight, [1, 1, 1])
    weights = over_keys(500, lambda key: Mixing(alpha=2.0).draw(key, 4).weight)
    assert stats.kstest(weights.numpy(), stats.beta(2, 2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("weight", [0.3, [0.3, 1.0, 0.0, 0.5]])
@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 2, 3)])
def test_rows_are_mixed_one_by_one(weight, shape):
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    partner = [2, 1, 3, 0]
    mixed = mixing.mix_rows(tf.constant(values), Mix(tf.constant(weight), tf.constant(partner)))
    for row, share in enumerate(np.broadcast_to(np.float32(weight), 4)):
        expected = share * values[row] + (1 - share) * values[partner[row]]
        np.testing.assert_allclose(mixed[row], expected, rtol=1e-5, atol=1e-6)
    half = mixing.mix_rows(tf.cast(values, tf.float16), Mix(tf.constant(weight), tf.constant(partner)))
    assert half.dtype == tf.float16


# -------------------------------------------------------------------------------------------------------- boxes


def literal_box(weight, centre, height, width):
    """The released routine, written out: the box as a set of pixels and the share that is left."""
    share = np.sqrt(1.0 - weight)
    tall, wide = int(height * share), int(width * share)
    row, column = int(centre[0] * height), int(centre[1] * width)
    box = {
        (r, c)
        for r in range(max(row - tall // 2, 0), min(row + tall // 2, height))
        for c in range(max(column - wide // 2, 0), min(column + wide // 2, width))
    }
    return box, 1.0 - len(box) / (height * width)


def test_boxes_are_the_released_routine_s():
    generator = np.random.default_rng(1)
    weights, centres = (generator.uniform(size=size).astype(np.float32) for size in ((60,), (60, 2)))
    # Nothing, everything, a side of one pixel, which has no half; boxes that the borders cut off.
    weights[:6], centres[:3], centres[3:6] = (0, 1, 0.98, 0.75, 0.75, 0), 0.5, [(0, 0.5), (0.999, 0.999), (0, 0)]
    boxes, shares = mixing.cut_box(tf.constant(weights), tf.constant(centres), 9, 14)
    for box, share, weight, centre in zip(boxes.numpy(), shares.numpy(), weights, centres, strict=True):
        pixels, expected = literal_box(weight, centre, 9, 14)
        assert {tuple(pixel) for pixel in np.argwhere(box).tolist()} == pixels
        assert share == pytest.approx(expected, abs=1e-6)
    alone, share = mixing.cut_box(tf.constant(weights[0]), tf.constant(centres[0]), 9, 14)
    np.testing.assert_array_equal(alone, boxes[0])
    assert alone.shape == (9, 14) and share.shape == ()


def test_boxes_lie_anywhere_with_equal_chance():
    """Side 4 of 8: a pixel is inside for the centres from 1 above to 2 below it, as far as these are on the image."""
    count = 6000
    draws = Mixing(per_example=True).per_step(randomness.uniform(), KEY, count, [2])
    boxes, _ = mixing.cut_box(tf.fill([count], 0.75), draws, 8, 8)
    line = np.array([sum(0 <= pixel + shift < 8 for shift in (-1, 0, 1, 2)) for pixel in range(8)]) / 8
    np.testing.assert_allclose(boxes.numpy().mean(axis=0), np.outer(line, line), atol=4 * 0.5 / np.sqrt(count))


# -------------------------------------------------------------------------------------------------------- noise


def test_noise_without_a_scale_has_the_moments_of_its_levels():
    draw = FeatureNoise(additive=0.4, multiplicative=0.2, scale=None).draw(KEY, (10, 20, 100))
    factor, offset = draw["factor"].numpy(), draw["offset"].numpy()
    assert 0.8 <= factor.min() < 0.801 and 1.199 < factor.max() <= 1.2
    assert stats.kstest(factor.ravel(), stats.uniform(0.8, 0.4).cdf).pvalue > 1e-3
    assert stats.kstest(offset.ravel(), stats.norm(scale=0.4).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(factor.ravel(), offset.ravel())[0, 1]) < 0.03


def test_the_scale_is_one_beta_draw_for_each_noise_and_step():
    noise = FeatureNoise(additive=1.0, multiplicative=1.0)

    def scales(key):
        draw = noise.draw(key, (4, 100))
        return tf.math.reduce_std(draw["offset"]), tf.reduce_max(tf.abs(draw["factor"] - 1.0))

    added, factors = over_keys(300, scales, (tf.float32, tf.float32))
    for values in (added.numpy(), factors.numpy()):  # of 400 entries: each a little off
        assert stats.kstest(values, stats.beta(2, 5).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(added, factors)[0, 1]) < 0.2


def test_sparse_noise_leaves_entries_alone_independently():
    draw = FeatureNoise(sparsity=0.65).draw(KEY, (10, 1000))
    still = [draw["factor"].numpy() == 1.0, draw["offset"].numpy() == 0.0]
    for entries in still:
        assert entries.mean() == pytest.approx(0.65, abs=0.02)
    assert np.mean(still[0] & still[1]) == pytest.approx(0.65**2, abs=0.02)


def test_noise_is_a_factor_then_an_offset_and_a_level_of_zero_is_none():
    noise, hidden = FeatureNoise(), tf.random.stateless_normal([4, 3, 3, 2], [1, 2])
    draw = noise.draw(KEY, hidden.shape)
    np.testing.assert_allclose(noise(hidden, KEY), hidden * draw["factor"] + draw["offset"], rtol=1e-6)
    scales = noise.scales(KEY)[:, None] * [[1.0] * 4, [1.0, 1.0, 1.0, 2.0]]
    twice = noise.draw(KEY, hidden.shape, scales=scales[..., None, None, None])
    np.testing.assert_allclose(twice["offset"][:3], draw["offset"][:3], rtol=1e-6)
    np.testing.assert_allclose(twice["offset"][3], 2 * draw["offset"][3], rtol=1e-6)
    np.testing.assert_array_equal(twice["factor"], draw["factor"])
    assert FeatureNoise(multiplicative=0).draw(KEY, (4, 2)).keys() == {"offset"}
    np.testing.assert_array_equal(FeatureNoise(additive=0, multiplicative=0)(hidden, KEY), hidden)
    assert noise(tf.cast(hidden, tf.float16), KEY).dtype == tf.float16


# ------------------------------------------------------------------------------------------------------- stages


def test_one_stage_is_changed_each_as_often_as_it_is_named():
    stages = (0, 2, 2, 3)

    def visited(key):
        at_stage = mixing.at_one_stage(key, stages, lambda hidden: hidden + 1.0)
        return tf.stack([at_stage(index, tf.constant(0.0)) for index in range(5)])

    visits = over_keys(400, visited).numpy()
    np.testing.assert_array_equal(visits.sum(axis=1), 1.0)
    np.testing.assert_allclose(visits.mean(axis=0), [0.25, 0, 0.5, 0.25, 0], atol=0.1)
    assert visits[:, [1, 4]].max() == 0


def test_stages_may_be_a_list_or_one_number():
    encoder = robust.models.DigitsCNN()
    assert mixing.require_stages(encoder, [0, 3], "Mine") == (0, 3)
    assert mixing.require_stages(encoder, 2, "Mine") == (2,)
