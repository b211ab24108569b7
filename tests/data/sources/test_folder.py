import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tfrobust.augment.resized_crop import RandomResizedCrop
from tfrobust.data.pipeline import training_batches
from tfrobust.data.sources.folder import ImageFolder
from tfrobust.errors import InputError
from tfrobust.ops import randomness

SHAPE = (4, 4, 3)


def _fill(folder, classes=("bee", "ant"), count=5, suffix="png", level=0):
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for image in range(count):
            pixels = np.full(SHAPE, 40 * number + 5 * image + level, np.uint8)
            encode = tf.io.encode_png if suffix == "png" else tf.io.encode_jpeg
            tf.io.write_file(str(folder / name / f"{image}.{suffix}"), encode(pixels))
    return folder


def _folder(root, **arguments):
    return ImageFolder(path=str(root), image_shape=SHAPE, **arguments).load()


def test_class_folders_alone(tmp_path):
    root = _fill(tmp_path / "insects")
    (root / "ant" / "notes.txt").write_text("passed over")
    (root / ".cache").mkdir()
    data = _folder(root, test_size=4, validation_size=2)
    assert data.name == "insects" and data.class_names == ("ant", "bee")
    assert data.sizes == {"train": 4, "validation": 2, "test": 4}
    for path, label in zip(data.train.paths, data.train.labels, strict=True):
        assert data.class_names[label] in path.split("/")


def test_prepared_splits(tmp_path):
    _fill(tmp_path / "train")
    _fill(tmp_path / "test", count=2, suffix="jpeg", level=1)
    data = _folder(tmp_path, validation_size=2)
    assert data.sizes == {"train": 8, "validation": 2, "test": 4}
    images, labels = data.test.arrays()
    assert labels.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(images[:, 0, 0, 0] * 255, [41, 46, 1, 6], atol=1.5)  # ant was written second
    _fill(tmp_path / "validation", classes=("ant",), count=3)
    assert _folder(tmp_path).sizes == {"train": 10, "validation": 3, "test": 4}
    with pytest.raises(ValueError, match="validation_size=0"):
        _folder(tmp_path, validation_size=2)


@pytest.mark.parametrize("names", [("val", "test"), ("Valid", "Test"), ("dev", "testing")])
def test_splits_have_the_names_of_other_tools(tmp_path, names):
    _fill(tmp_path / "train")
    for name in names:
        _fill(tmp_path / name, count=2)
    data = _folder(tmp_path)
    assert data.sizes == {"train": 10, "validation": 4, "test": 4} and "left out" not in data.note


def test_names_of_splits_may_be_classes_and_must_be_clear(tmp_path):
    assert _folder(_fill(tmp_path / "vehicles", classes=("car", "train"))).class_names == ("car", "train")
    for names, message in (
        (("train", "val", "dev"), "'dev' and 'val' are both|'val' and 'dev'"),
        (("val",), "no folder 'train'"),
    ):
        for name in names:
            _fill(tmp_path / message[:3] / name)
        with pytest.raises(ValueError, match=message):
            _folder(tmp_path / message[:3])


def test_nothing_is_left_out_silently(tmp_path):
    root = _fill(tmp_path / "photos" / "train")
    _fill(root / "ant" / "more", classes=("small",), count=3)
    for name in ("ant/a.webp", "ant/b.WEBP", "bee/c.bmp", "bee/.hidden", "list.csv", "../notes.txt"):
        (root / name).write_bytes(b"x")
    (root / "bee" / "0.png").rename(root / "bee" / "0.JFIF")
    data = _folder(tmp_path / "photos", test_size=2)
    assert sum(data.sizes.values()) == 10
    assert [part.strip() for part in data.note.split("; left out: ")[1:]] == [
        "2 .webp files, 1 .bmp file (not PNG or JPEG)",
        "3 files in folders inside a class, such as ant/more (ImageFolder.groups=True reads them as groups)",
        "notes.txt, train/list.csv, outside the class folders",
    ]
    _fill(tmp_path / "photos" / "Test", classes=("ant",))
    assert "the folder 'Test' beside 'train'; name their parent" in _folder(root).note


