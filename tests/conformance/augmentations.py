"""The battery every augmentation passes: range, shape, determinism, eager = graph = tf.data, keys per example.

A row of `AUGMENTATIONS` is an augmentation whose default draw changes images. `identity` is a draw that must
change nothing, as a function of the batch size.
"""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfrobust.keras import augment
from tfrobust.ops import randomness

SHAPE = (6, 8, 10, 3)


@dataclasses.dataclass(frozen=True)
class AugmentationCase:
    name: str
    augmentation: augment.Augmentation
    identity: Callable


def _no_flip(count):
    return {"flip": tf.zeros([count], tf.bool)}


def _no_shift(count):
    return {"shift": tf.zeros([count, 2])}


def _no_noise(count):
    return {"noise": tf.zeros([count, *SHAPE[1:]])}


def _no_patch(count):
    noise = tf.ones([count, *SHAPE[1:]])
    return {"noise": noise, "patch": tf.zeros([count], tf.int32), "centre": tf.fill([count, 2], 3)}


def _no_operation(augmentation, count):
    return {"operation": tf.fill([count, 2], len(augmentation.names)), "level": tf.fill([count, 2], 3.0)}


def _no_chains(augmix, count):
    return {**augmix.draw(randomness.make_key(0), (count, *SHAPE[1:])), "mix": tf.zeros([count])}


def _same_view(count):
    none = tf.zeros([count])
    chances = {name: none > 0 for name in ("flip", "grey", "solarize")}
    jitter = {"operation": tf.fill([count, 4], 4), "amount": tf.ones([count, 4])}
    return {"box": tf.tile([[0, 0, *SHAPE[1:3]]], [count, 1]), "sigma": none, **chances, **jitter}


_AUTO = augment.AutoAugment(policy="imagenet", ranges="code")
_RAND = augment.RandAugment(operations=("rotate", "posterize", "translate_y", "contrast"))
_DEEP = augment.AugMix(width=2, depth=4, severity=10.0, alpha=0.3, all_operations=True)

AUGMENTATIONS = [
    AugmentationCase("flip", augment.RandomFlip(), _no_flip),
    AugmentationCase("shift", augment.RandomShift(fraction=0.3), _no_shift),
    AugmentationCase("shift_constant", augment.RandomShift(fraction=0.3, fill="constant"), _no_shift),
    AugmentationCase("shift_whole", augment.RandomShift(fraction=0.3, whole_pixels=True), _no_shift),
    AugmentationCase("pad_crop", augment.PadCrop(padding=2), lambda count: {"offset": tf.fill([count, 2], 2)}),
    AugmentationCase(
        "resized_crop", augment.RandomResizedCrop(), lambda count: {"box": tf.tile([[0, 0, *SHAPE[1:3]]], [count, 1])}
    ),
    AugmentationCase("add_gaussian", augment.AddGaussian(), _no_noise),
    AugmentationCase("add_gaussian_up_to", augment.AddGaussian(deviation=(0.0, 0.5)), _no_noise),
    AugmentationCase("patch_gaussian", augment.PatchGaussian(patch=3), _no_patch),
    AugmentationCase(
        "patch_gaussian_up_to",
        augment.PatchGaussian(patch=(1, 6), deviation=(0.0, 1.0), probability=0.8, centres="edges"),
        _no_patch,
    ),
    AugmentationCase("augmix", augment.AugMix(), lambda count: _no_chains(augment.AugMix(), count)),
    AugmentationCase("augmix_all", _DEEP, lambda count: _no_chains(_DEEP, count)),
    AugmentationCase("auto_augment", _AUTO, functools.partial(_no_operation, _AUTO)),
    AugmentationCase("rand_augment", _RAND, functools.partial(_no_operation, _RAND)),
    AugmentationCase("views", augment.ContrastiveViews(), _same_view),
    AugmentationCase(
        "views_all",
        augment.ContrastiveViews(blur=0.5, solarize=0.5, order="rocl", interpolation="bilinear", colors="torchvision"),
        _same_view,
    ),
    AugmentationCase(
        "compose",
        augment.Compose(augmentations=(augment.RandomFlip(), augment.RandomShift(fraction=0.2))),
        lambda count: {"0": _no_flip(count), "1": _no_shift(count)},
    ),
]


