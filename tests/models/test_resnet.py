"""The CIFAR ResNets and the readings of ResNet-50; sizes and recorded networks are compared elsewhere."""

import keras
import numpy as np

from tfrobust.keras.models import ResNet, ResNet50
from tfrobust.models.shared.blocks import PreActivationBlock
from tfrobust.ops import keras_private


def test_embedding_is_the_mean_over_the_last_map():
    images = np.random.default_rng(0).random((2, 8, 8, 3)).astype(np.float32)
    last = []
    embedding = ResNet(8)(images, at_stage=lambda index, hidden: last.append(hidden) or hidden)
    np.testing.assert_allclose(embedding, last[-1].numpy().mean((1, 2)), rtol=1e-5, atol=1e-6)
    assert embedding.numpy().min() >= 0, "ReLU stands behind the addition"


def test_activation_and_regularisation_reach_every_layer():
    encoder = ResNet(8, activation="softplus", kernel_regularization=0.0)
    activations = {
        layer.activation for layer in keras_private.all_layers(encoder) if isinstance(layer, keras.layers.Activation)
    }
    assert activations == {keras.activations.softplus} and not encoder.losses


def test_the_second_version_has_the_same_paths():
    encoders = [ResNet50(width=2), ResNet50("bottleneck_v2", width=2)]
    first, second = (
        [b for stage in encoder.stage_layers for b in stage if hasattr(b, "project")] for encoder in encoders
    )
    paths = [[([step[:3] for step in b.convolutions], b.project) for b in blocks] for blocks in (first, second)]
    assert paths[0] == paths[1]
    assert all(isinstance(b, PreActivationBlock) and b.shortcut == "standard" for b in second)
    stem = encoders[1].stage_layers[0][0]
    assert not (stem.normalize or stem.activate or stem.style.use_bias) and len(encoders[1].neck) == 3


def test_the_pooled_reading_has_identities_of_constant_width():
    encoder = ResNet50("pooled")
    blocks = [[b for b in stage if hasattr(b, "convolutions")] for stage in encoder.stage_layers]
    assert [len(stage) for stage in blocks] == [3, 4, 6, 3] and encoder.dim == 512
    for stage, width in zip(blocks, (64, 128, 256, 512), strict=True):
        quarter = width // 4
        assert {b.convolutions for b in stage} == {((quarter, 1, 1, 1), (quarter, 3, 1, 1), (width, 1, 1, 1))}
        assert not any(b.project for b in stage)
    assert [type(stage[1]).__name__ for stage in encoder.stage_layers[1:]] == ["AveragePooling2D"] * 3
