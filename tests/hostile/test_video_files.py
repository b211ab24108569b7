"""Video files that are something else, too large, damaged, or that want to have other files opened."""

import sys

import av
import numpy as np
import pytest
import stored
from videos import numbered, write_video

from tfrobust.errors import InputError
from tfrobust.security import video_files

PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/hostname\n"


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return write_video(tmp_path_factory.mktemp("video") / "video.avi", numbered(6), "mpeg4")


def _refused(path, message):
    for read in (video_files.length, video_files.examine, lambda path: video_files.decoded(path, np.array([0]))):
        with pytest.raises(InputError, match=message):
            read(str(path))


@pytest.mark.parametrize("content", stored.rows(globals(), "other_formats"))
def test_other_formats(tmp_path, content):
    path = tmp_path / "a.avi"
    path.write_bytes(content)
    _refused(path, "no AVI, MP4, MOV, Matroska or WebM video")


@pytest.mark.parametrize("start", [b"RIFF\0\0\0\0AVI ", b"\0\0\0\x18ftypmp42", b"\x1a\x45\xdf\xa3"])
def test_a_playlist_behind_the_first_bytes_of_a_video(tmp_path, start):
    path = tmp_path / "a.avi"
    path.write_bytes(start + PLAYLIST)
    _refused(path, "cannot be decoded as a video|has no video stream")


def test_limits(video, monkeypatch):
    for name, value, message in stored.table(globals(), "limits"):
        with monkeypatch.context() as changed:
            changed.setattr(video_files, name, value)
            with pytest.raises(InputError, match=message):
                video_files.examine(str(video))
    assert video_files.examine(str(video)) == video_files.length(str(video)) == 6


def test_sound_alone_and_files_that_are_missing(tmp_path):
    path = tmp_path / "sound.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        file.mux(stream.encode(frame))
        file.mux(stream.encode())
    _refused(path, "has no video stream")
    _refused(tmp_path / "missing.avi", "cannot be decoded as a video: .*No such file")


def test_damage_is_an_error_of_one_sentence_or_a_picture(video, tmp_path):
    original, generator, path = video.read_bytes(), np.random.default_rng(0), tmp_path / "damaged.avi"
    refused = 0
    for number in range(40):
        damaged = bytearray(original if number % 2 else original[: generator.integers(12, len(original))])
        for position in generator.integers(12, len(damaged), 8):
            damaged[position] = generator.integers(256)
        path.write_bytes(damaged)
        try:
            assert video_files.decoded(str(path), np.array([0, 5])).shape[0] == 2
        except InputError as error:
            assert len(str(error)) < 300 and "\n" not in str(error)
            refused += 1
    assert 0 < refused < 40


def test_without_the_extra(monkeypatch, video):
    monkeypatch.setitem(sys.modules, "av", None)
    _refused(video, r"pip install 'tfrobust\[video\]'")
