"""Untrusted video files: known containers and codecs only, bounded sizes, and no access to other files.

Decoding runs FFmpeg's C code in this process, through PyAV. That is a risk with files of unknown origin: faults of
decoders can be exploited. The checks here make it smaller, but do not remove it. The container is chosen from the first
bytes of the file and never guessed by FFmpeg, so that playlists and other formats that name further files are not
opened. Only the decoders in `CODECS` run. Decode files that you do not trust in a container without network and
without other data.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import numpy as np

from tfrobust.errors import InputError
from tfrobust.security.program_files import shown

LARGEST_FILE = 2**31  # bytes
LARGEST_FRAME = 2**23  # pixels; 3840 x 2160 is just below
MOST_FRAMES = 2**17  # over an hour at 25 frames per second
CODECS = ("av1", "ffv1", "h264", "hevc", "libdav1d", "mjpeg", "mpeg4", "msmpeg4v2", "msmpeg4v3", "vp8", "vp9")
_HEADER = 12


def length(path: str) -> int:
    """Return the number of frames that a video states, or else that of its packets, without decoding them.

    Raises:
        InputError: see `decoded`.
    """
    with _opened(path) as (container, stream):
        count = stream.frames or sum(packet.size > 0 for packet in container.demux(stream))
    return _at_most(count, path)


def examine(path: str) -> int:
    """Decode a whole video, and return the number of its frames.

    Raises:
        InputError: see `decoded`.
    """
    return sum(1 for _ in _frames(path))


def decoded(path: str, positions: np.ndarray) -> np.ndarray:
    """Decode some frames of a video; frames in front of the last of them are decoded too, as no seeking is exact.

    Args:
        path: file name of an AVI, MP4, MOV, Matroska or WebM video.
        positions: integer [t], frames from 0 on, in any order. Beyond the end, the last frame is repeated.

    Returns:
        uint8 [t, h, w, 3], RGB.

    Raises:
        InputError: no such video, a codec that is not in `CODECS`, a damaged file, or one that is larger than the
            limits of this module.
    """
    numbers, pictures_by_number, last = set(int(position) for position in positions), {}, None
    for number, frame in enumerate(_frames(path)):
        last = number, frame
        if number in numbers:
            pictures_by_number[number] = frame.to_ndarray(format="rgb24")
        if number >= max(numbers):
            break
    if last is None:
        raise InputError(f"{_file_name(path)}: the video has no frame.")
    if last[0] < max(numbers):
        pictures_by_number[last[0]] = last[1].to_ndarray(format="rgb24")
    pictures = [pictures_by_number[min(int(position), last[0])] for position in positions]
    if any(picture.shape != pictures[0].shape for picture in pictures):
        raise InputError(f"{_file_name(path)}: the size of the frames changes within the video.")
    return np.stack(pictures)


def _frames(path: str) -> Iterator:
    with _opened(path) as (container, stream):
        for number, frame in enumerate(container.decode(stream)):
            _at_most(number + 1, path)
            yield frame


@contextlib.contextmanager
def _opened(path: str):
    """Open a video with the container of its first bytes, and errors as sentences."""
    av = library()
    try:
        size = os.path.getsize(path)
        if size > LARGEST_FILE:
            raise InputError(f"{_file_name(path)} has {size} bytes; videos are read up to {LARGEST_FILE}.")
        with open(path, "rb") as file:
            kind = _container(file.read(_HEADER), path)
            file.seek(0)
            # From PyAV 19 on, metadata in another encoding than UTF-8 are never an error.
            lenient = {"metadata_errors": "ignore"} if int(av.__version__.partition(".")[0]) < 19 else {}
            with av.open(file, format=kind, **lenient) as container:
                if not container.streams.video:
                    raise InputError(f"{_file_name(path)} has no video stream.")
                stream = container.streams.video[0]
                context = stream.codec_context
                if context.name not in CODECS:
                    raise InputError(
                        f"{_file_name(path)}: the codec is {context.name}; it is one of {', '.join(CODECS)}."
                    )
                context.thread_count = 1  # videos are decoded in parallel, not frames
                context.options = {"max_pixels": str(LARGEST_FRAME)}
                yield container, stream
    except InputError:
        raise
    except (av.FFmpegError, OSError) as error:
        raise InputError(
            f"{_file_name(path)} cannot be decoded as a video: {shown(error.strerror or error)}."
        ) from error


def _container(head: bytes, path: str) -> str:
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    if head[4:8] == b"ftyp":
        return "mov"
    if head[:4] == b"\x1a\x45\xdf\xa3":
        return "matroska"
    raise InputError(f"{_file_name(path)} is no AVI, MP4, MOV, Matroska or WebM video.")


def _at_most(count: int, path: str) -> int:
    if count > MOST_FRAMES:
        raise InputError(f"{_file_name(path)} has more than {MOST_FRAMES} frames; cut it into shorter videos.")
    return count


def library():
    """Return PyAV, which the extra `video` installs.

    Raises:
        InputError: it is not installed.
    """
    try:
        import av
    except ImportError:
        raise InputError("reading videos needs PyAV: pip install 'tfrobust[video]'") from None
    return av


def _file_name(path: str) -> str:
    return shown(os.path.basename(path))
