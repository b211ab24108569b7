"""Free adversarial training: what a replay updates, what is carried over, and batches of other sizes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import tiny_network as tiny
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.methods.free_adversarial_training import FreeAdversarialTraining
from tfrobust.structs import Batch

EPSILON = 0.1


def free(norm="linf", rate=0.0, **keywords):
    settings = {"replays": 1, "rows": 9, **keywords}
    method = tiny.build(FreeAdversarialTraining, threat=ThreatModel(norm=norm, epsilon=EPSILON), **settings)
    method.compile(keras.optimizers.SGD(rate), jit_compile=False)
    return method


def gradient(method, batch, perturbation):
    """The gradient by the perturbation; pixels that are cut have none."""
    moved = batch.images.numpy().astype(np.float64) + perturbation
    inside = (moved >= 0) & (moved <= 1)
    return inside * tiny.input_gradient(method, np.clip(moved, 0, 1), np.eye(tiny.CLASSES)[batch.labels])


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_perturbations_climb_in_the_ball_and_are_carried_over(norm):
    method, expected = free(norm), np.zeros((9, *tiny.SHAPE))
    for seed in range(3):
        batch, _ = tiny.batch(seed=seed)
        slope = gradient(method, batch, expected)
        if norm == "linf":
            expected = np.clip(expected + EPSILON * np.sign(slope), -EPSILON, EPSILON)
        else:
            lengths = lambda perturbation: np.sqrt((perturbation**2).sum(axis=(1, 2, 3), keepdims=True))  # noqa: E731
            expected = expected + EPSILON * slope / np.maximum(lengths(slope), 1e-30)
            expected *= np.minimum(1, EPSILON / np.maximum(lengths(expected), 1e-30))
        method.train_step(Batch(*batch))
        np.testing.assert_allclose(method.perturbation.numpy(), expected, atol=1e-4, err_msg=str(seed))


def test_each_replay_is_an_update_of_the_weights_at_the_perturbation_before_it():
    once, twice = free(rate=0.1), free(rate=0.1, replays=2)
    batch, _ = tiny.batch()
    logs = once.train_step(Batch(*batch))
    expected = tiny.cross_entropy(tiny.forward(free(), batch.images)[1], batch.labels.numpy())
    assert float(logs["ce_adv"]) == pytest.approx(expected.mean(), rel=1e-4)
    once.train_step(Batch(*batch))
    twice.train_step(Batch(*batch))
    assert int(twice.step) == int(twice.optimizer.iterations) == 2 and twice.passes_per_step == 2
    for variable, other in zip(once.variables, twice.variables, strict=True):
        np.testing.assert_allclose(variable.numpy(), other.numpy(), atol=1e-6, err_msg=variable.path)


def test_a_smaller_batch_moves_its_own_rows_and_a_larger_one_is_refused():
    method = free(rows=12)
    batch, _ = tiny.batch()
    method.train_step(Batch(*batch))
    moved = method.perturbation.numpy()
    assert np.any(moved[:9]) and not np.any(moved[9:])
    small = [tf.constant(part[:4]) for part in (batch.images, batch.labels)]
    method.train_step(tuple(small))
    np.testing.assert_array_equal(method.perturbation.numpy()[4:], moved[4:])
    assert np.any(method.perturbation.numpy()[:4] != moved[:4])
    with pytest.raises(ValueError, match="rows is 6, but a batch has 9 rows: set rows to BATCH_SIZE"):
        free(rows=6).train_step(Batch(*batch))
