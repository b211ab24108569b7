"""The plain convolutional encoders, layer by layer."""

import numpy as np
import tensorflow as tf

from tfrobust.models.cnn import CNN, DigitsCNN, PaperCNN


def test_a_stride_is_every_other_place_of_the_convolution():
    strided = CNN(((2,), (3,)), dense=(), batch_normalization=False, pooling="stride")
    images = np.random.default_rng(0).random((2, 6, 6, 1)).astype(np.float32)
    stages = []
    strided(images, at_stage=lambda index, hidden: stages.append(hidden.numpy()) or hidden)
    kernel, bias = (v.numpy() for v in strided.trainable_variables[2:4])
    full = tf.nn.conv2d(tf.pad(stages[1], [[0, 0], [0, 1], [0, 1], [0, 0]]), kernel, 1, "VALID").numpy() + bias
    # 'same' at stride 2 on an even size pads below and to the right.
    np.testing.assert_allclose(stages[2], np.maximum(full[:, ::2, ::2], 0), atol=1e-5)


def test_embedding_is_behind_the_last_relu():
    images = np.random.default_rng(0).random((8, 8, 8, 1)).astype(np.float32)
    for encoder in (DigitsCNN(), PaperCNN("mnist")):
        embedding = encoder(images).numpy()
        assert embedding.min() == 0 and embedding.max() > 0
    assert DigitsCNN(activation="tanh")(images).numpy().min() < 0


def test_without_stages_it_is_a_multilayer_perceptron():
    images = tf.random.stateless_uniform([4, 8, 8, 1], [0, 1])
    encoder = CNN((), dense=(6, 3))
    embeddings = encoder(images)
    hidden_kernel, hidden_bias, kernel, bias = (v.numpy() for v in encoder.trainable_variables)
    hidden = np.maximum(np.reshape(images, [4, 64]) @ hidden_kernel + hidden_bias, 0)
    np.testing.assert_allclose(embeddings, np.maximum(hidden @ kernel + bias, 0), atol=1e-5)


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
