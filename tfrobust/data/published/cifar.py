"""CIFAR-10-C, CIFAR-100-C and CIFAR-P: folders of `.npy` files, memory-mapped and never unpickled."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Iterator, Sequence

import keras
import numpy as np

from tfrobust.common import files
from tfrobust.common.arrays import check_labels
from tfrobust.data.checks import shorten
from tfrobust.data.published.published_set import CorruptedImages, Opened, PerturbedImages, Target
from tfrobust.data.spec import PIXEL_SCALE
from tfrobust.errors import InputError

_SEVERITIES = 5
_IMAGES = 10_000  # images of the test split, at each severity and in each sequence
_SITES = {
    "C": "Get CIFAR-10-C.tar from zenodo.org/records/2535967, CIFAR-100-C.tar from /3555552.",
    "P": "github.com/hendrycks/robustness links CIFAR-10-P.tar and CIFAR-100-P.tar.",
}


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class CifarC(CorruptedImages):
    """CIFAR-10-C or CIFAR-100-C: `<corruption>.npy`, uint8 [50000, 32, 32, 3], and `labels.npy` [50000].

    Rows (s - 1) * 10000 to s * 10000 hold severity s, in the official order of the test images. The labels repeat five
    times. Files are memory-mapped, so that only the rows of one batch are in memory.

    Source:
        Hendrycks and Dietterich 2019 (arXiv 1903.12261). Several public readers of the files have the same md5 sums.
    """

    title = "CIFAR-C"
    files_to_watch = "*.npy"

    def open(self, names: Sequence[str], severities: Sequence[int], target: Target) -> Opened:
        """Check labels, arrays and md5 sums, and map the files."""
        self.require(["labels.npy", *(f"{name}.npy" for name in names)], _SITES["C"])
        labels = self._labels(target)
        count = len(labels)
        arrays = {name: self._array(f"{name}.npy", count * _SEVERITIES, target) for name in names}
        title, checksums = ("CIFAR-10-C", CIFAR10_C) if labels.max() < 10 else ("CIFAR-100-C", CIFAR100_C)
        if self.as_published:
            for name in ("labels", *names):
                _check_md5(self.root / f"{name}.npy", checksums[name])

        def read(part: tuple, positions: np.ndarray, size: int) -> Iterator[np.ndarray]:
            name, severity = part
            return rows_of(arrays[name], (severity - 1) * count + positions, size)

        return Opened(labels, read, self.notes(title, md5="as published" if self.as_published else "not compared"))

    def _labels(self, target: Target) -> np.ndarray:
        where = shorten(self.root / "labels.npy")
        labels = mapped(self.root / "labels.npy")
        labels = check_labels(labels, len(labels), target.class_count, where)
        count, rest = divmod(len(labels), _SEVERITIES)
        if rest or not count:
            raise InputError(f"{where} has {len(labels)} labels; it must have five per test image.")
        self.check_count("images at each severity", count, _IMAGES)
        blocks = labels.reshape(_SEVERITIES, count)
        if (blocks != blocks[0]).any():
            severity, row = np.argwhere(blocks != blocks[0])[0]
            raise InputError(
                f"{where} does not repeat the same labels for each severity: image {row} is {blocks[0, row]} at "
                f"severity 1 and {blocks[severity, row]} at severity {severity + 1}."
            )
        return blocks[0].copy()

    def _array(self, name: str, count: int, target: Target) -> np.ndarray:
        array = _images(self.root / name, 4)
        if len(array) != count:
            raise InputError(f"{shorten(self.root / name)} has {len(array)} images for {count} labels.")
        self.check_image_shape(array.shape[1:], target)
        return array


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class CifarP(PerturbedImages):
    """CIFAR-10-P or CIFAR-100-P: `<sequence>.npy`, uint8 [10000, frames, 32, 32, 3].

    Source:
        Hendrycks and Dietterich 2019 (arXiv 1903.12261), section 4.2.
    """

    title = "CIFAR-P"
    files_to_watch = "*.npy"

    def open(self, names: Sequence[str], target: Target) -> Opened:
        """Check and map the files of the sequences."""
        self.require([f"{name}.npy" for name in names], _SITES["P"])
        arrays = {name: _images(self.root / f"{name}.npy", 5) for name in names}
        counts = {name: len(array) for name, array in arrays.items()}
        for name, array in arrays.items():
            self.check_image_shape(array.shape[2:], target)
            self.check_count(f"sequences of {name}", len(array), _IMAGES)
            if array.shape[1] < 2:
                raise InputError(
                    f"{shorten(self.root / name)}.npy has {array.shape[1]} frame; a sequence needs at least two."
                )
        if len(set(counts.values())) > 1:
            raise InputError(f"{shorten(self.root)}: the files have different numbers of sequences: {counts}.")
        count = next(iter(counts.values()))

        def read(part: tuple, positions: np.ndarray, size: int) -> Iterator[np.ndarray]:
            return rows_of(arrays[part[0]], positions, size)

        return Opened(np.full(count, -1, np.int32), read, self.notes())


def mapped(path: pathlib.Path) -> np.ndarray:
    """Memory-map a `.npy` file; rows are read on access, and nothing in it is ever unpickled.

    Raises:
        ValueError: no `.npy` file, cut short, or with Python objects in it.
    """
    try:
        with files.regular(path):
            return np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, TypeError, EOFError, SyntaxError, OverflowError) as error:
        pickled = "Python objects" in str(error)
        fault = "holds pickled objects, which are never read" if pickled else "is not a .npy file, or is cut short"
        raise InputError(f"{shorten(path)} {fault}.") from error


def rows_of(array: np.ndarray, rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yield rows of a mapped array, float32 in [0, 1], in batches of `size`."""
    for start in range(0, len(rows), size):
        yield array[rows[start : start + size]].astype(np.float32) * PIXEL_SCALE


