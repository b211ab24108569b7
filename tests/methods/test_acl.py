"""ACL against the released loss in NumPy; what its branches see; its joint adversary."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from oracles import instances, tiny_network
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.augment import RandomShift
from tfrobust.keras.methods import ACL, AdaptiveFNC, InstanceAdversary, Supervised
from tfrobust.keras.models import CNN, LinearHead, ProjectionHead
from tfrobust.methods.acl import ADVERSARIAL
from tfrobust.ops import keras_private
from tfrobust.runs.first_stage import Pretraining

ATTACK = PGD(ThreatModel(epsilon=0.2), steps=5)
TEMPERATURE = 0.4
PAIRS = {
    "contrastive": ("view_1", "view_2"),
    "adversarial": ADVERSARIAL,
    "adversarial_to_standard": (ADVERSARIAL[0], "view_2"),
}


def adversarial(streams, **keywords):
    """The arguments, with an adversary for the streams that take one."""
    adversary = None if streams == "standard_to_standard" else InstanceAdversary(attack=ATTACK)
    return {"streams": streams, "adversary": adversary, **keywords}


def build(kind=ACL, **keywords):
    """On a network without batch norm, whose two branches are one."""
    keras.utils.set_random_seed(2)
    if kind is ACL:
        keywords = adversarial(**{"streams": "adversarial_to_adversarial", **keywords})
    parts = {"projection": ProjectionHead((), dim=4), "views": RandomShift(fraction=0.6)}
    return tiny_network.build(kind, temperature=TEMPERATURE, **parts, **keywords)


def branched(streams="dual_stream", **keywords):
    """On a network with a batch norm for each stream, whose variables differ."""
    keras.utils.set_random_seed(2)
    head = ProjectionHead((6,), dim=4, normalization="hidden", branches=2)
    encoder = CNN(stages=((4,), (6,)), dense=(5,), branches=2)
    keywords = adversarial(streams, projection=head, **keywords)
    method = ACL(encoder, LinearHead(3), temperature=TEMPERATURE, **keywords)
    method.build((None, *battery.IMAGE_SHAPE))
    for number, variable in enumerate(method.encoder.weights + method.projection.weights):
        noise = tf.random.stateless_normal(variable.shape, [number, 7])
        variable.assign(tf.abs(variable + 0.3 * noise) if "variance" in variable.path else variable + 0.3 * noise)
    return method


def terms_of(method, batch, context):
    views = method.make_views(batch, context)
    terms, _ = method.loss_terms(views, batch, context)
    return views, {name: value.numpy() for name, value in terms.items()}


def projected(method, images):
    kernel, bias = (np.asarray(variable, np.float64) for variable in method.projection.weights)
    return tiny_network.forward(method, images)[0] @ kernel + bias


@pytest.mark.parametrize("streams", ["standard_to_standard", "adversarial_to_adversarial"])
def test_the_terms_are_the_released_loss(streams):
    method = build(streams=streams)
    views, terms = terms_of(method, *tiny_network.batch())
    (name,) = method.default_weights
    pair = [projected(method, views[view]) for view in PAIRS[name]]
    assert terms[name].mean() == pytest.approx(instances.acl(*pair, TEMPERATURE), rel=1e-4)


@pytest.mark.parametrize("streams", ["dual_stream", "adversarial_to_standard"])
def test_each_stream_is_the_released_loss_of_its_own_branch(streams):
    method = branched(streams)
    views, terms = terms_of(method, *battery.prepared(method))

    def z(names, branch):
        stacked = tf.concat([views[name] for name in names], axis=0)
        with keras.StatelessScope():
            embedding = method.encoder(stacked, training=True, branch=branch)
            return tf.split(method.projection(embedding, training=True, branch=branch).numpy(), len(names))

    if streams == "dual_stream":
        pairs = {"contrastive": z(PAIRS["contrastive"], 0), "adversarial": z(PAIRS["adversarial"], 1)}
        assert method.default_weights == {"contrastive": 0.5, "adversarial": 0.5}
    else:
        pairs = {"adversarial": (*z(ADVERSARIAL[:1], 1), *z(("view_2",), 0))}
    assert {name for name in terms if name in PAIRS} == set(pairs)
    for name, pair in pairs.items():
        assert terms[name].mean() == pytest.approx(instances.acl(*pair, TEMPERATURE), rel=1e-4)


def statistics(method, branch):
    """The moving statistics of one branch."""
    norms = [layer for layer in keras_private.all_layers(method) if hasattr(layer, "norms")]
    assert len(norms) == 3
    return [v.numpy() for layer in norms for v in layer.norms[branch].non_trainable_variables]


def test_the_clean_branch_sees_no_adversary():
    """After a step, branch 0 has the statistics of clean views alone, and branch 1 has moved otherwise."""
    images, labels = (tf.constant(part) for part in battery.data())
    before, after = {}, {}
    for streams in ("dual_stream", "standard_to_standard"):
        method = branched(streams)
        method.compile("sgd", jit_compile=False)
        before[streams] = [statistics(method, branch) for branch in (0, 1)]
        method.train_step((images, labels))
        after[streams] = [statistics(method, branch) for branch in (0, 1)]
    for both, alone in zip(after["dual_stream"][0], after["standard_to_standard"][0], strict=True):
        np.testing.assert_allclose(both, alone, rtol=1e-5, atol=1e-6)
    moved = [np.abs(a - b).max() for a, b in zip(after["dual_stream"][1], before["dual_stream"][1], strict=True)]
    assert min(moved) > 1e-4
    for a, b in zip(after["standard_to_standard"][1], before["standard_to_standard"][1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_joint_step_climbs_the_loss_of_both_views():
    """One L2 step of all views goes along the differences of the released loss."""
    attack = PGD(ThreatModel(norm="l2", epsilon=0.01), steps=1, step_size=0.01, random_start="none")
    method = build(adversary=InstanceAdversary(attack=attack))
    batch, context = tiny_network.batch(5)
    images = 0.2 + 0.6 * batch.images.numpy()
    views = [images, np.roll(images, 1, axis=1)]
    batch = batch._replace(extra={f"view_{n}": tf.constant(view) for n, view in enumerate(views, start=1)})
    moved_views = method.make_views(batch, context)
    for number, name in enumerate(ADVERSARIAL):
        gradient = np.zeros(views[number].shape)
        for index in np.ndindex(*gradient.shape):
            sides = []
            for sign in (1, -1):
                moved = [view.astype(np.float64) for view in views]
                moved[number][index] += sign * 1e-5
                sides.append(instances.acl(*(projected(method, view) for view in moved), TEMPERATURE))
            gradient[index] = (sides[0] - sides[1]) / 2e-5
        gradient = gradient.reshape(5, -1)
        step = (moved_views[name].numpy() - views[number]).reshape(5, -1) / 0.01
        np.testing.assert_allclose(step, gradient / np.linalg.norm(gradient, axis=1, keepdims=True), atol=2e-3)


@pytest.mark.parametrize("streams", ["dual_stream", "adversarial_to_standard"])
def test_adversaries_stay_in_their_balls_and_raise_the_loss_of_their_branch(streams):
    method = branched(streams)
    views = method.make_views(*battery.prepared(method))

    def loss(names, branches):
        pair = [
            method.project(method.encoder(views[name], branch=branch), False, branch).numpy()
            for name, branch in zip(names, branches, strict=True)
        ]
        return instances.acl(*pair, TEMPERATURE)

    for name in ADVERSARIAL[: 1 + (streams == "dual_stream")]:
        clean, adversarial = views[name.replace("adversarial", "view")].numpy(), views[name].numpy()
        assert (
            0.01 < np.abs(adversarial - clean).max() <= 0.2 + 1e-6 and 0 <= adversarial.min() <= adversarial.max() <= 1
        )
    if streams == "dual_stream":
        assert loss(ADVERSARIAL, (1, 1)) > loss(("view_1", "view_2"), (1, 1)) + 0.1
    else:
        assert loss((ADVERSARIAL[0], "view_2"), (1, 0)) > loss(("view_1", "view_2"), (1, 0)) + 0.05


def test_false_negatives_leave_both_streams():
    method = branched(false_negatives=AdaptiveFNC(threshold=-1.0))
    _, terms = terms_of(method, *battery.prepared(method))
    for name in ("contrastive", "adversarial"):  # the positive alone is left below the line
        np.testing.assert_allclose(terms[name], 0.0, atol=1e-6)
    assert np.all(terms["false_negatives_found"] == 1)


@pytest.mark.parametrize("branch", [0, 1])
def test_the_second_stage_starts_from_the_branch_that_is_named(branch):
    network = branched().encoder
    images, labels = (tf.constant(part) for part in battery.data())
    both = [network(images, branch=number).numpy() for number in (0, 1)]
    assert np.abs(both[0] - both[1]).max() > 0.01
    stages = {"method": ACL, "optimizer": keras.optimizers.SGD, "epochs": 1, "batch_size": 8}
    Pretraining(**stages, frozen=False, branch=branch).hand_over(network)
    np.testing.assert_array_equal(network(images), both[branch])
    method = Supervised(network, LinearHead(3))
    method.build((None, *battery.IMAGE_SHAPE))
    method.compile("sgd", jit_compile=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Keras warns of variables that nothing trains
        method.train_step((images, labels))
    assert np.abs(network(images) - both[branch]).max() > 1e-5
    with pytest.raises(ValueError, match="branch is 2, but CNN has no such branch"):
        Pretraining(**stages, branch=2).stage(network, LinearHead, None, None, 0)
    with pytest.raises(ValueError, match="branch is -1"):
        Pretraining(**stages, branch=-1)
