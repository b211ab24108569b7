"""A network of two matrices whose forward pass and input gradients are written out in NumPy, for tests of methods.

z = tanh(x W + c), logits = z V + d; x is the image as one vector. It has no batch norm, so passes do not interact.
"""

import keras
import numpy as np
import tensorflow as tf

from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.methods.shared.adversarial_method import AdversarialMethod
from tfrobust.methods.smooth_adv import SmoothAdv
from tfrobust.models.heads.linear import LinearHead
from tfrobust.ops import randomness
from tfrobust.structs import Batch, Context

SHAPE, FEATURES, CLASSES = (2, 3, 1), 5, 3


def parts(seed=0):
    """An encoder that is a plain Keras model, and a head; not small weights, so that predictions differ."""
    initializer = keras.initializers.RandomNormal(stddev=2.0, seed=seed)
    encoder = keras.Sequential(
        [
            keras.Input(SHAPE),
            keras.layers.Flatten(),
            keras.layers.Dense(FEATURES, activation="tanh", kernel_initializer=initializer),
        ]
    )
    head = LinearHead(CLASSES, kernel_initializer=keras.initializers.RandomNormal(stddev=2.0, seed=seed + 1))
    return encoder, head


def build(kind, seed=0, **keywords):
    """A built method of class `kind` on it, with two steps of PGD if it needs an attack."""
    if issubclass(kind, (AdversarialMethod, SmoothAdv)) and "adversary" not in keywords:
        keywords = {"attack": PGD(ThreatModel(epsilon=0.2), steps=2)} | keywords
    method = kind(*parts(seed), seed=seed, **keywords)
    method.build((None, *SHAPE))
    return method


def confident(kind, **keywords):
    """A method in float16 and images whose gradients of CE are below the smallest float16.

    Returns:
        (method, images [9, ...], predicted classes [9], |d CE / d x| in float64).
    """
    keras.config.set_dtype_policy("mixed_float16")
    method = build(kind, **keywords)
    for weight, factor in ((method.encoder.weights[0], 0.25), (method.head.weights[0], 50.0)):
        weight.assign(factor * weight)
    images = batch(300)[0].images.numpy()
    labels = forward(method, images)[1].argmax(axis=1)
    gradient = np.abs(input_gradient(method, images, np.eye(CLASSES)[labels]))
    largest = gradient.max(axis=(1, 2, 3))
    rows = np.flatnonzero((largest > 1e-20) & (largest < 1e-9))[:9]
    return method, tf.constant(images[rows]), tf.constant(labels[rows], tf.int32), gradient[rows]


def batch(count=9, seed=0):
    """(Batch, Context) of random images and labels, each class at least twice."""
    generator = np.random.default_rng(seed)
    images = generator.uniform(0, 1, (count, *SHAPE)).astype(np.float32)
    labels = generator.permutation(np.arange(count) % CLASSES).astype(np.int32)
    rows = tf.range(count, dtype=tf.int64)
    context = Context(randomness.make_key(seed, "train", 3), tf.constant(3, tf.int64), rows)
    return Batch(tf.constant(images), tf.constant(labels), rows, {}), context


def run(method):
    """(Batch, views, terms, logits) of a method's loss on one batch."""
    examples, context = batch()
    views = method.make_views(examples, context)
    return examples, views, *method.loss_terms(views, examples, context)


def arrays(method):
    """W, c, V, d in float64."""
    return [np.asarray(variable, np.float64) for variable in (*method.encoder.weights, *method.head.weights)]


def forward(method, images):
    """float64 (z [b, 5], logits [b, 3])."""
    kernel, offset, head, bias = arrays(method)
    z = np.tanh(np.asarray(images, np.float64).reshape(len(images), -1) @ kernel + offset)
    return z, z @ head + bias


def input_gradient(method, images, targets):
    """The gradient by the images of -sum_k t_k log q_k, q the prediction, t [b, 3] constant; [b, h, w, c]."""
    kernel, _, head, _ = arrays(method)
    z, logits = forward(method, images)
    # q_k sum_j t_j - t_k, by pairs: where q_k rounds to 1, the difference would round to 0, in float64 too.
    pairs = probabilities(logits)[:, :, None] * targets[:, None, :]
    gradient = ((pairs - pairs.swapaxes(1, 2)).sum(-1) @ head.T * (1 - z**2)) @ kernel.T
    return gradient.reshape(np.shape(images))


def probabilities(logits):
    """softmax by rows."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def cross_entropy(logits, labels):
    """-log q_y, one by one; float64 [b]."""
    return np.array([-np.log(probabilities(row[None])[0, label]) for row, label in zip(logits, labels, strict=True)])
