"""The CIFAR ResNets."""

import keras
import numpy as np

from tfrobust.models.resnet import ResNet


def test_resnet20_has_nineteen_convolutions_two_projections_and_biases():
    encoder = ResNet(20)
    encoder.build((None, 32, 32, 3))
    convolutions = [v for v in encoder.trainable_variables if v.path.endswith("kernel")]
    assert len(convolutions) == 19 + 2, "19 counted convolutions and two projections"
    assert len([v for v in encoder.trainable_variables if v.path.endswith("bias")]) == 21
    assert len([v for v in encoder.trainable_variables if v.path.endswith("gamma")]) == 19


def test_embedding_is_the_mean_over_the_last_map():
    images = np.random.default_rng(0).random((2, 8, 8, 3)).astype(np.float32)
    last = []
    embedding = ResNet(8)(images, at_stage=lambda index, hidden: last.append(hidden) or hidden)
    np.testing.assert_allclose(embedding, last[-1].numpy().mean((1, 2)), rtol=1e-5, atol=1e-6)
    assert embedding.numpy().min() >= 0, "ReLU stands behind the addition"


def test_activation_and_regularisation_reach_every_layer():
    encoder = ResNet(8, activation="softplus", kernel_regularization=0.0)
    activations = {
        layer.activation for layer in encoder._flatten_layers() if isinstance(layer, keras.layers.Activation)
    }
    assert activations == {keras.activations.softplus} and not encoder.losses
