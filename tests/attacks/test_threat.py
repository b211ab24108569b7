import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.attacks.shared.threat import ThreatModel, threat_of


def test_an_l1_step_passes_over_pixels_that_cannot_move():
    threat = ThreatModel(norm="l1", epsilon=1.0)
    point = tf.constant([[1.0, 0.0, 0.75, 0.5]])
    gradient = tf.constant([[9.0, -8.0, 3.0, 2.0]])
    np.testing.assert_array_equal(threat.step(point, gradient, 0.5) - point, [[0, 0, 0.25, 0.25]])
    np.testing.assert_array_equal(threat.step(point, -gradient, 0.5) - point, [[-0.5, 0, 0, 0]])


@pytest.mark.parametrize("norm,expected", [("linf", [0.5, -0.5]), ("l2", [0.3, -0.4])])
def test_the_other_steps_follow_the_steepest_direction(norm, expected):
    threat = ThreatModel(norm=norm, epsilon=0.2)
    step = threat.step(tf.zeros([1, 2]), tf.constant([[3e-20, -4e-20]]), 0.5)
    np.testing.assert_allclose(step, [expected], rtol=1e-6)


@pytest.mark.parametrize("kind,expected", [("linf", 0.5), ("l2", 0.5 * 2**0.5), ("l1", 1.0), ("l0", 2.0)])
def test_distance(kind, expected):
    distance = ThreatModel(norm=kind, epsilon=1).distance(tf.zeros([1, 2, 2]), tf.constant([[[0.5, 0], [0, -0.5]]]))
    np.testing.assert_allclose(distance, [expected], rtol=1e-6)


@pytest.mark.parametrize("kind", ["linf", "l2", "l1"])
def test_random_starts_fill_the_ball_inside_the_bounds(kind):
    threat = ThreatModel(norm=kind, epsilon=0.5, bounds=(-1.0, 1.0))
    images = tf.fill([500, 3], -1.0)
    starts = threat.random_start(images, tf.constant([3, 4]))
    distance = threat.distance(images, starts).numpy()
    assert starts.numpy().min() == -1.0 and distance.max() <= 0.5 * (1 + 1e-5) and distance.max() > 0.4


def test_l0_changes_so_many_values_and_no_more():
    threat = ThreatModel(norm="l0", epsilon=2)
    images = tf.constant([[0.0, 1.0, 0.5, 0.25]])
    # -3 has no room below 0; 1.75 keeps its place against 0.75, though both end at 1.
    projected = threat.project(images, tf.constant([[-3.0, 0.5, 1.75, 0.75]]))
    np.testing.assert_array_equal(projected, [[0.0, 0.5, 1.0, 0.25]])
    np.testing.assert_array_equal(threat.project(images, projected), projected)


def test_a_radius_in_gray_levels_is_refused():
    with pytest.raises(ValueError, match=r"epsilon is 8, but pixels lie in \[0, 1\]. Did you mean 8/255 = 0.0314\?"):
        ThreatModel(epsilon=8)
    ThreatModel(epsilon=8, bounds=(0, 255)), ThreatModel(norm="l2", epsilon=5).check_radius(25)
    with pytest.raises(ValueError, match=r"at most 5 apart in l2. Did you mean 128/255 = 0.502\?"):
        ThreatModel(norm="l2", epsilon=128).check_radius(25)
    with pytest.raises(ValueError, match=r"25 values in \[0, 1\] are at most 25 apart in l1.$"):
        ThreatModel(norm="l1", epsilon=1e5).check_radius(25)


@pytest.mark.parametrize(("number", "name"), [(np.inf, "linf"), (2, "l2"), (1.0, "l1"), (0, "l0")])
def test_a_norm_may_be_a_number(number, name):
    assert ThreatModel(norm=number, epsilon=1) == ThreatModel(norm=name, epsilon=1)
    with pytest.raises(ValueError, match="Unknown norm"):
        ThreatModel(norm=3, epsilon=1)


RADII = stored.table(globals(), "radii")


@pytest.mark.parametrize(("radii", "expected"), RADII)
def test_radii_of_several_norms(radii, expected):
    threats = [threat_of(norm, radii=radii) for norm in ("linf", "l2", "l1")]
    assert [threat.norm for threat in threats] == ["linf", "l2", "l1"]
    assert [threat.epsilon for threat in threats] == pytest.approx(list(expected), rel=1e-5)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("bounds", [(0.0, 255.0), (0.0, 4095.0), (-1024.0, 3071.0)])
def test_projected_points_of_wide_boxes_are_inside_though_their_pixels_are_coarse(norm, bounds):
    low, high = bounds
    images = np.random.default_rng(0).uniform(low, high, (20, 8, 8, 1)).astype(np.float32)
    values = 64 if norm == "l1" else 8 if norm == "l2" else 1
    threat = ThreatModel(norm=norm, epsilon=1e-4 * (high - low) * values, bounds=bounds)
    far = images + np.random.default_rng(1).normal(size=images.shape).astype(np.float32) * (high - low)
    points = threat.project(tf.constant(images), tf.constant(far))
    assert np.all(threat.contains(tf.constant(images), points))
    beyond = images + 1.05 * (points.numpy() - images)
    inside_box = np.all((beyond >= low) & (beyond <= high), axis=(1, 2, 3))
    assert inside_box.any() and not np.any(
        threat.contains(tf.constant(images), tf.constant(beyond)).numpy()[inside_box]
    )
