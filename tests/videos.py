"""Small real videos for tests, written by PyAV."""

import av
import numpy as np


def write_video(path, frames, codec="ffv1", container=None):
    """Write frames uint8 [t, h, w, 3]; FFV1 keeps every pixel, MPEG-4 is what UCF101 and HMDB51 have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format=container) as file:
        stream = file.add_stream(codec, rate=25)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "bgr0" if codec == "ffv1" else "yuv420p"
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        file.mux(stream.encode())
    return path


def numbered(count, height=8, width=12, first=0):
    """Return frames whose pixels say their number: red is the number, green the row, blue the column."""
    frames = np.zeros((count, height, width, 3), np.uint8)
    frames[..., 0] = first + np.arange(count)[:, None, None]
    frames[..., 1], frames[..., 2] = 10 * np.arange(height)[:, None], 10 * np.arange(width)
    return frames


def gray(levels, height=8, width=12):
    """Return frames of one gray level each, which lossy codecs keep."""
    return np.broadcast_to(np.array(levels, np.uint8)[:, None, None, None], (len(levels), height, width, 3))
