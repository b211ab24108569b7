"""Stages and branches of foreign models: our ResNet, written as a functional model, takes the same steps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import backbones
from conformance import methods as battery
from tfrobust.errors import InputError
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.methods import ACL, InstanceAdversary
from tfrobust.keras.models import Backbone, LinearHead, ProjectionHead, ResNet
from tfrobust.keras.optimizers import LARS
from tfrobust.ops import keras_private
from tfrobust.runs.first_stage import Pretraining

STAGES = ("stage_1", "stage_2")


def acl(streams="dual_stream"):
    """Steps in L2 and a projection without ReLU are smooth, so that nothing amplifies rounding."""
    attack = PGD(ThreatModel(norm="l2", epsilon=0.5), steps=2)
    return lambda *parts, **keywords: ACL(
        *parts,
        streams=streams,
        adversary=InstanceAdversary(attack=attack),
        projection=ProjectionHead((), dim=4, normalization="all", branches=2),
        views=battery.SHIFT,
        **keywords,
    )


METHODS = {
    "acl": (acl(), 2),
    "acl_to_standard": (acl("adversarial_to_standard"), 2),
    **{name: (battery.ROWS[name], 1) for name in ("manifold_mixup", "nfm", "noisymix", "layer_wise")},
}


def our_resnet(branches: int = 1) -> ResNet:
    encoder = ResNet(8, widths=(2, 3, 4), activation="tanh", branches=branches)
    encoder.build((None, *battery.IMAGE_SHAPE))
    for number, variable in enumerate(encoder.variables):
        noise = tf.random.stateless_normal(variable.shape, [number, 7])
        variable.assign(tf.abs(variable + 0.3 * noise) if "variance" in variable.path else variable + 0.3 * noise)
    return encoder


def as_functional(encoder: ResNet) -> tuple[keras.Model, list, list]:
    """The network in plain Keras layers, and pairs of (our layer, new layer): convolutions, batch norms."""
    convolutions, norms = [], []

    def unit(ours, hidden):
        new = keras.layers.Conv2D.from_config(ours.chain[0].get_config())
        convolutions.append((ours.chain[0], new))
        hidden = new(hidden)
        if ours.normalize:
            new = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
            norms.append((ours.chain[1], new))
            hidden = new(hidden)
        return keras.ops.tanh(hidden) if ours.activate else hidden

    hidden = inputs = keras.Input(battery.IMAGE_SHAPE)
    for number, stage in enumerate(encoder.stage_layers, start=1):
        for layer in stage:
            if hasattr(layer, "chain"):
                hidden = unit(layer, hidden)
            else:
                first, second = layer.units
                path = unit(second, unit(first, hidden))
                hidden = keras.layers.Add()([path, unit(layer.shortcut[0], hidden) if layer.shortcut else hidden])
                hidden = keras.ops.tanh(hidden)
        hidden = keras.layers.Identity(name=f"stage_{number}")(hidden)
    return keras.Model(inputs, hidden, name="functional"), convolutions, norms


def twins(branches: int):
    """Our ResNet, a backbone with the same weights, and pairs of variables."""
    ours = our_resnet(branches)
    model, convolutions, norms = as_functional(ours)
    theirs = Backbone(model, pixel_range=(0, 1), stage_names=STAGES, branches=branches)
    theirs.build((None, *battery.IMAGE_SHAPE))
    branched = {}
    for layer in keras_private.all_layers(theirs):
        branched |= {id(group[0]): group for group in getattr(layer, "norm_branches", ())}
    pairs = convolutions + [
        pair for norm, new in norms for pair in zip(norm.norms, branched.get(id(new), [new]), strict=True)
    ]
    for source, other in pairs:
        other.set_weights(source.get_weights())
    return ours, theirs, [pair for layers in pairs for pair in zip(*(layer.variables for layer in layers), strict=True)]


# The first tier has one method with branches and one with stages.
SHOWN = [pytest.param(name, marks=() if name in ("acl", "nfm") else pytest.mark.rest) for name in METHODS]


@pytest.mark.parametrize("name", SHOWN)
def test_a_step_on_a_functional_resnet_is_that_on_our_own(name):
    """LARS excludes the batch norms of both; the sum of squared kernels is counted once."""
    make, branches = METHODS[name]
    *encoders, pairs = twins(branches)
    assert len(pairs) == len(encoders[0].variables) == len(encoders[1].variables)
    images, labels = (tf.constant(part) for part in battery.data())
    before, logs = [variable.numpy() for variable, _ in pairs], []
    for encoder in encoders:
        keras.utils.set_random_seed(5)
        method = make(encoder, LinearHead(battery.CLASSES), seed=3)
        method.build((None, *battery.IMAGE_SHAPE))
        method.compile(LARS(0.1, weight_decay=0.01), jit_compile=False)
        logs.append(method.train_step((images, labels)))
    assert set(logs[0]) == set(logs[1]) and "regularization" in logs[0]
    for term, value in logs[0].items():
        np.testing.assert_allclose(logs[1][term], value, rtol=1e-4, atol=1e-5, err_msg=term)
    still = []
    for old, (variable, other) in zip(before, pairs, strict=True):
        np.testing.assert_allclose(other, variable, rtol=1e-3, atol=2e-3, err_msg=f"{variable.path} {other.path}")
        if np.array_equal(variable, old):
            still.append(variable.path)
    # Batch norm subtracts what a bias adds.
    assert all(path.endswith("bias") for path in still)


def shape_of(variable) -> tuple:
    return tuple(variable.shape)


@pytest.mark.parametrize("branch", [0, 1])
def test_the_second_stage_takes_a_branch_over(branch):
    ours, theirs, pairs = twins(2)
    stages = {"method": ACL, "optimizer": keras.optimizers.SGD, "epochs": 1, "batch_size": 8}
    for encoder in (ours, theirs):
        Pretraining(**stages, frozen=False, branch=branch).hand_over(encoder)
    for variable, other in pairs:
        np.testing.assert_array_equal(other, variable)
    assert sorted(map(shape_of, ours.trainable_variables)) == sorted(map(shape_of, theirs.trainable_variables))


# --------------------------------------------------------------------------------- backbones that others have made


def application(name: str, **arguments) -> Backbone:
    return Backbone(application=name, resize_to=32, stage_names="resolution", **arguments)


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # NFM trains branch 0 alone
def test_a_network_of_keras_applications_trains_at_its_stages_and_survives_a_file(tmp_path):
    encoder = application("MobileNetV2", arguments={"alpha": 0.35}, branches=2)
    assert (encoder.stage_count, encoder.branches) == (5, 2)
    method = battery.ROWS["nfm"](encoder, LinearHead(battery.CLASSES))
    images, labels = (tf.constant(part) for part in battery.data())
    method.build((None, *battery.IMAGE_SHAPE))
    method.compile("sgd", jit_compile=False)
    assert np.isfinite(method.train_step((images, labels))["loss"])
    outputs = [encoder(images, branch=branch).numpy() for branch in (0, 1)]
    assert np.abs(outputs[0] - outputs[1]).max() > 0
    encoder.save(tmp_path / "encoder.keras")
    again = keras.saving.load_model(tmp_path / "encoder.keras")
    assert again.stage_names == "resolution" and len(again.variables) == len(encoder.variables)
    for branch, expected in enumerate(outputs):
        np.testing.assert_array_equal(again(images, branch=branch), expected)


@pytest.mark.rest
@pytest.mark.parametrize("name", ["ResNet50", "ResNet50V2", "DenseNet121", "EfficientNetB0", "ConvNeXtTiny"])
def test_resolution_gives_stages_whose_composition_is_the_network(name):
    branches = 1 if name == "ConvNeXtTiny" else 2
    encoder = application(name, branches=branches)
    assert encoder.stage_count == (4 if name == "ConvNeXtTiny" else 5)
    images = tf.constant(np.random.default_rng(0).random((2, 32, 32, 3), dtype=np.float32))
    sides = []
    pooled = encoder(images, branch=branches - 1, at_stage=lambda _, hidden: sides.append(hidden.shape[1]) or hidden)
    assert sides == sorted(sides, reverse=True)
    maps = encoder.model(encoder.standardize(images))
    np.testing.assert_allclose(pooled, tf.reduce_mean(maps, [1, 2]), rtol=1e-4, atol=1e-5)


def test_pyramid_outputs_of_keras_hub_are_stages():
    pytest.importorskip("keras_hub")
    encoder = backbones.make("ResNetBackbone", stage_names="pyramid")
    model, seen = encoder.model, []
    assert encoder.stage_count == len(model.pyramid_outputs) == 2
    encoder(tf.constant(battery.data(3)[0]), at_stage=lambda _, hidden: seen.append(hidden) or hidden)
    first = keras.Model(model.inputs, model.pyramid_outputs["P2"])
    np.testing.assert_allclose(seen[1], first(seen[0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["ViTBackbone", "DINOV2Backbone"])
def test_backbones_that_hold_all_blocks_in_one_layer_are_not_divided(name):
    pytest.importorskip("keras_hub")
    refused = {"finds no place": {"stage_names": "resolution"}, "no batch normalization": {"branches": 2}}
    for message, arguments in refused.items():
        with pytest.raises(InputError, match=message) as caught:
            backbones.make(name, **arguments)
        assert "\n" not in str(caught.value)
