"""The plain convolutional encoders, layer by layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust.models.cnn import CNN, DigitsCNN, PaperCNN


def kernel_shapes(encoder, image_shape):
    encoder.build((None, *image_shape))
    return [tuple(v.shape) for v in encoder.trainable_variables if v.path.endswith("kernel")]


def test_the_digits_network_halves_by_strides_and_averages():
    digits = kernel_shapes(DigitsCNN(), (8, 8, 1))
    assert digits == [(3, 3, 1, 32), (3, 3, 32, 64), (3, 3, 64, 128), (128, 128)]
    assert kernel_shapes(CNN(), (8, 8, 1))[-1] == (512, 128)


def test_a_stride_is_every_other_place_of_the_convolution():
    strided = CNN(((2,), (3,)), dense=(), batch_normalization=False, pooling="stride")
    images = np.random.default_rng(0).random((2, 6, 6, 1)).astype(np.float32)
    stages = []
    strided(images, at_stage=lambda index, hidden: stages.append(hidden.numpy()) or hidden)
    kernel, bias = (v.numpy() for v in strided.trainable_variables[2:4])
    full = tf.nn.conv2d(tf.pad(stages[1], [[0, 0], [0, 1], [0, 1], [0, 0]]), kernel, 1, "VALID").numpy() + bias
    # 'same' at stride 2 on an even size pads below and to the right.
    np.testing.assert_allclose(stages[2], np.maximum(full[:, ::2, ::2], 0), atol=1e-5)
    with pytest.raises(ValueError, match="final_pool"):
        CNN(pooling="stride", final_pool=True)


@pytest.mark.parametrize(
    ("variant", "image_shape", "convolutions", "dense", "parameters"),
    [
        # 1,792 + 36,928 + 73,856 + 147,584 + (8*8*128 * 256 + 256 = 2,097,408) + 65,792
        ("cifar10", (32, 32, 3), [64, 64, 128, 128], [256, 256], 2_423_360),
        # + one more 64-64 (36,928), 128-128 (147,584) and 256-256 (65,792)
        ("cifar100", (32, 32, 3), [64] * 3 + [128] * 3, [256] * 3, 2_673_664),
        # 320 + 9,248 + 18,496 + 36,928 + (7*7*64 * 200 + 200 = 627,400) + 40,200
        ("mnist", (28, 28, 1), [32, 32, 64, 64], [200, 200], 732_592),
    ],
)
def test_paper_cnn_is_the_published_table(variant, image_shape, convolutions, dense, parameters):
    encoder = PaperCNN(variant)
    shapes = kernel_shapes(encoder, image_shape)
    assert [shape[-1] for shape in shapes] == convolutions + dense
    assert all(shape[:2] == (3, 3) for shape in shapes[: len(convolutions)])
    assert encoder.count_params() == parameters
    assert encoder.dim == dense[-1] and not encoder.non_trainable_variables


def test_embedding_is_behind_the_last_relu():
    images = np.random.default_rng(0).random((8, 8, 8, 1)).astype(np.float32)
    for encoder in (DigitsCNN(), PaperCNN("mnist")):
        embedding = encoder(images).numpy()
        assert embedding.min() == 0 and embedding.max() > 0
    assert DigitsCNN(activation="tanh")(images).numpy().min() < 0


def test_pooling_is_what_it_says():
    """An identity convolution, then the pool: average and maximum of each 2x2 field, last stage or not."""
    images = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    kernel = np.zeros((3, 3, 1, 1), np.float32)
    kernel[1, 1] = 1
    expected = {"max": [[5, 7], [13, 15]], "average": [[2.5, 4.5], [10.5, 12.5]]}
    for pooling, values in expected.items():
        seen = []
        encoder = CNN(((1,),), dense=(), batch_normalization=False, pooling=pooling, final_pool=True)
        encoder.build((None, 4, 4, 1))
        encoder.variables[0].assign(kernel)
        embedding = encoder(images, at_stage=lambda index, hidden, seen=seen: seen.append(hidden) or hidden)
        np.testing.assert_array_equal(seen[1][0, :, :, 0], values)
        np.testing.assert_allclose(embedding, [[np.mean(values)]], rtol=1e-6)


def test_he_normal_everywhere():
    encoder = PaperCNN("mnist")
    encoder.build((None, 28, 28, 1))
    for variable in encoder.trainable_variables:
        if variable.path.endswith("kernel") and np.prod(variable.shape) > 5000:
            expected = np.sqrt(2 / np.prod(variable.shape[:-1]))
            np.testing.assert_allclose(np.std(variable.numpy()), expected, rtol=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CNN(()), "CNN.stages"),
        (lambda: CNN(((),)), "CNN.stages"),
        (lambda: CNN((32, 64)), "CNN.stages"),
        (lambda: CNN(((0,),)), "each entry of CNN.stages"),
        (lambda: CNN(dense=(1.5,)), "each entry of CNN.dense"),
        (lambda: CNN(dense=128), "CNN.dense"),
        (lambda: CNN(pooling="min"), "'max', 'average', 'stride'"),
        (lambda: CNN(kernel_regularization=-1.0), "kernel_regularization"),
        (lambda: CNN(activation="rleu"), "rleu"),
        (lambda: CNN(batch_normalization=False, branches=2), "no batch normalisation"),
        (lambda: PaperCNN("cifar"), "'cifar10', 'cifar100', 'mnist'"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_config_holds_plain_values_and_rebuilds():
    encoder = CNN(((2, 3), (4,)), dense=(5,), activation="elu", pixel_mean=(0.1, 0.2), final_pool=True)
    config = encoder.get_config()
    assert config["stages"] == [[2, 3], [4]] and config["pixel_mean"] == [0.1, 0.2]
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(encoder))
    assert again.get_config() == config and again.stages == ((2, 3), (4,))
