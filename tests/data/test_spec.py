import base64
import hashlib

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import stored
import tensorflow as tf

from tfrobust.data import checks, text
from tfrobust.data.spec import PIXEL_SCALE, ArrayExamples, Dataset, FileExamples, decode_image, examine
from tfrobust.errors import InputError
from tfrobust.security import picture_files

GENERATOR = np.random.default_rng(0)
BYTES = GENERATOR.integers(0, 256, (7, 5, 4, 3), np.uint8)
LABELS = np.arange(7) % 3


def _write_png(path, pixels):
    tf.io.write_file(str(path), tf.io.encode_png(pixels))
    return str(path)


@pytest.fixture
def files(tmp_path):
    return FileExamples([_write_png(tmp_path / f"{i}.png", BYTES[i]) for i in range(7)], LABELS, (5, 4, 3))


def test_fetch_is_exact_in_every_mode():
    examples = ArrayExamples(BYTES, LABELS)
    index = tf.constant([3, 0, 3], tf.int64)
    expected = BYTES[[3, 0, 3]] * PIXEL_SCALE
    assert expected.dtype == np.float32
    stream = tf.data.Dataset.from_tensors(index).map(examples.fetch)
    for images in (examples.fetch(index), tf.function(examples.fetch)(index), next(iter(stream))):
        assert images.dtype == tf.float32 and np.array_equal(images, expected)


def test_pixel_scale_reaches_both_ends():
    values = np.arange(256, dtype=np.float32) * PIXEL_SCALE
    assert values[0] == 0 and values[255] == 1
    np.testing.assert_allclose(values, np.arange(256) / 255, rtol=1.2e-7)


def test_files_equal_arrays(files):
    index = tf.constant([6, 1], tf.int64)
    expected = ArrayExamples(BYTES, LABELS).fetch(index)
    stream = tf.data.Dataset.from_tensors(index).map(files.fetch)
    for images in (files.fetch(index), next(iter(stream))):
        assert images.shape == (2, 5, 4, 3)
        np.testing.assert_allclose(images, expected, atol=1e-7)
    taken = files.take([2, 5])
    assert taken.labels.tolist() == [2, 2] and taken.paths == (files.paths[2], files.paths[5])


@pytest.mark.parametrize("fit", [6.0, float("nan"), 6.5, None, b"crop", np.int64(6)])
def test_a_fit_that_is_no_name_and_no_whole_number_is_refused(fit, tmp_path):
    path = _write_png(tmp_path / "0.png", BYTES[0])
    with pytest.raises(
        InputError, match=r"fit or short_side is .*; it is a whole number of pixels, or one of .stretch., "
    ):
        FileExamples([path], [0], (5, 4, 3), fit=fit)


def test_decode_converts_and_stretches():
    grey = np.full((6, 6, 1), 51, np.uint8)
    image = decode_image(tf.io.encode_jpeg(grey), (4, 8, 3))
    assert image.shape == (4, 8, 3)
    np.testing.assert_allclose(image, 0.2, atol=0.01)