def test_the_note_counts_what_was_turned_upright(tmp_path):
    tags = PIL.Image.Exif()
    tags[0x0112] = 8
    root = _fill(tmp_path, suffix="jpg")
    PIL.Image.new("RGB", (6, 4)).save(root / "ant" / "0.jpg", exif=tags)
    data = ImageFolder(path=str(root), image_shape=(6, 4, 3)).load()
    assert data.note.endswith(
        "4x4 to 6x4 (height x width), stretched to 6x4 in color; 1 turned upright as their EXIF orientation says"
    )


def test_files_stream_lazily(tmp_path):
    train = _folder(_fill(tmp_path / "data")).train
    batch = next(iter(training_batches(train, batch_size=4, seed=0)))
    assert batch.images.shape == (4, *SHAPE)
    np.testing.assert_allclose(batch.images, train.fetch(batch.index))


@pytest.mark.parametrize("verify", [True, False])
def test_bad_files_are_named(tmp_path, verify):
    root = _fill(tmp_path / "data")
    for name in ("ant/1.png", "bee/3.png"):
        (root / name).write_bytes(b"not an image")
    if not verify:
        assert sum(_folder(root, verify=False).sizes.values()) == 10
        with pytest.raises(ValueError, match="set image_shape, without skip_unreadable"):
            _folder(root, verify=False, skip_unreadable=True)
        return
    with pytest.raises(ValueError, match=r"data: 2 of 10 files .*: ant/1\.png, bee/3\.png\. Remove them"):
        _folder(root)
    data = _folder(root, skip_unreadable=True)
    assert sum(data.sizes.values()) == 8 and data.note.endswith("left out as unreadable: ant/1.png, bee/3.png")
    for number in range(40):
        (root / "bee" / f"{number:030}.png").touch()
    with pytest.raises(ValueError, match=r"42 of 50 files .* and 39 more\. Remove them") as caught:
        _folder(root)
    assert len(str(caught.value)) <= 300


def test_missing_files_and_images_too_long_to_be_cut_are_unreadable(tmp_path):
    root = _fill(tmp_path / "data", suffix="jpeg")
    (root / "ant" / "gone.png").symlink_to("nowhere")
    tf.io.write_file(str(root / "bee" / "long.png"), tf.io.encode_png(np.zeros((1, 20000, 1), np.uint8)))
    for framing in ({"fit": "crop", "image_shape": (64, 64, 3)}, {"short_side": 64, "image_shape": SHAPE}):
        with pytest.raises(ValueError, match=r"data: 2 of 12 files .*: ant/gone\.png, bee/long\.png\. Remove them"):
            ImageFolder(path=str(root), **framing).load()
    with pytest.raises(ValueError, match=r"data: 1 of 12 files .*: ant/gone\.png\. Remove them"):
        _folder(root, fit="pad")
    with pytest.raises(ValueError, match=r"11 of 12 files are not readable PNG images \(JPEG has no 4 channels\)"):
        ImageFolder(path=str(root), image_shape=(4, 4, 4)).load()
    with pytest.raises(ValueError, match=r"image_shape is \(4, 4, 5\), not \(height, width, 1, 3 or 4\)"):
        ImageFolder(path=str(root), image_shape=(4, 4, 5)).load()
    with pytest.raises(InputError, match="image_shape is 32; it must be a tuple of 3 numbers"):
        ImageFolder(path=str(root), image_shape=32).load()


def test_bad_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match="nope"):
        _folder(tmp_path / "nope")
    with pytest.raises(ValueError, match="has no folder per class, only "):
        _folder(tmp_path)
    _fill(tmp_path / "train")
    _fill(tmp_path / "test", classes=("ant", "wasp"))
    with pytest.raises(ValueError, match="class 'wasp' is not among"):
        _folder(tmp_path)
    (tmp_path / "train" / "cat").mkdir()
    with pytest.raises(ValueError, match="cat holds no image files"):
        _folder(tmp_path)


def _pictures(root, shapes, seed=0):
    """Lossless pictures of several sizes, one class each; returns their pixels by class."""
    generator = np.random.default_rng(seed)
    pixels = {
        f"class{number}": generator.integers(0, 256, (*shape, 3), np.uint8) for number, shape in enumerate(shapes)
    }
    for name, image in pixels.items():
        (root / name).mkdir(parents=True)
        tf.io.write_file(str(root / name / "0.png"), tf.io.encode_png(image))
    return pixels


