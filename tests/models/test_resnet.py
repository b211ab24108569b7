"""The CIFAR ResNets."""

import keras
import numpy as np
import pytest

from tfrobust.models.resnet import ResNet, blocks_per_stage


def test_resnet20_has_the_known_parameters():
    """With ten logits (650) the Keras CIFAR ResNet20 v1 has 274,442, of which 1,376 moving statistics.

    By hand: stem 448; stage 1: 6 x 2,320; stage 2: 4,640 + 5 x 9,248 + 544; stage 3: 18,496 + 5 x 36,928
    + 2,112; scale and offset 7 x 32 + 6 x 64 + 6 x 128 = 1,376.
    """
    encoder = ResNet(20)
    encoder.build((None, 32, 32, 3))
    by_hand = 448 + 6 * 2320 + (4640 + 5 * 9248 + 544) + (18496 + 5 * 36928 + 2112)
    assert encoder.count_params() == by_hand + 2 * 1376 == 274_442 - 650
    convolutions = [v for v in encoder.trainable_variables if v.path.endswith("kernel")]
    assert len(convolutions) == 19 + 2, "19 counted convolutions and two projections"
    assert len([v for v in encoder.trainable_variables if v.path.endswith("bias")]) == 21
    assert len([v for v in encoder.trainable_variables if v.path.endswith("gamma")]) == 19


def test_stage_shapes():
    shapes = []
    encoder = ResNet(8, widths=(4, 8, 16, 32))
    embedding = encoder(
        np.zeros((1, 32, 32, 3), np.float32),
        at_stage=lambda index, hidden: shapes.append(tuple(hidden.shape[1:])) or hidden,
    )
    assert shapes == [(32, 32, 3), (32, 32, 4), (16, 16, 8), (8, 8, 16), (4, 4, 32)]
    assert embedding.shape == (1, 32) and encoder.stage_count == 4


def test_embedding_is_the_mean_over_the_last_map():
    images = np.random.default_rng(0).random((2, 8, 8, 3)).astype(np.float32)
    last = []
    embedding = ResNet(8)(images, at_stage=lambda index, hidden: last.append(hidden) or hidden)
    np.testing.assert_allclose(embedding, last[-1].numpy().mean((1, 2)), rtol=1e-5, atol=1e-6)
    assert embedding.numpy().min() >= 0, "ReLU stands behind the addition"


@pytest.mark.parametrize(("depth", "blocks"), [(8, 1), (20, 3), (50, 8), (56, 9), (110, 18)])
def test_blocks_per_stage(depth, blocks):
    assert blocks_per_stage(depth) == blocks


@pytest.mark.parametrize(
    ("depth", "message"),
    [
        (18, "nearest valid: 14 and 20"),
        (57, "nearest valid: 56 and 62"),
        (2, "nearest valid: 8"),
        (-4, "nearest valid: 8"),
        (20.0, "must be an integer"),
        (True, "must be an integer"),
    ],
)
def test_bad_depth_names_the_nearest(depth, message):
    with pytest.raises(ValueError, match=message):
        ResNet(depth)


def test_activation_and_regularisation_reach_every_layer():
    encoder = ResNet(8, activation="softplus", kernel_regularization=0.0)
    activations = {
        layer.activation for layer in encoder._flatten_layers() if isinstance(layer, keras.layers.Activation)
    }
    assert activations == {keras.activations.softplus} and not encoder.losses


def test_resnet56_has_the_known_parameters():
    """He et al. give 0.85 million for ResNet-56; with projections and biases 858,618 of them train."""
    encoder = ResNet(56)
    encoder.build((None, 32, 32, 3))
    stage_1 = 18 * 2320
    stage_2 = 4640 + 17 * 9248 + 544
    stage_3 = 18496 + 17 * 36928 + 2112
    norms = 19 * 32 + 18 * 64 + 18 * 128
    trainable = sum(int(np.prod(v.shape)) for v in encoder.trainable_variables)
    assert trainable == 448 + stage_1 + stage_2 + stage_3 + norms
    assert 0.84e6 < trainable < 0.87e6