def test_examine_finds_every_bad_file(files, tmp_path):
    assert (examine(files.paths) == (5, 4, 3, 1)).all()
    content_of_4 = (tmp_path / "4.png").read_bytes()
    for name, content in {
        "0": b"",
        "4": b"<html>not found</html>",
        "5": content_of_4[: len(content_of_4) // 2],
    }.items():
        (tmp_path / f"{name}.png").write_bytes(content)
    (tmp_path / "6.png").write_bytes(tf.io.encode_jpeg(np.zeros((8, 9, 1), np.uint8)).numpy())
    bad, good = [0, 0, 0, 0], [5, 4, 3, 1]
    gray = bad, good, good, good, bad, bad, [8, 9, 1, 1]
    np.testing.assert_array_equal(examine(files.paths, (5, 4, 1)), gray)


# The sides of the upright picture at which the first row and the first column of the stored one lie (EXIF 2.32, 4.6.4).
_SIDES = tuple(stored.table(globals(), "sides"))


def _stored(upright, sides):
    row, column = sides.split()
    stored = upright if row in ("top", "bottom") else upright.swapaxes(0, 1)
    stored = stored[::-1] if row in ("bottom", "right") else stored
    return stored[:, ::-1] if column in ("bottom", "right") else stored


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_turned_upright(orientation, tmp_path):
    upright = np.kron(np.random.default_rng(0).integers(0, 256, (3, 2, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    tags = PIL.Image.Exif()
    tags[0x010F], tags[0x0112] = "a maker", orientation
    path = tmp_path / "lying.jpg"
    PIL.Image.fromarray(_stored(upright, _SIDES[orientation - 1])).save(path, exif=tags, quality=95, subsampling=0)
    read = FileExamples([str(path)], [0], (24, 16, 3)).arrays()[0][0]
    assert np.abs(255 * read - upright).max() < 12
    pillow = np.asarray(PIL.ImageOps.exif_transpose(PIL.Image.open(path)), np.float32)
    assert np.abs(255 * read - pillow).max() < 6
    assert examine([str(path)]).tolist() == [[24, 16, 3, orientation]]
    content = path.read_bytes()
    as_stored = decode_image(content, (24, 16, 3), upright=False)
    assert np.allclose(as_stored, read) == (orientation == 1)
    changed = content.replace(b"\x01\x12\x00\x03", b"\x01\x12\x00\x04")  # no number of 16 bits: invalid
    assert changed != content
    for broken in (changed, content[:30], content[:3], b"", b"\xff\xd8" + 100 * b"\xff\xe1\x00\x02"):
        assert picture_files.orientation(tf.constant(broken)) == 1


def test_fits_keep_the_proportions():
    picture = np.array([[0, 2, 4, 6], [1, 3, 5, 7]], np.uint8)[..., None]

    def fitted(pixels, height, width, fit):
        return decode_image(tf.io.encode_png(pixels), (height, width, 1), fit).numpy() * 255

    np.testing.assert_allclose(fitted(picture, 2, 2, "crop"), picture[:, 1:3], atol=1e-4)
    np.testing.assert_allclose(fitted(picture, 4, 4, "pad"), np.pad(picture, ((1, 1), (0, 0), (0, 0))), atol=1e-4)
    large = picture.repeat(2, 0).repeat(2, 1)
    smaller = np.asarray(tf.image.resize(large.astype(np.float32), (2, 4), antialias=True))
    np.testing.assert_allclose(fitted(large, 2, 3, "crop"), smaller[:, :3], atol=1e-4)  # 0.5 is rounded to 0
    np.testing.assert_allclose(fitted(large, 3, 4, "pad"), np.pad(smaller, ((0, 1), (0, 0), (0, 0))), atol=1e-4)


def test_bicubic_resizing_is_that_of_pillow():
    """Keys's kernel with a = -0.5, stretched by the factor when an image shrinks; overshoots are clipped."""

    def kernel(x):
        x = abs(x)
        near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
        return near if x <= 1 else far if x < 2 else 0.0

    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 1), np.uint8)
    matrices = []
    for size, target in ((6, 4), (9, 6)):  # both shrink to two thirds
        rows = [[kernel((j + 0.5) * target / size - (i + 0.5)) for j in range(size)] for i in range(target)]
        matrices.append(np.array(rows) / np.sum(rows, axis=1, keepdims=True))
    expected = np.clip(matrices[0] @ (pixels[..., 0] / 255) @ matrices[1].T, 0, 1)
    resized = decode_image(tf.io.encode_png(pixels), (4, 6, 1), 4, "bicubic")
    np.testing.assert_allclose(resized[..., 0], expected, atol=1e-5)
    assert np.abs(resized - decode_image(tf.io.encode_png(pixels), (4, 6, 1), 4)).max() > 0.01


def test_the_interpolation_is_part_of_a_split(files):
    other = FileExamples(files.paths, files.labels, (3, 3, 3), interpolation="bicubic")
    assert other.take([0]).interpolation == "bicubic"
    assert other.fingerprint != FileExamples(files.paths, files.labels, (3, 3, 3)).fingerprint
    with pytest.raises(ValueError, match="interpolation"):
        FileExamples(files.paths, files.labels, (3, 3, 3), interpolation="cubic")


def test_arrays_spread_the_limit():
    examples = ArrayExamples(BYTES, LABELS)
    images, labels = examples.arrays()
    assert images.shape == BYTES.shape and labels.dtype == np.int32 and len(labels) == 7
    few, few_labels = examples.arrays(3)
    assert np.array_equal(few, images[[0, 2, 4]]) and few_labels.tolist() == [0, 2, 1]
    assert len(examples.arrays(99)[0]) == 7 and len(examples.arrays(0)[1]) == 0


def _dataset(train, test=None):
    return Dataset("mine", ("a", "b", "c"), train, train.take([]), test or train.take([0]))


def test_fingerprint_is_sensitive_and_stable(files, tmp_path):
    base = ArrayExamples(BYTES, LABELS)
    changed = BYTES.copy()
    changed[6, 4, 3, 2] ^= 1
    relabelled = LABELS.copy()
    relabelled[0] = 1
    changed_examples = [
        ArrayExamples(changed, LABELS),
        ArrayExamples(BYTES, relabelled),
        ArrayExamples(BYTES[::-1], LABELS),
        ArrayExamples(BYTES.reshape(7, 4, 5, 3), LABELS),
        ArrayExamples(BYTES * PIXEL_SCALE, LABELS),
        base.take(range(6)),
        files,
    ]
    assert len({examples.fingerprint for examples in [base, *changed_examples]}) == 8
    assert ArrayExamples(BYTES[:, ::-1][:, ::-1], list(LABELS)).fingerprint == base.fingerprint
    moved = FileExamples([_write_png(tmp_path / f"moved{i}.png", BYTES[i]) for i in range(7)], LABELS, (5, 4, 3))
    assert moved.fingerprint == files.fingerprint
    assert _dataset(base).fingerprint != _dataset(base, base.take([1])).fingerprint


def test_fingerprint_definition():
    labels = hashlib.sha256(b"labels 2\n" + np.array([0, 1], "<i4").tobytes())
    labels.update(b"uint8 [2, 5, 4, 3]\n" + BYTES[:2].tobytes())
    assert ArrayExamples(BYTES[:2], [0, 1]).fingerprint == labels.hexdigest()


def test_dataset_checks_its_splits():
    train = ArrayExamples(BYTES, LABELS)
    good = _dataset(train)
    assert good.image_shape == (5, 4, 3) and good.class_count == 3
    assert good.sizes == {"train": 7, "validation": 0, "test": 1}
    with pytest.raises(ValueError, match="test examples have shape"):
        _dataset(train, ArrayExamples(BYTES[:, :4], LABELS))
    with pytest.raises(ValueError, match="test: label 7 .* 0 to 2"):
        _dataset(train, ArrayExamples(BYTES[:1], [7]))


def test_memory_is_compared_with_what_is_free_before_it_is_allocated(files, monkeypatch):
    monkeypatch.setattr(checks.memory, "available", lambda: 3 * 7 * 5 * 4 * 3 * 4 - 1)
    with pytest.raises(InputError, match="7 examples of 5 x 4 x 3 take 5040 bytes of memory, and 5039 are free"):
        files.arrays()
    assert len(files.arrays(6)[0]) == 6
    with pytest.raises(InputError, match="text: 1 examples of 1099511627776 take"):
        text.padded([[2]], 2**40, 0, np.int32)


# 16 x 16 pixels that are 15 x + y, written by libjpeg-turbo's `cjpeg -arithmetic -quality 90`.
ARITHMETIC = base64.b85decode(
    "|JeWF01!$>Nk#wx0RR9200961|JwjV00RO70|EjA0|NsD0|NvF2n7WM1O*BQ2L=cX3JeSj3JVJj4iXRz4iOFu3lJ6%5f"
    "c;@6%`B*7Z?^47!ni}6#vNp3kU!Z01yEI5di<p00saM5C#9*00;pA002J#{{Y+@;VKbeVIYFWtd3v-?^ovm7mPq(T1x-f"
)


def test_a_jpeg_with_arithmetic_coding_is_read():
    assert ARITHMETIC[ARITHMETIC.index(b"\xff\xc9") + 4] == 8  # the frame of a sequential arithmetic JPEG, 8 bits
    expected = 15 * np.arange(16)[None] + np.arange(16)[:, None]
    assert np.abs(picture_files.decoded(tf.constant(ARITHMETIC), 1).numpy()[..., 0] - expected).max() <= 6
