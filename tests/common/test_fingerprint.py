import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.common import fingerprint

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.array([1, 2], dtype=np.int64)


def literal_weights_sha256(arrays):
    digests = []
    for array in arrays:
        text = hashlib.sha256()
        text.update(json.dumps([str(array.dtype), list(array.shape)]).encode())
        text.update(array.tobytes(order="C"))
        digests.append(text.digest())
    total = hashlib.sha256()
    for digest in sorted(digests):
        total.update(digest)
    return total.hexdigest()


def test_weights_hash_is_the_definition_and_does_not_see_order_names_or_memory_layout():
    assert fingerprint.weights_sha256([A, B]) == literal_weights_sha256([A, B])
    expected = fingerprint.weights_sha256([A, B])
    assert fingerprint.weights_sha256([B, A]) == expected
    assert fingerprint.weights_sha256(array for array in (B, np.asfortranarray(A))) == expected
    assert fingerprint.weights_sha256([tf.Variable(A, name="x"), tf.Variable(B, name="y")]) == expected
    assert fingerprint.weights_sha256([A.astype(">f4"), B]) == expected


@pytest.mark.parametrize("bit", [0, 8 * 4 * 6 - 1])
def test_weights_hash_sees_a_flipped_bit(bit):
    flipped = bytearray(A.tobytes())
    flipped[bit // 8] ^= 1 << (bit % 8)
    changed = np.frombuffer(bytes(flipped), np.float32).reshape(A.shape)
    assert fingerprint.weights_sha256([changed]) != fingerprint.weights_sha256([A])


@pytest.mark.parametrize("weights", [[A.reshape(3, 2)], [A.view(np.int32)], [A, A], [A, B[:0]], []])
def test_weights_hash_sees_shape_dtype_and_number(weights):
    assert fingerprint.weights_sha256(weights) != fingerprint.weights_sha256([A])


def test_weights_hash_takes_scalars_and_bfloat16_and_refuses_objects():
    values = [np.float32(-0.0), tf.constant([1.5], tf.bfloat16)]
    assert fingerprint.weights_sha256(values) != fingerprint.weights_sha256([np.float32(0.0), values[1]])
    with pytest.raises(TypeError, match="objects"):
        fingerprint.weights_sha256([np.array([None])])


def test_data_hash_sees_pixels_labels_and_their_order():
    images = np.zeros((3, 2, 2, 1), np.uint8)
    images[1] = 1
    labels = np.array([0, 1, 1])
    expected = fingerprint.data_sha256(images, labels)
    assert fingerprint.data_sha256(images, labels.astype(np.int32)) == expected
    assert fingerprint.data_sha256(images[::-1], labels) == expected  # a palindrome
    assert fingerprint.data_sha256(images[[1, 0, 2]], labels) != expected
    assert fingerprint.data_sha256(images, labels[::-1]) != expected
    assert fingerprint.data_sha256(images.astype(np.float32), labels) != expected
    with pytest.raises(ValueError, match="3 images have 2 labels"):
        fingerprint.data_sha256(images, labels[:2])


def test_canonical_json():
    value = {"b": (1, np.float32(0.5)), "a": {"é": None, "x": np.array([True])}}
    assert fingerprint.canonical_json(value) == '{"a":{"x":[true],"é":null},"b":[1,0.5]}'
    text = fingerprint.canonical_json(value)
    assert fingerprint.json_sha256(value) == hashlib.sha256(text.encode()).hexdigest()
    assert fingerprint.json_sha256(json.loads(text)) == fingerprint.json_sha256(value)


@pytest.mark.parametrize(
    "value, error", [(float("nan"), ValueError), ({1: 2}, TypeError), ({"a": object()}, TypeError)]
)
def test_canonical_json_refuses_what_json_does_not_have(value, error):
    with pytest.raises(error):
        fingerprint.canonical_json(value)