def _images(path: pathlib.Path, rank: int) -> np.ndarray:
    array = mapped(path)
    axes = "[n, 32, 32, 3]" if rank == 4 else "[n, frames, 32, 32, 3]"
    if array.dtype != np.uint8 or array.ndim != rank or 0 in array.shape:
        raise InputError(f"{shorten(path)} is {array.dtype} of shape {list(array.shape)}, not uint8 {axes}.")
    return array


def _check_md5(path: pathlib.Path, published: str) -> None:
    with files.regular(path) as file:
        digest = hashlib.file_digest(file, "md5").hexdigest()
    if digest != published:
        raise InputError(
            f"{shorten(path)} has the md5 {digest}, the published file {published}: get it again, or, if it is "
            "meant to differ, set CifarC.as_published = False."
        )


# The md5 sums of the published CIFAR-C files by file name without `.npy`; three public readers have the same sums.
CIFAR10_C = {
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "contrast": "3c8262171c51307f916c30a3308235a8",
    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
    "elastic_transform": "9421657c6cd452429cf6ce96cc412b5f",
    "fog": "7b397314b5670f825465fbcd1f6e9ccd",
    "frost": "31f6ab3bce1d9934abfb0cc13656f141",
    "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
    "gaussian_noise": "ecaf8b9a2399ffeda7680934c33405fd",
    "glass_blur": "7361fb4019269e02dbf6925f083e8629",
    "impulse_noise": "2090e01c83519ec51427e65116af6b1a",
    "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
    "labels": "c439b113295ed5254878798ffe28fd54",
    "motion_blur": "fffa5f852ff7ad299cfe8a7643f090f4",
    "pixelate": "0f14f7e2db14288304e1de10df16832f",
    "saturate": "1cfae0964219c5102abbb883e538cc56",
    "shot_noise": "3a7239bb118894f013d9bf1984be7f11",
    "snow": "bb238de8555123da9c282dea23bd6e55",
    "spatter": "8a5a3903a7f8f65b59501a6093b4311e",
    "speckle_noise": "ef00b87611792b00df09c0b0237a1e30",
    "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
}

CIFAR100_C = {
    "brightness": "f22d7195aecd6abb541e27fca230c171",
    "contrast": "322bb385f1d05154ee197ca16535f71e",
    "defocus_blur": "d923e3d9c585a27f0956e2f2ad832564",
    "elastic_transform": "a0792bd6581f6810878be71acedfc65a",
    "fog": "4efc7ebd5e82b028bdbe13048e3ea564",
    "frost": "3a39c6823bdfaa0bf8b12fe7004b8117",
    "gaussian_blur": "5204ba0d557839772ef5a4196a052c3e",
    "gaussian_noise": "ecc4d366eac432bdf25c024086f5e97d",
    "glass_blur": "0bf384f38e5ccbf8dd479d9059b913e1",
    "impulse_noise": "3b3c210ddfa0b5cb918ff4537a429fef",
    "jpeg_compression": "c851b7f1324e1d2ffddeb76920576d11",
    "labels": "bb4026e9ce52996b95f439544568cdb2",
    "motion_blur": "732a7e2e54152ff97c742d4c388c5516",
    "pixelate": "96c00c60f144539e14cffb02ddbd0640",
    "saturate": "c0697e9fdd646916a61e9c312c77bf6b",
    "shot_noise": "b0a1fa6e1e465a747c1b204b1914048a",
    "snow": "0237be164583af146b7b144e73b43465",
    "spatter": "12ccf41d62564d36e1f6a6ada5022728",
    "speckle_noise": "e3f215b1a0f9fd9fd6f0d1cf94a7ce99",
    "zoom_blur": "0204613400c034a81c4830d5df81cb82",
}
