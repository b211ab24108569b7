import numpy as np
import pytest
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.engine import Votes
from tfrobust.keras.attacks import DDN, FGSM, PGD, HopSkipJump, ThreatModel, run_attack

IMAGES = np.full([3, 2, 2, 1], 0.5)


def test_good_inputs_come_back_in_their_types():
    assert checks.check_images(IMAGES, 0, 1).dtype == np.float32
    np.testing.assert_array_equal(checks.label_ids([2.0, 0.0, 1.0], 3), [2, 0, 1])
    np.testing.assert_array_equal(checks.label_ids(np.eye(3)[[2, 0, 1]], 3), [2, 0, 1])
    np.testing.assert_array_equal(checks.label_ids(np.array([[2], [0], [1]]), 3), [2, 0, 1])
    np.testing.assert_array_equal(checks.check_images(tf.cast(IMAGES, tf.bfloat16), 0, 1), IMAGES)
    with pytest.raises(ValueError, match="uint8, not floating point in .0, 255.; cast them by images.astype"):
        checks.check_images(IMAGES.astype("uint8"), 0, 255)
    assert checks.check_logits(np.array([[1.0, -2.0], [0.5, 0.5]]), np.array([0, 1])) == 2


def test_integers_of_numpy_become_those_of_python():
    threat = ThreatModel(epsilon=0.1, max_frames=np.int32(2))
    attack = PGD(threat, steps=np.int64(5), restarts=np.uint8(2))
    values = threat.max_frames, attack.steps, attack.restarts, *Votes.of((np.int64(10), np.uint8(5)))
    assert values == (2, 5, 2, 10, 5) and {type(value) for value in values} == {int}
    for wrong in (np.float64(5.0), np.bool_(True), np.array([5])):
        with pytest.raises(ValueError, match="PGD.steps is .*; it must be an integer >= 1"):
            PGD(threat, steps=wrong)


def test_floats_of_numpy_become_those_of_python():
    """Operations of TensorFlow take float64 from some of them, and the attack ended in a TypeError."""
    low, high, share = np.float64([0.0, 1.0, 0.1])
    threat = ThreatModel(norm="l2", epsilon=np.float32(0.5), bounds=(low, high), l1_share=share)
    attack = DDN(threat, steps=2, radius_change=share, first_radius=high)
    values = (threat.epsilon, *threat.bounds, threat.l1_share, attack.radius_change, attack.first_radius)
    assert {type(value) for value in values} == {float}
    predict = lambda images: images[:, 0, 0]  # noqa: E731
    for kind in (attack, HopSkipJump(threat, steps=1, first_samples=2)):
        run_attack(kind, predict, np.full([1, 1, 1, 2], 0.5, np.float32), [0])


def test_what_looks_like_sigmoids_may_be_logits():
    logits = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.6, 0.7]])
    with pytest.raises(ValueError, match="pass logits - 1") as raised:
        checks.check_logits(logits, np.array([0, 1]))
    assert len(str(raised.value)) <= 300
    assert checks.check_logits(logits - 1, np.array([0, 1])) == 2
    assert checks.check_logits(logits, np.array([0, 1]), known_logits=True) == 2
    with pytest.raises(ValueError, match="NaN"):
        checks.check_logits(logits * np.nan, np.array([0, 1]), known_logits=True)


def test_an_attack_says_what_is_wrong_with_labels_and_outputs():
    kernel = tf.constant(np.random.default_rng(0).normal(size=(4, 3)), tf.float32)
    predict = lambda images: tf.reshape(images, [-1, 4]) @ kernel  # noqa: E731
    attack = FGSM(ThreatModel(epsilon=0.2))
    images = np.random.default_rng(1).random((3, 2, 2, 1)).astype(np.float32)
    ids = np.array([0, 2, 1])
    adversarial = [run_attack(attack, predict, images, labels).adversarial for labels in (ids, np.eye(3)[ids])]
    np.testing.assert_array_equal(*adversarial)
    with pytest.raises(ValueError, match="one-hot"):
        run_attack(attack, predict, images, np.full((3, 3), 1 / 3))
    with pytest.raises(ValueError, match="k >= 2"):
        run_attack(attack, lambda images: predict(images)[:, :1], images, ids * 0)


@pytest.mark.parametrize("squash", [tf.nn.softmax, tf.nn.sigmoid])
def test_an_attack_converts_probabilities(squash):
    images = np.random.default_rng(0).uniform(size=(30, 2, 2, 1)).astype("float32")
    images[:6] = np.repeat([[0.0], [1.0]], 3, axis=0)[:, :, None, None]

    def logits(inputs):
        level = tf.reduce_mean(inputs, axis=[1, 2, 3]) - 0.5
        return 12 * tf.stack([level, -level], axis=1)

    labels = np.asarray(logits(images)).argmax(-1)
    attack = FGSM(threat=ThreatModel(epsilon=0.1))
    expected = run_attack(attack, logits, images, labels)
    result = run_attack(attack, lambda inputs: squash(logits(inputs)), images, labels)
    assert 0 < expected.success.sum() < 30
    np.testing.assert_array_equal(result.success, expected.success)