def test_the_centre_is_cut_out_as_by_torchvision(tmp_path):
    """Resize(8), then CenterCrop(6, 7): with Pillow, which rounds to grey levels."""
    pixels = _pictures(tmp_path, [(20, 31), (31, 20), (9, 9), (8, 13)])
    data = ImageFolder(path=str(tmp_path), image_shape=(6, 7, 3), test_size=1.0, short_side=8).load()
    images, labels = data.test.arrays()
    for image, label in zip(images, labels, strict=True):
        picture = PIL.Image.fromarray(pixels[data.class_names[label]])
        short = min(picture.size)
        size = tuple(int(8 * side / short) for side in picture.size)
        resized = np.asarray(picture.resize(size, PIL.Image.Resampling.BILINEAR)) / 255
        top, left = round((size[1] - 6) / 2), round((size[0] - 7) / 2)
        np.testing.assert_allclose(image, resized[top : top + 6, left : left + 7], atol=1.01 / 255)


def test_training_parts_are_cut_out_of_the_file_s_own_pixels(tmp_path):
    """They follow from seed, epoch and position; what is judged is not cut at random."""
    crop = RandomResizedCrop(scale=(0.1, 0.5))
    _pictures(tmp_path / "train", [(20, 31), (31, 20), (40, 40), (16, 13)])
    _pictures(tmp_path / "test", [(20, 31), (31, 20), (40, 40), (16, 13)])
    data = ImageFolder(path=str(tmp_path), image_shape=(6, 6, 3), short_side=8, training_crop=crop).load()
    plain = ImageFolder(path=str(tmp_path), image_shape=(6, 6, 3), short_side=8).load()
    np.testing.assert_array_equal(data.test.arrays()[0], plain.test.arrays()[0])
    first, again = (list(training_batches(data.train, batch_size=4, seed=3, steps=2)) for _ in range(2))
    for batch, repeated in zip(first, again, strict=True):
        np.testing.assert_array_equal(batch.images, repeated.images)
    order = [np.argsort(batch.index) for batch in first]
    assert np.abs(first[0].images.numpy()[order[0]] - first[1].images.numpy()[order[1]]).max() > 0.1
    # By hand: the box of one file's own size, from the key that the pipeline makes.
    index = first[0].index.numpy()
    keys = randomness.example_keys(randomness.make_key(3, "crop", 0), index)
    for row, position in enumerate(index):
        picture = tf.io.decode_png(tf.io.read_file(data.train.paths[position])).numpy().astype(np.float32)
        box = crop.draw(keys[row : row + 1], (1, *picture.shape))["box"][0]
        top, left, tall, wide = box.numpy()
        part = tf.image.resize(picture[top : top + tall, left : left + wide], (6, 6), antialias=True)
        np.testing.assert_allclose(first[0].images[row] * 255, part, atol=1e-3)


def test_framing_is_part_of_the_fingerprint_and_checked(tmp_path):
    _pictures(tmp_path, [(9, 9), (8, 13)])
    fingerprints = {_folder(tmp_path, test_size=1.0, short_side=side).test.fingerprint for side in (None, 5, 6)}
    assert len(fingerprints) == 3
    with pytest.raises(ValueError, match="short_side is 3"):
        _folder(tmp_path, short_side=3)


def test_the_size_is_that_of_the_images_or_asked_for(tmp_path):
    _pictures(tmp_path / "one", [(9, 8), (9, 8)])
    data = ImageFolder(path=str(tmp_path / "one"), test_size=1.0).load()
    assert data.image_shape == (9, 8, 3)
    assert data.note.endswith("one: 2 images of 9x8 (height x width), read as 9x8 in color")
    _pictures(tmp_path / "two", [(9, 9), (8, 13)])
    with pytest.raises(ValueError, match=r"2 images of 2 sizes, 9x9 to 8x13 .* 'stretch', 'crop' or 'pad'") as caught:
        ImageFolder(path=str(tmp_path / "two"), test_size=1.0).load()
    assert len(str(caught.value)) <= 300
    _pictures(tmp_path / "large", [(257, 1), (257, 1)])
    with pytest.raises(ValueError, match="2 images of 257x1"):
        ImageFolder(path=str(tmp_path / "large"), test_size=1.0).load()
    words = {"stretch": "stretched", "crop": "resized and cropped", "pad": "resized and padded"}
    datasets = [_folder(tmp_path / "two", test_size=1.0, fit=fit) for fit in words]
    assert [data.note.partition("width), ")[2] for data in datasets] == [f"{w} to 4x4 in color" for w in words.values()]
    assert len({data.test.fingerprint for data in datasets}) == 3
    with pytest.raises(ValueError, match="fit is 'squeeze'; it is one of 'stretch', 'crop', 'pad'"):
        _folder(tmp_path / "two", fit="squeeze")


