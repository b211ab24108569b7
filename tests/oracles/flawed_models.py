"""Models whose flaws are planted, each around one sound network on the digits; and sound ones of many kinds.

`FLAWS` and `HEALTHY` are made of functions without arguments, so that nothing is trained before it is asked for.
All training is closed form or a second of NumPy.
"""

import dataclasses
import functools

import keras
import numpy as np
import stored
import tensorflow as tf

from tfrobust.data.sources.digits import Digits
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.loading import from_keras
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.keras.attacks import PGD, ThreatModel

EPSILON, TESTED = 0.1, 150
ATTACK = PGD(threat=ThreatModel(epsilon=EPSILON), steps=10)


@functools.cache
def digits():
    """(training images [1437, 8, 8, 1], labels, test images [150, 8, 8, 1], labels)."""
    dataset = Digits().load()
    test_images, test_labels = dataset.test.arrays()
    return (*dataset.train.arrays(), test_images[:TESTED], test_labels[:TESTED])


@functools.cache
def perceptron(epsilon=0.0, epochs=30, width=64):
    """The matrices of ReLU(x W + b) V + c, trained by Adam; on FGSM adversaries of size epsilon where > 0."""
    images, labels, _, _ = digits()
    rows, generator = images.reshape(len(images), -1), np.random.default_rng(0)
    weights = [
        generator.normal(0, np.sqrt(2 / 64), (64, width)),
        np.zeros(width),
        generator.normal(0, np.sqrt(1 / width), (width, 10)),
        np.zeros(10),
    ]
    moments = [[np.zeros_like(w), np.zeros_like(w)] for w in weights]
    step = 0
    for _ in range(epochs):
        for chosen in np.array_split(generator.permutation(len(rows)), len(rows) // 64):
            x, y, step = rows[chosen], labels[chosen], step + 1
            if epsilon:
                x = np.clip(x + epsilon * np.sign(_gradients(weights, x, y)[0]), 0, 1)
            for w, (first, second), g in zip(weights, moments, _gradients(weights, x, y)[1:], strict=True):
                first += 0.1 * (g - first)
                second += 0.001 * (g**2 - second)
                w -= 3e-3 * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return [w.astype(np.float32) for w in weights]


def _gradients(weights, x, y):
    """Return the gradients of the mean cross-entropy with respect to x, then to each matrix."""
    kernel, offset, head, bias = weights
    before = x @ kernel + offset
    hidden = np.maximum(before, 0)
    logits = hidden @ head + bias
    wrong = np.exp(logits - logits.max(1, keepdims=True))
    wrong /= wrong.sum(1, keepdims=True)
    wrong[np.arange(len(y)), y] -= 1
    wrong /= len(y)
    back = (wrong @ head.T) * (before > 0)
    return back @ kernel.T, x.T @ back, back.sum(0), hidden.T @ wrong, wrong.sum(0)


def hidden_of(pixels, **options):
    """ReLU(x W + b), [b, 64]."""
    kernel, offset, _, _ = perceptron(**options)
    return tf.nn.relu(tf.reshape(tf.cast(pixels, tf.float32), [-1, 64]) @ kernel + offset)


def logits_of(hidden, **options):
    """The logits of hidden values."""
    _, _, head, bias = perceptron(**options)
    return hidden @ head + bias


def sound(pixels):
    """The sound network that the flaws are planted around."""
    return logits_of(hidden_of(pixels))


def robust(pixels):
    """The same, trained on adversaries."""
    return logits_of(hidden_of(pixels, epsilon=EPSILON), epsilon=EPSILON)


def setting(predict=sound, **changes):
    """A setting that nothing is wrong with but what `changes` and `predict` bring."""
    train_images, train_labels, images, labels = digits()
    arguments = {"train_images": train_images, "train_labels": train_labels, "selected_on": "validation"}
    arguments |= {"images": images, "labels": labels, "batch_size": 64} | changes
    if "predictor" not in arguments:
        arguments["predictor"] = from_function(predict, image_shape=arguments["images"].shape[1:], class_count=10)
    return Setting(**arguments)


@dataclasses.dataclass(frozen=True)
class Flaw:
    """A planted flaw, and which finding must catch it.

    name: what is wrong. check, verdict: the finding. make: () -> Setting. attack: the evaluation's.
    """

    name: str
    check: str
    make: object
    verdict: str = "fail"
    attack: PGD = ATTACK


# ------------------------------------------------------------------------------------------ flaws of the model


def steep(pixels):
    """Each pixel through a sigmoid that is a step for float32."""
    return sound(tf.sigmoid(2e4 * (pixels - 0.47)))


def wave(pixels):
    """A wave far finer than a grey level, whose slope hides that of the network."""
    phases = tf.reshape(tf.range(64, dtype=tf.float32) * 2.4, [8, 8, 1])
    return sound(pixels + 0.002 * tf.sin(5e4 * pixels + phases))


def drawn_input(pixels):
    """Every image moved at random before it is looked at."""
    return sound(pixels + tf.random.normal(tf.shape(pixels), stddev=0.1))


@tf.custom_gradient
def _noisy_slope(pixels):
    return tf.identity(pixels), lambda upstream: tf.random.normal(tf.shape(upstream)) * tf.norm(upstream)


def drawn_gradient(pixels):
    """The right answers, with a gradient that is noise."""
    return sound(_noisy_slope(pixels))


def mask_from_python():
    """Dropout drawn by NumPy: fixed for good once the function is compiled."""
    generator = np.random.default_rng(0)
    return lambda pixels: logits_of(hidden_of(pixels) * (generator.random(64) > 0.3).astype(np.float32))


def mask_by_place(pixels):
    """Dropout with one fixed seed: another mask for every place in the batch, always the same."""
    return logits_of(tf.nn.experimental.stateless_dropout(hidden_of(pixels), 0.3, seed=[1, 2]))


def batch_norm_in_training(pixels):
    """Hidden values normalised by the batch they come in."""
    hidden = hidden_of(pixels)
    mean, variance = tf.nn.moments(hidden, axes=[0])
    return logits_of((hidden - mean) / tf.sqrt(variance + 1e-3))


def root_of_zero(pixels):
    """A term that is 0 with an infinite slope."""
    return sound(pixels) + tf.reduce_sum(tf.sqrt(pixels * 0.0), axis=[1, 2])


def between_grey_levels(pixels):
    """Right on 8-bit images, and turned round by anything between two grey levels."""
    off = tf.reduce_mean(tf.abs(255 * pixels - tf.round(255 * pixels)), axis=[1, 2])
    return sound(pixels) * (1 - 8 * off)


def decoy(pixels):
    """The gradient is that of another, untrained network."""
    kernel = np.random.default_rng(3).normal(size=(64, 10)).astype(np.float32)
    other = tf.reshape(pixels, [-1, 64]) @ kernel
    return sound(tf.stop_gradient(pixels)) + other - tf.stop_gradient(other)


def by_lookup(pixels):
    """Answers through a Python function: no graph to differentiate."""
    answer = tf.numpy_function(lambda x: sound(x).numpy(), [pixels], tf.float32)
    return tf.ensure_shape(answer, [None, 10])


def _eight_bit():
    _, _, images, _ = digits()
    return setting(between_grey_levels, images=(np.round(images * 255) / 255).astype(np.float32))


def _of(predict):
    return lambda: setting(predict)


def _in_color(predict):
    """A setting of color images whose red channel is the digit, and of a network that reads it."""

    def make():
        images = digits()[2]
        color = np.concatenate([images, images**2, 1 - images], axis=-1)
        return setting(predict, images=color, train_images=None, train_labels=None)

    return make


def adapted_to_its_normalization():
    """A head that fits what a layer made for [0, 255] returns in [0, 1], as a careless fine-tuning produces it."""
    return of_keras(
        lambda: keras.layers.Rescaling(1.0),
        lambda: keras.layers.Normalization(mean=78.0, variance=95.0**2),
        *(_flat, _dense(512, bias_initializer="random_normal")),
    )


FLAWS = tuple(stored.table(globals(), "flaws"))


# ------------------------------------------------------------------------------------------------ sound models


def solved(encoder, images, labels, class_count, strength=8.0):
    """A Keras model: the encoder as it was initialised, and the dense layer that fits the classes by least squares."""
    features = encoder(images, training=False).numpy().astype(np.float64)
    mean = features.mean(0)
    centred = features - mean
    targets = strength * (np.eye(class_count)[labels] - 1 / class_count)
    ridge = 1e-2 * np.mean(centred**2) * len(centred) ** 0.5 * np.eye(centred.shape[1])
    kernel = np.linalg.solve(centred.T @ centred + ridge, centred.T @ targets)
    head = keras.layers.Dense(class_count, dtype="float32")
    model = keras.Sequential([*encoder.layers, head])
    model.build((None, *images.shape[1:]))
    head.set_weights([kernel, -mean @ kernel])
    return model


def encoder(*layers, shape=(8, 8, 1)):
    """A sequential encoder with seeded initial weights; batch norm has seen the training images."""
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input(shape), *(layer() for layer in layers)])


