"""Views of two sizes: made by the input pipeline, one pass per size, one pass through the projection."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from tfrobust.data import pipeline, spec
from tfrobust.losses.gradient_penalty import Tikhonov


def test_the_pipeline_makes_the_views_of_both_sizes():
    method = battery.build("dino", compiled=False)
    assert method.host_view_names == ("view_1", "view_2", "local_1", "local_2")
    drawn = {"batch_size": 6, "seed": 0, "views": method.host_views}
    batch = next(iter(pipeline.training_batches(spec.ArrayExamples(*battery.data()), **drawn)))
    shapes = {name: tuple(view.shape) for name, view in batch.extra.items()}
    assert shapes == {"view_1": (6, 8, 8, 1), "view_2": (6, 8, 8, 1), "local_1": (6, 4, 4, 1), "local_2": (6, 4, 4, 1)}
    assert not np.array_equal(batch.extra["local_1"], batch.extra["local_2"])
    assert method.make_views(batch, None).keys() == shapes.keys()


@pytest.mark.parametrize(("forward", "passes"), [("joint", [12, 12]), ("separate", [6, 6, 6, 6])])
def test_each_size_has_a_pass_of_its_own_and_the_projection_one(forward, passes):
    method = battery.build("dino", compiled=False, forward=forward)
    images = tf.constant(battery.data(6)[0])
    small = tf.nn.avg_pool2d(images, 2, 2, "VALID")
    seen = {"encoder": [], "projection": []}
    calls = {name: getattr(method, name).call for name in seen}

    def recorded(name):
        def call(inputs, **keywords):
            seen[name].append(len(inputs))
            return calls[name](inputs, **keywords)

        return mock.patch.object(getattr(method, name), "call", call)

    with recorded("encoder"), recorded("projection"):
        embeddings, projected = method.represent_views([images, images, small, small])
    assert seen == {"encoder": passes, "projection": [24]}
    assert len(embeddings) == 2 and [len(projections) for projections in projected] == [6] * 4
    with pytest.raises(ValueError, match="incompatible"):  # outside of its passes the encoder has one size again
        method.encoder(small)


@pytest.mark.parametrize(("row", "state"), [("dino", "center"), ("swav_queue", "queue")])
def test_a_penalty_that_evaluates_the_terms_again_leaves_the_state_as_it_was(row, state):
    """Finite differences evaluate them at moved views, whose projections are not those of the step."""
    states = []
    for penalty in (None, Tikhonov(weight=0.0, mode="finite_difference", step=1.0)):
        method = battery.build(row, penalty=penalty)
        method.train_step(tuple(map(tf.constant, battery.data(6))))
        states.append(getattr(method, state).numpy())
    np.testing.assert_allclose(states[1], states[0], atol=1e-6)
    assert np.abs(states[0]).max() > 1e-3


def test_overlapping_passes_of_replicas_leave_the_encoder_with_one_size():
    method = battery.build("dino", compiled=False)
    small = tf.zeros((1, 4, 4, 1))
    first, second = method.encoder.accepting_any_size(), method.encoder.accepting_any_size()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    method.encoder(small)
    second.__exit__(None, None, None)
    with pytest.raises(ValueError, match="incompatible"):
        method.encoder(small)
