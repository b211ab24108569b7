"""Surrogate: a small undefended network, whose adversarial images are tested on the evaluated model."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_keras

_BATCH = 128
_LARGEST_SIDE = 32
_LEARNING_RATE = 2e-3


def train(setting: Setting, steps: int) -> Setting:
    """Train a convolutional network in seconds and return it in a setting with the same test images.

    It is trained on the training images if they are known. Otherwise it is trained on the test images and the classes
    that the evaluated model predicts, as an attacker with query access alone would do.

    Args:
        setting: images, labels, seed.
        steps: steps of Adam, of 128 images each.

    Returns:
        The same setting with the network as its predictor.
    """
    return setting.keep(f"surrogate {steps}", lambda: _trained(setting, steps))


def _trained(setting: Setting, steps: int) -> Setting:
    if setting.train_images is not None and len(setting.train_images):
        images, labels = np.asarray(setting.train_images), np.asarray(setting.train_labels)
    else:
        images, labels = setting.images, setting.clean_logits.argmax(axis=-1)
    model = network(images.shape[1:], setting.predictor.class_count, setting.seed)
    optimizer = keras.optimizers.Adam(_LEARNING_RATE)
    optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step(batch, targets):
        with tf.GradientTape() as tape:
            logits = model(batch, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    generator = np.random.default_rng(setting.seed)
    size, report = min(_BATCH, len(images)), setting.reporter("undefended network")
    for done in range(steps):
        rows = generator.integers(0, len(images), size)
        step(tf.constant(images[rows], tf.float32), tf.constant(labels[rows], tf.int32))
        if report is not None:
            report(done + 1, steps)
    return dataclasses.replace(setting, predictor=from_keras(model), store=None)


def network(image_shape: tuple[int, ...], class_count: int, seed: int) -> keras.Model:
    """Return two convolutions and two dense layers, float32; larger images are averaged down to about 32 pixels."""
    layers, count = [keras.Input(image_shape)], iter(range(4))

    def made(kind, *arguments, **options):
        initializer = keras.initializers.HeNormal(seed=seed * 4 + next(count))
        return kind(*arguments, kernel_initializer=initializer, dtype="float32", **options)

    shrink = max(1, max(image_shape[:2]) // _LARGEST_SIDE)
    if shrink > 1:
        layers.append(keras.layers.AveragePooling2D(shrink, padding="same", dtype="float32"))
    layers += [
        keras.layers.Rescaling(2.0, offset=-1.0, dtype="float32"),
        made(keras.layers.Conv2D, 32, 3, padding="same", activation="relu"),
        made(keras.layers.Conv2D, 64, 3, strides=2, padding="same", activation="relu"),
        keras.layers.Flatten(dtype="float32"),
        made(keras.layers.Dense, 128, activation="relu"),
        made(keras.layers.Dense, class_count),
    ]
    return keras.Sequential(layers)
