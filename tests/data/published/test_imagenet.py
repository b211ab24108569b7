"""Trees of class folders: what is read in which order, which logit a folder belongs to, what is refused."""

import numpy as np
import pytest
import stored
from tensorflow_datasets.datasets.imagenet2012 import imagenet_common

from oracles import published
from tfrobust.data.published import imagenet
from tfrobust.data.published.imagenet import ImageNetA, ImageNetC, ImageNetP, ImageNetR, class_ids
from tfrobust.data.published.published_set import Target

WNIDS = ("n01440764", "n01443537", "n02007558")
TARGET = Target((16, 16, 3), 3)
PARTS = [(name, severity) for name in ("fog", "snow") for severity in (1, 3)]


def flat(level, side=16):
    return np.full((side, side, 3), level, np.uint8)


def c_tree(folder, parts=PARTS):
    """Two images a class, each of one grey level of its own, in every part other levels."""
    pictures = {}
    for part, (name, severity) in enumerate(parts):
        for number, wnid in enumerate(WNIDS):
            for copy in range(2):
                level = 10 * (2 * number + copy) + 60 * part
                pictures[f"{name}/{severity}/{wnid}/val_{copy}.JPEG"] = flat(level)
    return published.tree(folder, pictures)


def few(folder, kind=ImageNetC, **changes):
    return kind(folder=str(folder), as_published=False, **changes)


def levels(batches):
    return [int(level) for batch in batches for level in np.round(batch.mean(axis=(1, 2, 3)) * 255)]


def test_images_in_the_order_of_the_folders(tmp_path):
    opened = few(c_tree(tmp_path / "c")).open(("fog", "snow"), (1, 3), TARGET)
    assert opened.labels.tolist() == [0, 0, 1, 1, 2, 2] and opened.labels.dtype == np.int32
    assert opened.notes == {"source": "published: ImageNet-C, an excerpt or a variant"}
    batches = list(opened.read(("snow", 3), np.array([0, 3, 4, 5]), 3))
    assert [batch.shape for batch in batches] == [(3, 16, 16, 3), (1, 16, 16, 3)] and batches[0].dtype == np.float32
    np.testing.assert_allclose(levels(batches), [180, 210, 220, 230], atol=1)
    larger = few(tmp_path / "c").open(("fog",), (1,), Target((20, 24, 1), 3))
    assert next(larger.read(("fog", 1), np.arange(6), 6)).shape == (6, 20, 24, 1)


def test_the_published_number(tmp_path, monkeypatch):
    published_set = ImageNetC(folder=str(c_tree(tmp_path / "c")))
    with pytest.raises(ValueError, match="has 6 images at each severity, the published set 50000"):
        published_set.open(("fog",), (1,), TARGET)
    monkeypatch.setattr(imagenet, "_IMAGES", 6)
    with pytest.raises(ValueError, match="has 3 class folders, the published set 1000"):
        published_set.open(("fog",), (1,), TARGET)
    monkeypatch.setattr(imagenet, "_CLASSES", 3)
    assert published_set.open(("fog",), (1,), TARGET).notes == {"source": "published: ImageNet-C"}


def _move(folder, old, new):
    (folder / new).parent.mkdir(parents=True, exist_ok=True)
    (folder / old).rename(folder / new)


@pytest.mark.parametrize(("spoil", "message"), stored.cases(__file__, "imagenet", globals())["rows"])
def test_what_is_wrong_is_said_once(tmp_path, spoil, message):
    folder = c_tree(tmp_path / "c")
    spoil(folder)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        few(folder).open(("fog", "snow"), (1, 3), TARGET)
    assert message in str(caught.value) and len(str(caught.value)) <= 300


def test_an_unreadable_image_is_named(tmp_path):
    folder = c_tree(tmp_path / "c")
    (folder / "fog/1/n01443537/val_1.JPEG").write_bytes(b"<html>")
    opened = few(folder).open(("fog",), (1,), TARGET)
    with pytest.raises(ValueError, match="n01443537/val_1.JPEG is not a readable"):
        list(opened.read(("fog", 1), np.arange(6), 2))


# ------------------------------------------------------------------------------------------- class folders


def test_which_logit_a_folder_belongs_to(tmp_path):
    file = tmp_path / "classes.txt"
    file.write_text("n02007558 flamingo\nn01440764 tench, Tinca tinca\n\nn01443537 goldfish\nn00000001\n")
    four, names = Target((8, 8, 3), 4), (*reversed(WNIDS), "n00000009")
    assert class_ids(WNIDS, four, str(file)).tolist() == [1, 2, 0]
    assert class_ids(WNIDS, four._replace(class_names=names), str(file)).tolist() == [1, 2, 0]
    assert class_ids(WNIDS, four._replace(class_names=names)).tolist() == [2, 1, 0]
    assert class_ids(WNIDS, Target((8, 8, 3), 3, ("cat", "dog", "owl"))).tolist() == [0, 1, 2]
    published_order = imagenet_common.label_names_file().read_text().split()
    ids = class_ids(WNIDS, Target((8, 8, 3), 1000)).tolist()
    assert ids == [published_order.index(wnid) for wnid in WNIDS] == [0, 1, 130]


@pytest.mark.parametrize("count, lines, wnids, message", stored.cases(__file__, "imagenet_orders", globals())["rows"])
def test_an_order_that_is_not_known(tmp_path, count, lines, wnids, message):
    (tmp_path / "classes.txt").write_text(lines)
    with pytest.raises(ValueError, match=message):
        class_ids(wnids, Target((8, 8, 3), count), str(tmp_path / "classes.txt") if lines else "")
    with pytest.raises(FileNotFoundError, match="no file"):
        class_ids(wnids, Target((8, 8, 3), count), str(tmp_path / "none.txt"))


