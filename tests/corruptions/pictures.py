"""Pictures that the corruptions and sequences are compared on, and the keys that they draw from."""

import numpy as np
import scipy.ndimage
import tensorflow as tf

from tfrobust.ops import randomness

KEYS = randomness.example_keys(randomness.make_key(3, "test"), tf.range(3))


def pictures(height, width, channels, count=1):
    """Bytes with edges, flat parts and slopes, as photographs have them."""
    generator = np.random.default_rng(height + width)
    smooth = scipy.ndimage.gaussian_filter(generator.normal(size=(count, height, width, channels)), (0, 2, 2, 0))
    smooth = 128 + 55 * smooth / smooth.std()
    smooth[:, height // 4 : height // 2, width // 3 : -2] += generator.uniform(-90, 90, (count, 1, 1, channels))
    smooth[0, :2, :3] = 0  # black and white have no hue
    smooth[0, :2, 3:5] = 255
    return np.clip(smooth, 0, 255).astype(np.uint8)


def as_images(pixels):
    return tf.constant(pixels.astype(np.float32) / np.float32(255))


def check_whole_range(images, shape):
    """Finite pixels of [0, 1] in this shape."""
    assert images.shape == shape and np.all(np.isfinite(images)) and images.min() >= 0 and images.max() <= 1
