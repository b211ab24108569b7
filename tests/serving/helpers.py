"""Shared by tests of serving: image files, and a server of one model."""

import contextlib
import io

from PIL import Image

from tfrobust.serving.server.development import Server


@contextlib.contextmanager
def serving(name, folder, version, parent):
    """The development server with a model whose only version lies elsewhere."""
    (parent / name).mkdir()
    (parent / name / str(version)).symlink_to(folder)
    with Server({name: parent / name}, rest_port=0, grpc_port=0, poll_seconds=0) as running:
        yield running


def encoded(pixels, kind="png"):
    """An image file of an array of bytes."""
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(buffer, kind)
    return buffer.getvalue()