def test_gray_images_have_one_channel(tmp_path):
    for name in ("ant", "bee"):
        tf.io.write_file(str(tmp_path / name / "0.png"), tf.io.encode_png(np.zeros((5, 5, 1), np.uint8)))
    data = ImageFolder(path=str(tmp_path), test_size=1.0).load()
    assert data.image_shape == (5, 5, 1) and data.note.endswith("read as 5x5 in gray")


def test_cmyk_images_have_the_three_channels_that_are_decoded(tmp_path):
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        for number, mode in enumerate(("CMYK", "RGB", "RGB", "RGB")):
            PIL.Image.new(mode, (4, 4)).save(tmp_path / name / f"{number}.jpg")
    data = ImageFolder(path=str(tmp_path), test_size=0.5).load()
    assert data.image_shape == SHAPE and data.train.arrays()[0].shape == (4, *SHAPE)


def _grouped(root, *classes):
    """Fill two groups of each class."""
    for name in classes:
        _fill(root / name, classes=("day", "night"), count=2)
    return root


def test_folders_inside_a_class_are_groups(tmp_path):
    _fill(tmp_path / "train", count=2)
    for group, count in (("night", 3), ("day", 1)):
        _fill(tmp_path / "inner", classes=(group,), count=count)
        (tmp_path / "inner" / group).rename(tmp_path / "train" / "ant" / group)
    (tmp_path / "train" / "ant" / "day" / "deep").mkdir()
    (tmp_path / "train" / "ant" / "day" / "deep" / "1.png").write_bytes(b"")
    root = tmp_path / "train"
    with pytest.raises(ValueError, match=r"inner holds no image files .*only folders\. ImageFolder\.groups=True reads"):
        _folder(_grouped(tmp_path / "only", "outer", "inner"))
    plain = _folder(root, test_size=1.0)
    assert plain.test.groups is None and len(plain.test) == 4
    assert "5 files in folders inside a class, such as ant/day (ImageFolder.groups=True reads them" in plain.note
    data = _folder(root, test_size=1.0, groups=True)
    assert "1 file in folders inside a group, such as ant/day/deep" in data.note
    named = dict(zip([path.rpartition("/train/")[2] for path in data.test.paths], data.test.groups, strict=True))
    assert len(named) == 8 and named["ant/night/2.png"] == "night" and named["ant/day/0.png"] == "day"
    assert named["ant/1.png"] == named["bee/0.png"] == "none"
    assert data.test.take([0, 5]).groups.tolist() == data.test.groups[[0, 5]].tolist()


def test_a_class_with_groups_and_the_name_of_a_split_is_refused(tmp_path):
    root = _grouped(tmp_path, "bus", "train")
    with pytest.raises(ValueError, match="'train' may be a split or a class.* the groups of 'bus'. Rename 'train'"):
        _folder(root, groups=True)
    assert _folder(root).class_names == ("day", "night")
    _grouped(root / "train", "car")  # deeper than the groups of a class
    assert _folder(root, groups=True).class_names == ("car", "day", "night")


def test_transparency_that_is_left_out_is_noted(tmp_path):
    root = _fill(tmp_path / "icons", count=2)
    for name, kind in (("ant/0", "RGBA"), ("ant/1", "LA"), ("bee/0", "L")):
        PIL.Image.new(kind, SHAPE[:2]).save(root / f"{name}.png")
    data = ImageFolder(path=str(root)).load()
    assert data.image_shape == SHAPE and data.note.endswith("in color; transparency of 2 images left out")
    assert "transparency" not in ImageFolder(path=str(root), image_shape=(4, 4, 4)).load().note
    for path in root.glob("*/*.png"):
        PIL.Image.new("LA", SHAPE[:2]).save(path)
    assert ImageFolder(path=str(root)).load().image_shape == (4, 4, 1)
