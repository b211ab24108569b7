"""Models outside TensorFlow that compute their own gradients, such as PyTorch modules, as functions for attacks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfrobust.errors import InputError


def with_gradient(logits: Callable, gradient: Callable) -> Callable:
    """Return a function `images -> logits` for attacks and `evaluate`, of a model that computes outside TensorFlow.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> weights = np.array([[3.0, -3.0], [-3.0, 3.0]], "float32")  # a linear model of two pixels, in NumPy
        >>> function = robust.with_gradient(
        ...     lambda images: images.reshape(-1, 2) @ weights,
        ...     lambda images, upstream: (upstream @ weights.T).reshape(images.shape),
        ... )
        >>> attack = robust.attacks.FGSM(robust.attacks.ThreatModel(epsilon=0.2))
        >>> images = np.array([[0.6, 0.4], [0.9, 0.1]], "float32").reshape(2, 1, 1, 2)
        >>> robust.attacks.run_attack(attack, function, images, np.array([0, 0])).success.tolist()
        [True, False]

    Args:
        logits: NumPy float32 [b, ...] -> [b, k], anything that NumPy converts to an array.
        gradient: (images float32 [b, ...], upstream float32 [b, k]) -> [b, ...], the gradient of sum(upstream * logits)
            with respect to the images, which PyTorch computes by `torch.autograd.grad(outputs, images, upstream)`.

    Returns:
        Function of tensors, float32 [b, ...] -> float32 [b, k]; with first derivatives only.

    Raises:
        ValueError: (when called) outputs that are not [b, k], or a gradient of another shape than the images.
    """

    def on_images(images) -> np.ndarray:
        outputs = np.asarray(logits(np.asarray(images)), np.float32)
        if outputs.ndim != 2 or len(outputs) != len(images):
            raise InputError(
                f"with_gradient: logits returns the shape {outputs.shape} for {len(images)} images, not [b, k]."
            )
        return outputs

    def of_images(images, upstream) -> np.ndarray:
        gradients = np.asarray(gradient(np.asarray(images), np.asarray(upstream)), np.float32)
        if gradients.shape != images.shape:
            raise InputError(f"with_gradient: gradient returns the shape {gradients.shape} for images {images.shape}.")
        return gradients

    classes = {}  # by shape of the images: the number of logits, found by one call

    def class_count(shape: tuple) -> int:
        if shape not in classes:
            classes[shape] = on_images(np.zeros((1, *shape), np.float32)).shape[1]
        return classes[shape]

    @tf.custom_gradient
    def function(images):
        images = tf.cast(images, tf.float32)
        outputs = tf.numpy_function(on_images, [images], tf.float32, stateful=False)

        def backward(upstream):
            gradients = tf.numpy_function(
                of_images, [images, tf.cast(upstream, tf.float32)], tf.float32, stateful=False
            )
            return tf.ensure_shape(gradients, images.shape)

        return tf.ensure_shape(outputs, [images.shape[0], class_count(tuple(images.shape[1:]))]), backward

    return lambda images: function(tf.convert_to_tensor(images))
