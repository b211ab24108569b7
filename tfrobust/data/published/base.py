"""What all published benchmark sets share: they are opened for one model, checked whole, and read in batches."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.data.checks import DataNotFoundError, shorten
from tfrobust.errors import InputError
from tfrobust.ops import fingerprint
from tfrobust.ops.configured import Configured


class Target(NamedTuple):
    """The model that a set is opened for.

    image_shape: (height, width, channels) it takes. class_count: how many logits it gives. class_names: one per
    logit, or None where they are not known.
    """

    image_shape: tuple[int, int, int]
    class_count: int
    class_names: tuple[str, ...] | None = None


class Opened(NamedTuple):
    """A set whose files are all there and of the right form.

    labels: int32 [n], the model's class ids, the same images in the same order in each part. read: (part, positions
    int64 [m], size) -> iterator of float32 [b, ...] in [0, 1] with b <= size, in the order of the ascending positions;
    it holds one batch of the set in memory. notes: what a report says of the set: "source", and what was compared.
    """

    labels: np.ndarray
    read: Callable[[tuple, np.ndarray, int], Iterator[np.ndarray]]
    notes: dict


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedSet(Configured):
    """Where a published set lies. Building one touches nothing.

    Args:
        folder: the set's folder.
        as_published: the files must be the published ones: their number, and their md5 where it is known. False takes
            an excerpt, or files of your own in the same format; the report says so.
    """

    title: ClassVar[str]
    files_to_watch: ClassVar[str]

    folder: str
    as_published: bool = True

    def notes(self, title: str = "", **more) -> dict:
        """What a report says of the images: where they are from, and whatever else is given."""
        kind = "" if self.as_published else ", an excerpt or a variant"
        return {"source": f"published: {title or self.title}{kind}", **more}

    def state(self) -> str:
        """A hash of names, sizes and times of the files, to tell whether a kept result still stands."""
        return fingerprint.files_sha256(self.root, self.root.glob(self.files_to_watch))

    @property
    def root(self) -> pathlib.Path:
        """The folder as a path."""
        return pathlib.Path(self.folder).expanduser()

    def require(self, expected: Sequence[str], hint: str) -> None:
        """Refuses a folder that lacks some of its entries, all of them named at once.

        Args:
            expected: paths below the folder.
            hint: where to get them.

        Raises:
            FileNotFoundError: what is missing.
        """
        lead = f"{self.title} in {shorten(self.root, 60)}"
        if not self.root.is_dir():
            raise DataNotFoundError(f"{lead}: there is no such folder. {hint}")
        missing = [name for name in expected if not (self.root / name).exists()]
        if missing:
            named = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
            raise DataNotFoundError(f"{lead} lacks {shorten(named, 110)}. {hint}")

    def check_count(self, what: str, found: int, published: int) -> None:
        """Refuses another number than the published one, where the published files were asked for."""
        if self.as_published and found != published:
            raise InputError(
                f"{self.title} in {shorten(self.root, 60)} has {found} {what}, the published set {published}; for an "
                f"excerpt set {type(self).__name__}.as_published = False."
            )

    def check_image_shape(self, shape: Sequence[int], target: Target) -> None:
        """Refuses images of another shape than the model takes."""
        if tuple(shape) != tuple(target.image_shape):
            raise InputError(
                f"The images of {self.title} have the shape {tuple(shape)}, but the model is judged on "
                f"{tuple(target.image_shape)}."
            )


class CorruptedImages(PublishedSet):
    """Corrupted copies of one test split: the same images under each corruption and severity."""

    def open(self, names: Sequence[str], severities: Sequence[int], target: Target) -> Opened:
        """Checks that all is there; parts are (name, severity), images float32 [b, h, w, c].

        Args:
            names: of `corruptions.NAMES` or `corruptions.EXTRA_NAMES`.
            severities: of 1 to 5.
            target: who will be judged.

        Raises:
            FileNotFoundError: missing files, named at once.
            ValueError: files of another form or number, or with another md5 than the published ones.
        """
        raise NotImplementedError


class PerturbedImages(PublishedSet):
    """Short sequences of slowly changing images: stability is judged on them."""

    def open(self, names: Sequence[str], target: Target) -> Opened:
        """Checks that all is there; parts are (name,), frames float32 [b, frames, h, w, c]. Labels are unknown: -1.

        Args:
            names: of the sequences, as their files are called.
            target: who will be judged.

        Raises:
            FileNotFoundError: missing files, named at once.
            ValueError: files of another form or number.
        """
        raise NotImplementedError


class ShiftedImages(PublishedSet):
    """Images of some of a model's classes, from another domain than it was trained on.

    name: the word in the ids of the measurements.
    """

    name: ClassVar[str]

    def open(self, target: Target) -> Opened:
        """Checks that all is there; the only part is (), images float32 [b, h, w, c].

        Raises:
            FileNotFoundError: the folder is not there.
            ValueError: classes the model does not know, or another number of images than published.
        """
        raise NotImplementedError


def decoded(
    paths: Sequence[str], decode: Callable[[tf.Tensor], tf.Tensor], size: int, group: int = 1
) -> Iterator[np.ndarray]:
    """Image files in batches, decoded in parallel, only a few of them in memory.

    Args:
        paths: names of files.
        decode: (encoded string scalar) -> float32 [h, w, c], in a graph.
        size: images, or groups, per batch.
        group: 1, or how many consecutive files make one clip.

    Yields:
        float32 [b, h, w, c], or [b, group, h, w, c] where group > 1; the last batch may be smaller.

    Raises:
        ValueError: naming the first file that is no readable image.
    """
    files = tf.data.Dataset.from_tensor_slices(tf.constant(list(paths), tf.string, [len(paths)]))
    stream = iter(
        files.map(lambda path: decode(tf.io.read_file(path)), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    )
    held = []
    for place, path in enumerate(paths):
        try:
            held.append(next(stream).numpy())
        except tf.errors.OpError as error:
            raise InputError(f"{shorten(path, 180)} is not a readable PNG or JPEG image.") from error
        if len(held) == size * group or place == len(paths) - 1:
            batch = np.stack(held)
            yield batch.reshape(-1, group, *batch.shape[1:]) if group > 1 else batch
            held = []
