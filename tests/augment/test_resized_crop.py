"""Random parts of pictures: torchvision's rule in plain loops, Pillow's resizing."""

import math

import numpy as np
import PIL.Image
import pytest
import stored
import tensorflow as tf

from tfrobust.augment.resized_crop import RandomResizedCrop, resized


def torchvision_box(uniform, height, width, scale, ratio):
    """RandomResizedCrop.get_params with the random numbers given."""
    for share, shape, vertical, horizontal in uniform:
        area = height * width * (scale[0] + share * (scale[1] - scale[0]))
        aspect = math.exp(math.log(ratio[0]) + shape * (math.log(ratio[1]) - math.log(ratio[0])))
        wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            return int(vertical * (height - tall + 1)), int(horizontal * (width - wide + 1)), tall, wide
    wide, tall = width, height
    if width / height < min(ratio):
        tall = round(wide / min(ratio))
    elif width / height > max(ratio):
        wide = round(tall * max(ratio))
    return (height - tall) // 2, (width - wide) // 2, tall, wide


@pytest.mark.parametrize("height, width, scale, ratio", stored.rows(globals(), "boxes_are_torchvision_s"))
def test_boxes_are_torchvision_s(height, width, scale, ratio):
    uniform = np.random.default_rng(height).random((200, 10, 4), np.float32)
    boxes = RandomResizedCrop(scale=scale, ratio=ratio).boxes(tf.constant(uniform), height, tf.constant(width))
    expected = [torchvision_box(row.astype(float), height, width, scale, ratio) for row in uniform]
    # In float32 a side that lies between two pixels may round to the other.
    assert np.mean(np.all(boxes.numpy() == expected, axis=-1)) > 0.98
    assert np.abs(boxes.numpy()[:, 2:] - np.asarray(expected)[:, 2:]).max() <= 1
    corner, size = boxes.numpy()[:, :2], boxes.numpy()[:, 2:]
    assert (corner >= 0).all() and (size > 0).all() and (corner + size <= [height, width]).all()


def pillow(image, box, size):
    top, left, tall, wide = box
    channels = [
        PIL.Image.fromarray(channel).resize(size[::-1], PIL.Image.Resampling.BILINEAR)
        for channel in np.moveaxis(image[top : top + tall, left : left + wide], -1, 0)
    ]
    return np.stack([np.asarray(channel) for channel in channels], axis=-1)


@pytest.mark.parametrize("box", [(0, 0, 24, 20), (3, 2, 20, 17), (10, 11, 5, 8), (0, 5, 24, 1)])
def test_the_part_is_resized_as_by_pillow(box):
    """In float32 both; Pillow crops first, as torchvision does."""
    images = np.random.default_rng(0).random((2, 24, 20, 3), np.float32)
    boxes = tf.constant([box, (0, 0, 24, 20)])
    parts = RandomResizedCrop().apply(tf.constant(images), {"box": boxes})
    np.testing.assert_allclose(parts[0], pillow(images[0], box, (24, 20)), atol=1e-6)
    np.testing.assert_array_equal(parts[1], images[1])
    smaller = resized(tf.constant(images[0]), (9, 7))
    np.testing.assert_allclose(smaller, pillow(images[0], (0, 0, 24, 20), (9, 7)), atol=1e-6)


def test_the_share_of_the_area_is_uniform():
    boxes = RandomResizedCrop().draw(tf.constant([1, 2]), (4000, 512, 512, 3))["box"].numpy()
    shares = boxes[:, 2] * boxes[:, 3] / 512**2
    ratios = boxes[:, 3] / boxes[:, 2]
    assert 0.08 - 0.002 < shares.min() and shares.max() <= 1
    # Of the largest areas the long shapes do not fit and are drawn again; below 3/4 everything does.
    below = shares[shares < 0.75]
    assert np.mean(below < (0.08 + 0.75) / 2) == pytest.approx(0.5, abs=0.03)
    assert 0.74 < ratios.min() and ratios.max() < 1.35 and np.mean(ratios < 1) == pytest.approx(0.5, abs=0.03)
