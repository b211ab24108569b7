"""Base classes of published benchmark sets, which are opened for one model, checked completely, and read in batches."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.common import files, fingerprint
from tfrobust.common.configured import Configured
from tfrobust.common.outside import LocalPath
from tfrobust.data.checks import DataNotFoundError, shorten
from tfrobust.errors import InputError


class Target(NamedTuple):
    """The model for which a set is opened.

    Attributes:
        image_shape: (height, width, channels) of its inputs.
        class_count: number of logits.
        class_names: one per logit, or None if they are unknown.
    """

    image_shape: tuple[int, int, int]
    class_count: int
    class_names: tuple[str, ...] | None = None


class Opened(NamedTuple):
    """An opened set whose files are complete and of the right format.

    Attributes:
        labels: int32 [n], the model's class ids; each part has the same images in the same order.
        read: (part, positions int64 [m], size) -> iterator of float32 [b, ...] in [0, 1] with b <= size, in the order
            of the ascending positions. One batch of the set is in memory at a time.
        notes: description of the set for a report: "source", and what was compared.
    """

    labels: np.ndarray
    read: Callable[[tuple, np.ndarray, int], Iterator[np.ndarray]]
    notes: dict


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedSet(Configured):
    """Location of a published set. Creating the object reads no files.

    Args:
        folder: the set's folder.
        as_published: require the published files: their number, and their md5 if it is known. False accepts an excerpt,
            or own files in the same format; the report says so.
    """

    title: ClassVar[str]
    files_to_watch: ClassVar[str]

    folder: LocalPath
    as_published: bool = True

    def notes(self, title: str = "", **more) -> dict:
        """Return the description of the images for a report: their source, and the given entries."""
        kind = "" if self.as_published else ", an excerpt or a variant"
        return {"source": f"published: {title or self.title}{kind}", **more}

    def state(self) -> str:
        """Return a hash of names, sizes and times of the files, which shows whether a cached result is valid."""
        return fingerprint.files_sha256(self.root, self.root.glob(self.files_to_watch))

    @property
    def root(self) -> pathlib.Path:
        """The folder as a path."""
        return files.expanded(self.folder)

    def require(self, expected: Sequence[str], hint: str) -> None:
        """Check that a folder has all expected entries.

        Raises:
            FileNotFoundError: missing entries, all named in one message.
        """
        lead = f"{self.title} in {shorten(self.root, 60)}"
        if not self.root.is_dir():
            raise DataNotFoundError(f"{lead}: there is no such folder. {hint}")
        missing = [name for name in expected if not (self.root / name).exists()]
        if missing:
            named = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
            raise DataNotFoundError(f"{lead} lacks {shorten(named, 110)}. {hint}")

    def check_count(self, objects: str, count: int, published: int) -> None:
        """Check the number of files against the published one if `as_published`.

        Raises:
            ValueError: another number.
        """
        if self.as_published and count != published:
            raise InputError(
                f"{self.title} in {shorten(self.root, 60)} has {count} {objects}, the published set {published}; "
                f"for an excerpt set {type(self).__name__}.as_published = False."
            )

    def check_image_shape(self, shape: Sequence[int], target: Target) -> None:
        """Raise ValueError for images of another shape than that of the model's inputs."""
        if tuple(shape) != tuple(target.image_shape):
            raise InputError(
                f"The images of {self.title} have the shape {tuple(shape)}, but the model takes "
                f"{tuple(target.image_shape)}."
            )


class CorruptedImages(PublishedSet):
    """Corrupted copies of one test split: the same images under each corruption and severity."""

    def open(self, names: Sequence[str], severities: Sequence[int], target: Target) -> Opened:
        """Check that the set is complete, and open it; parts are (name, severity), images float32 [b, h, w, c].

        Args:
            names: from `corruptions.NAMES` or `corruptions.EXTRA_NAMES`.
            severities: from 1 to 5.
            target: the evaluated model.

        Raises:
            FileNotFoundError: missing files, all named in one message.
            ValueError: files of another format or number, or with another md5 than the published ones.
        """
        raise NotImplementedError


class PerturbedImages(PublishedSet):
    """Short sequences of slowly changing images, on which stability is evaluated."""

    def open(self, names: Sequence[str], target: Target) -> Opened:
        """Check that the set is complete, and open it; parts are (name,), frames float32 [b, frames, h, w, c].

        Labels are unknown: -1.

        Args:
            names: names of the sequences, as in their file names.
            target: the evaluated model.

        Raises:
            FileNotFoundError: missing files, all named in one message.
            ValueError: files of another format or number.
        """
        raise NotImplementedError


class ShiftedImages(PublishedSet):
    """Images of some of a model's classes from another domain than its training data.

    Attributes:
        name: word in the ids of the measurements.
    """

    name: ClassVar[str]

    def open(self, target: Target) -> Opened:
        """Check that the set is complete, and open it; the only part is (), images float32 [b, h, w, c].

        Raises:
            FileNotFoundError: the folder does not exist.
            ValueError: classes that the model does not have, or another number of images than published.
        """
        raise NotImplementedError


def decoded(
    paths: Sequence[str], decode: Callable[[tf.Tensor], tf.Tensor], size: int, group: int = 1
) -> Iterator[np.ndarray]:
    """Read image files in batches, decoded in parallel, with few of them in memory.

    Args:
        paths: names of files.
        decode: (encoded string scalar) -> float32 [h, w, c], in a graph.
        size: images, or groups, per batch.
        group: 1, or the number of consecutive files of one clip.

    Yields:
        float32 [b, h, w, c], or [b, group, h, w, c] if group > 1; the last batch may be smaller.

    Raises:
        ValueError: the first file that is no readable image.
    """
    files = tf.data.Dataset.from_tensor_slices(tf.constant(list(paths), tf.string, [len(paths)]))
    stream = iter(
        files.map(lambda path: decode(tf.io.read_file(path)), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    )
    held = []
    for number, path in enumerate(paths):
        try:
            held.append(next(stream).numpy())
        except tf.errors.OpError as error:
            raise InputError(f"{shorten(path, 180)} is not a readable PNG or JPEG image.") from error
        if len(held) == size * group or number == len(paths) - 1:
            batch = np.stack(held)
            yield batch.reshape(-1, group, *batch.shape[1:]) if group > 1 else batch
            held = []