def images_of(shape=SHAPE, seed=0):
    return tf.constant(np.random.default_rng(seed).random(shape, np.float32))


def keys_of(count, seed=0):
    return randomness.example_keys(randomness.make_key(seed, "test"), tf.range(count, dtype=tf.int64))


def check_range_and_shape(case):
    result = case.augmentation(images_of(), randomness.make_key(1))
    assert result.shape == SHAPE and result.dtype == tf.float32
    assert 0 <= tf.reduce_min(result) and tf.reduce_max(result) <= 1


def check_floats_of_any_precision(case):
    """Arrays of NumPy have float64 unless something else is asked for."""
    images, key = images_of(), randomness.make_key(1)
    result = case.augmentation(images.numpy().astype(np.float64), key)
    assert result.dtype == tf.float32 and np.array_equal(result, case.augmentation(images, key))


def check_identity_draw(case):
    images = images_of()
    assert np.array_equal(case.augmentation.apply(images, case.identity(SHAPE[0])), images)


def check_call_is_draw_then_apply(case):
    images, key = images_of(), keys_of(SHAPE[0])
    draw = case.augmentation.draw(key, SHAPE)
    tf.nest.map_structure(lambda array: array.shape[:1].assert_is_compatible_with([SHAPE[0]]), draw)
    assert np.array_equal(case.augmentation.apply(images, draw), case.augmentation(images, key))


def check_key_decides(case):
    images = images_of((64, *SHAPE[1:]))
    first, again = (case.augmentation(images, randomness.make_key(5, "a")) for _ in range(2))
    other = case.augmentation(images, randomness.make_key(5, "b"))
    assert np.array_equal(first, again) and not np.array_equal(first, other) and not np.array_equal(first, images)


def check_example_keys_ignore_the_batch(case):
    """With one key per example, an image's result is the same alone and in any order, up to rounding.

    A product of matrices of another batch size is summed in another order on some processors.
    """
    images, keys = images_of(), keys_of(SHAPE[0])
    full = case.augmentation(images, keys).numpy()
    order = np.array([4, 1, 5])
    part = case.augmentation(tf.gather(images, order), tf.gather(keys, order))
    np.testing.assert_allclose(part, full[order], rtol=0, atol=1e-5)


def check_eager_is_data_of_an_unknown_batch_size(case):
    images, keys = images_of(), keys_of(SHAPE[0])
    stream = tf.data.Dataset.from_tensor_slices((images, keys)).batch(SHAPE[0]).map(case.augmentation)
    assert stream.element_spec.shape[0] is None
    assert np.array_equal(case.augmentation(images, keys), next(iter(stream)))


def check_config_round_trip(case):
    revived = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(case.augmentation))
    assert revived == case.augmentation


def check_whole_numbers_are_numbers(case):
    """Settings of 0 or 1 give the same images as whole numbers and as floats."""
    integers = floats = case.augmentation
    for field in dataclasses.fields(integers):
        value = getattr(integers, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        if not any(isinstance(part, float) for part in parts):
            continue
        for number in (0, 1):
            numbers = (number,) * len(parts) if isinstance(value, tuple) else number
            number_as_float = tuple(map(float, numbers)) if isinstance(value, tuple) else float(number)
            try:
                integers = dataclasses.replace(integers, **{field.name: numbers})
            except ValueError:  # out of range
                continue
            floats = dataclasses.replace(floats, **{field.name: number_as_float})
            break
    assert np.array_equal(integers(images_of(), keys_of(SHAPE[0])), floats(images_of(), keys_of(SHAPE[0])))


CHECKS = [
    check_range_and_shape,
    check_floats_of_any_precision,
    check_identity_draw,
    check_call_is_draw_then_apply,
    check_key_decides,
    check_example_keys_ignore_the_batch,
    check_eager_is_data_of_an_unknown_batch_size,
    check_config_round_trip,
    check_whole_numbers_are_numbers,
]