# ---------------------------------------------------------------------------------------------- renditions


@pytest.mark.parametrize(("kind", "count"), [(ImageNetR, 30_000), (ImageNetA, 7_500)])
def test_renditions(tmp_path, monkeypatch, kind, count):
    pictures = {f"{wnid}/{c}.jpg": flat(40 * p + 10 * c) for p, wnid in enumerate(WNIDS[:2]) for c in range(3)}
    folder = published.tree(tmp_path / "r", pictures)
    (folder / "README.txt").write_text("as in the archive")
    opened = few(folder, kind).open(Target((14, 14, 3), 1000))
    assert opened.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert opened.notes["images"] == "shorter side 16, centre 14 x 14"
    np.testing.assert_allclose(levels(opened.read((), np.array([1, 2, 3]), 2)), [10, 20, 40], atol=1)
    with pytest.raises(ValueError, match="has 2 class folders, the published set 200"):
        kind(folder=str(folder)).open(Target((14, 14, 3), 1000))
    monkeypatch.setattr(
        kind, "check_count", lambda self, objects, number, published: seen.append((objects, number, published))
    )
    seen = []
    few(folder, kind).open(Target((14, 14, 3), 1000))
    assert seen == [("class folders", 2, 200), ("images", 6, count)]


def test_one_class_is_no_task_and_numbers_of_clips_must_agree(tmp_path):
    folder = published.tree(tmp_path / "r", {"n01440764/a.jpg": flat(3)})
    with pytest.raises(ValueError, match="has one class folder"):
        few(folder, ImageNetR).open(Target((14, 14, 3), 1000))
    folder = published.tree(p_tree(tmp_path / "p"), {f"scale/n1/c/{frame}.png": flat(9) for frame in range(3)})
    with pytest.raises(ValueError, match="different numbers of clips: {'tilt': 6, 'scale': 1}"):
        few(folder, ImageNetP).open(("tilt", "scale"), TARGET)


def test_the_centre_is_seen_and_not_the_margin(tmp_path):
    """36 x 64 pixels become 18 x 32, of which the middle 16 x 16 are those of the bright square and a dark rim."""
    picture = np.zeros((36, 64, 3), np.uint8)
    picture[4:32, 18:46] = 200
    folder = published.tree(tmp_path, {f"{wnid}/a.png": picture for wnid in WNIDS[:2]})
    opened = few(folder, ImageNetR).open(Target((16, 16, 3), 1000))
    assert opened.notes["images"] == "shorter side 18, centre 16 x 16"
    image = next(opened.read((), np.arange(2), 2))[0, :, :, 0] * 255
    np.testing.assert_allclose(image[2:14, 2:14], 200, atol=1e-3)
    assert max(image[0].max(), image[-1].max(), image[:, 0].max(), image[:, -1].max()) < 100


# -------------------------------------------------------------------------------------------- perturbations


def p_tree(folder, frames=3):
    pictures = {
        f"tilt/{wnid}/clip{clip}/{frame:03d}.png": flat(50 * number + 20 * clip + frame)
        for number, wnid in enumerate(WNIDS)
        for clip in range(2)
        for frame in range(frames)
    }
    return published.tree(folder, pictures)


def test_clips_as_folders_of_frames(tmp_path):
    opened = few(p_tree(tmp_path / "p"), ImageNetP).open(("tilt",), TARGET)
    batches = list(opened.read(("tilt",), np.array([0, 1, 5]), 2))
    assert [batch.shape for batch in batches] == [(2, 3, 16, 16, 3), (1, 3, 16, 16, 3)]
    shown = np.round(np.concatenate(batches)[:, :, 0, 0, 0] * 255).astype(int)
    assert shown.tolist() == [[0, 1, 2], [20, 21, 22], [120, 121, 122]] and len(opened.labels) == 6


def _films(folder):
    for path in sorted((folder / "tilt").glob("*/clip*"), reverse=True):
        for frame in path.iterdir():
            frame.unlink()
        path.rmdir()
        path.with_suffix(".mp4").write_bytes(b"film")


@pytest.mark.parametrize(("spoil", "message"), stored.cases(__file__, "imagenet_clips", globals())["rows"])
def test_bad_clips(tmp_path, spoil, message):
    folder = p_tree(tmp_path / "p")
    spoil(folder)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        opened = few(folder, ImageNetP).open(("tilt",), TARGET)
        list(opened.read(("tilt",), np.arange(6), 6))
    assert message in str(caught.value) and len(str(caught.value)) <= 300


def test_a_part_of_the_videos_is_not_the_published_set(tmp_path):
    folder = p_tree(tmp_path / "p")
    (folder / "tilt" / "n02007558" / "clip1.mp4").write_bytes(b"film")  # beside its frames
    assert len(ImageNetP(folder=str(folder)).open(("tilt",), TARGET).labels) == 6
    (folder / "tilt" / "n02007558" / "clip7.mp4").write_bytes(b"film")
    with pytest.raises(ValueError, match="has 1 videos without a folder of frames and 6 with one"):
        ImageNetP(folder=str(folder)).open(("tilt",), TARGET)
    assert len(few(folder, ImageNetP).open(("tilt",), TARGET).labels) == 6
