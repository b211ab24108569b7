"""UCF101 and HMDB51 from small real videos in the layout of the archives."""

import pathlib
import re
import shutil

import numpy as np
import pytest
import stored
from videos import gray, write_video

from tfrobust.keras.data import Hmdb51, Ucf101

SMALL = {"frames": 2, "stride": 2, "size": (8, 12)}
CLASSES = ("Archery", "HandstandPushups")
ACTIONS = ("brush_hair", "wave")


@pytest.fixture(scope="module")
def ucf(tmp_path_factory):
    """2 classes; recordings 1 to 3 for training, with two clips each, 4 for testing."""
    root = tmp_path_factory.mktemp("ucf")
    lists = {"classInd": [f"{number} {name}" for number, name in enumerate(CLASSES, 1)], "train": [], "test": []}
    for label, name in enumerate(CLASSES):
        for group in (1, 2, 3, 4):
            for clip in (1, 2):
                # The archive writes this class in two ways.
                video = f"{name}/v_{name.replace('stand', 'Stand')}_g0{group}_c0{clip}.avi"
                first = 120 * label + 50 * (clip - 1)
                write_video(root / "UCF-101" / video, gray(range(first, first + 50, 10)), "mpeg4")
                lists["test" if group == 4 else "train"].append(video + ("" if group == 4 else f" {label + 1}"))
    for file, part in (("classInd", "classInd"), ("trainlist02", "train"), ("testlist02", "test")):
        (root / f"{file}.txt").write_text("\r\n".join(lists[part]) + "\r\n")
    return {"path": str(root / "UCF-101"), "lists": str(root), "split": 2, **SMALL}


@pytest.fixture(scope="module")
def hmdb(tmp_path_factory):
    root = tmp_path_factory.mktemp("hmdb")
    for label, name in enumerate(ACTIONS):
        lines = []
        for number, tag in enumerate((1, 1, 2, 0, 1)):
            title = f"#{number // 2}_Film!_{name}"
            video = f"{title}_u_nm_np1_ba_goo_{number}.avi"
            write_video(root / "videos" / name / video, gray([100 * label + 20 * number] * 4), "mpeg4")
            lines.append(f"{video} {tag} ")
        (root / f"{name}_test_split1.txt").write_text("\n".join(lines) + "\n")
    return {"path": str(root / "videos"), "lists": str(root), **SMALL}


def _shown(examples):
    """Pairs (gray level of the first frame, label)."""
    clips, labels = examples.arrays()
    return [(float(clip[0].mean() * 255), int(label)) for clip, label in zip(clips, labels, strict=True)]


def test_ucf101_follows_its_lists(ucf):
    data = Ucf101(clips=2, **ucf).load()
    assert data.class_names == CLASSES and data.image_shape == (2, 8, 12, 3)
    assert data.sizes == {"train": 12, "validation": 0, "test": 8}
    assert data.test.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    # Two clips of a video of 5 frames that span 3 start at 0 and 2.
    expected = [
        (120 * label + 50 * clip + 10 * start, label) for label in (0, 1) for clip in (0, 1) for start in (0, 2)
    ]
    np.testing.assert_allclose(_shown(data.test), expected, atol=4)
    assert all("_g04_" in path for path in data.test.videos)
    assert "16 videos of 2 classes, official split 2" in data.note


def test_validation_takes_whole_recordings_of_each_class(ucf, hmdb):
    data = Ucf101(validation_size=4, clips=2, **ucf).load()
    assert data.sizes == {"train": 8, "validation": 8, "test": 8}
    split = {part: {path.rpartition("_c")[0] for path in getattr(data, part).videos} for part in data.sizes}
    assert not split["train"] & split["validation"] and len(split["validation"]) == 2
    assert sorted(data.validation.labels) == [0] * 4 + [1] * 4
    data = Hmdb51(validation_size=2, **hmdb).load()
    split = {part: {re.search(r"#\d_Film!", path)[0] for path in getattr(data, part).videos} for part in data.sizes}
    assert data.sizes["validation"] == 2 and not split["train"] & split["validation"]  # one recording, in both classes


def test_hmdb51_follows_its_lists(hmdb):
    data = Hmdb51(**hmdb).load()
    assert data.class_names == ACTIONS and data.sizes == {"train": 6, "validation": 0, "test": 2}
    # A single clip of 3 frames of 4 starts at 0.
    np.testing.assert_allclose(_shown(data.test), [(40, 0), (140, 1)], atol=4)
    assert [label for _, label in _shown(data.train)] == [0, 0, 0, 1, 1, 1]


def test_the_length_that_a_file_states_is_believed_on_request(ucf):
    asked = [Ucf101(verify=verify, **ucf).load() for verify in (True, False)]
    assert asked[0].fingerprint == asked[1].fingerprint and asked[0].train.lengths.tolist() == [5] * 12


@pytest.mark.parametrize(("file", "text", "message"), stored.cases(__file__, "video_lists", globals())["rows"])
def test_lists_that_are_refused(ucf, tmp_path, file, text, message):
    for name in {"classInd.txt", "trainlist02.txt", "testlist02.txt"} - {file}:
        shutil.copy(pathlib.Path(ucf["lists"], name), tmp_path)
    if text is not None:
        (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        Ucf101(**{**ucf, "lists": str(tmp_path), "verify": False}).load()


@pytest.mark.parametrize(("arguments", "message"), stored.cases(__file__, "video_arguments", globals())["rows"])
def test_arguments_that_are_refused(ucf, arguments, message):
    with pytest.raises(ValueError, match=message):
        Ucf101(**{**ucf, "verify": False, **arguments}).load()


def test_damaged_videos_are_reported_together(hmdb, tmp_path):
    shutil.copytree(hmdb["path"], tmp_path / "videos")
    files = sorted((tmp_path / "videos" / "wave").iterdir())
    files[0].write_bytes(files[0].read_bytes()[:2000])
    files[1].write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match="2 of 8 videos cannot be read"):
        Hmdb51(**{**hmdb, "path": str(tmp_path / "videos")}).load()