def _flat():
    return keras.layers.Flatten()


def _dense(width, activation="relu", **options):
    return lambda: keras.layers.Dense(width, activation=activation, **options)


def _conv(width, **options):
    return lambda: keras.layers.Conv2D(width, 3, padding="same", activation="relu", **options)


def of_keras(*layers, shape=(8, 8, 1), classes=10, change=lambda x, y: (x, y), **changes):
    """A setting of a solved model on changed digits."""
    train_images, train_labels = change(*digits()[:2])
    images, labels = change(*digits()[2:])
    built = encoder(*layers, shape=shape)
    for layer in built.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    built(train_images, training=True)
    model = solved(built, train_images, train_labels, classes)
    arguments = {"images": images, "labels": labels, "train_images": train_images, "train_labels": train_labels}
    return setting(predictor=from_keras(model), **arguments, **changes)


def _larger_and_coloured(images, labels):
    larger = images.repeat(2, axis=1).repeat(2, axis=2)
    return np.concatenate([larger, 1 - larger, larger**2], axis=-1).astype(np.float32), labels


def _pairs(images, labels):
    """Two digits side by side: 100 classes."""
    order = np.random.default_rng(len(images)).permutation(len(images))
    return np.concatenate([images, images[order]], axis=2), 10 * labels + labels[order]


def _remainders(count):
    return lambda images, labels: (images, labels % count)


def _rare(images, labels):
    """Nines are rare."""
    chosen = (labels < 9) | (np.arange(len(labels)) % 4 == 0)
    return images[chosen], labels[chosen]


def _batch_norm():
    return keras.layers.BatchNormalization()


def _normalization():
    return keras.layers.Normalization(mean=0.3, variance=0.14)


_TRAINED = {"norm": "linf", "epsilon": EPSILON, "steps": 10}
_L2 = PGD(threat=ThreatModel(norm="l2", epsilon=0.5), steps=10)
_L1 = PGD(threat=ThreatModel(norm="l1", epsilon=2.0), steps=20)

# name -> () -> (setting, attack)
HEALTHY = stored.table(globals(), "healthy")

# By the doctor's expensive checks as well.
FULLY_EXAMINED = ("convolutions", "adversarially trained on images not known")
