"""Folders of PNG and JPEG files, one folder per class."""

import collections
import dataclasses
import itertools
import os
import pathlib

import keras
import numpy as np

from tfrobust.augment.resized_crop import RandomResizedCrop
from tfrobust.common import files
from tfrobust.common.outside import LocalPath
from tfrobust.data.checks import DataNotFoundError, check_class_names, check_utf8, shorten
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import FITS, Dataset, FileExamples, check_shape, examine
from tfrobust.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".jpe", ".jfif")
# Names of the folders of each split, in any case.
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid", "dev"),
    "test": ("test", "testing"),
}
LARGEST_SIDE = 256  # of images whose size becomes that of the model's input without being asked for


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFolder(Source):
    """Image files in `path/train/<class>/*` and `path/test/<class>/*`, or in `path/<class>/*` alone.

    Files are PNG or JPEG. `path/validation/<class>/*`, or `val`, `valid` or `dev`, is the validation split if it
    exists. Class ids follow the sorted names of the class folders. Images are read on demand, turned as their EXIF
    orientation says, and converted to one shape. With `groups`, folders inside a class are groups of its images. The
    `note` of the data set says how images are read, and names what is left out: files of other formats, and files and
    folders outside the class folders. Only names that start with a dot are left out without a word.

    Args:
        path: the root.
        image_shape: (height, width, channels); channels 1 (gray), 3, or 4 (with transparency). None takes the size of
            the images if all have the same, of at most 256 pixels a side; with 1 channel if all are gray, otherwise 3.
        test_size: a count or a fraction (1.0 for everything), if there is no test folder.
        fit: how images of another size are fitted to `image_shape`: "stretch" changes their proportions. "crop" fills
            height and width, and cuts off evenly what lies outside. "pad" keeps the whole image, between black borders.
        short_side: a crop after resizing the shorter side to this many pixels: 256 for the usual 224 of ImageNet. None
            for `fit`.
        interpolation: of resizing, "bilinear" or "bicubic".
        training_crop: a random crop for training, taken from the original pixels of the file: a `RandomResizedCrop`.
            The pixels depend on (seed, epoch, position), as with any augmentation.
        verify: decode every file once before training, so that all unreadable files are reported at the start; takes
            about as long as reading one epoch.
        skip_unreadable: leave unreadable files out, instead of an error that lists them.
        groups: True to read `<class>/<group>/*`, too: folders inside a class are groups, such as hospitals or cameras,
            whose accuracies an evaluation measures. Images outside of them form the group "none".
    """

    path: LocalPath
    image_shape: tuple[int, int, int] | None = None
    test_size: int | float = 0.2
    fit: str = "stretch"
    short_side: int | None = None
    interpolation: str = "bilinear"
    training_crop: RandomResizedCrop | None = None
    verify: bool = True
    skip_unreadable: bool = False
    groups: bool = False

    def load(self) -> Dataset:
        """List the files, verify and split them."""
        if self.short_side is not None and self.fit == "pad":
            raise InputError("ImageFolder.short_side crops, and ImageFolder.fit='pad' does not: set only one of them.")
        if not self.verify and (self.image_shape is None or self.skip_unreadable):
            raise InputError("ImageFolder.verify=False reads no files: set image_shape, without skip_unreadable.")
        root = files.expanded(self.path)
        if not root.is_dir():
            raise DataNotFoundError(f"there is no folder {shorten(root)}; give one with a folder per class.")
        folders = _split_folders(root)
        if self.groups:
            _check_splits(root, folders)
        if "validation" in folders and self.validation_size:
            name = folders["validation"].name
            raise InputError(
                f"{shorten(root)} has the folder {name!r} for validation: set ImageFolder.validation_size=0."
            )
        class_names = _class_names(folders["train"], self.groups)
        splits, note = self._read(root, folders, class_names)
        train, test = splits["train"], splits.get("test")
        if test is None:
            train, test = self.hold_out(train, self.test_size, "test")
        data = self.assemble(root.resolve().name, class_names, train, test)
        note += "".join(f"; {sentence}" for sentence in _left_out(root, folders, class_names, self.groups))
        return dataclasses.replace(data, validation=splits.get("validation", data.validation), note=note)

    def _read(
        self, root: pathlib.Path, folders: dict[str, pathlib.Path], class_names: tuple[str, ...]
    ) -> tuple[dict[str, FileExamples], str]:
        """Verify the files; return the splits, and the note on what happens to the images."""
        listed = {split: _labels_by_path(folder, class_names, self.groups) for split, folder in folders.items()}
        paths = [path for labels in listed.values() for path in labels]
        shape, sizes, bad = self.image_shape, None, set()
        fit = self.fit if self.short_side is None else self.short_side
        if shape:
            check_shape(shape, fit)
        if self.verify:
            sizes = examine(paths, shape, fit)
            readable = sizes.all(axis=1)
            bad = {path for path, good in zip(paths, readable, strict=True) if not good}
            sizes = sizes[readable]
            if bad and not (self.skip_unreadable and len(sizes)):
                formats = "PNG images (JPEG has no 4 channels)" if shape and shape[2] == 4 else "PNG or JPEG images"
                raise InputError(
                    f"{shorten(root, 60)}: {len(bad)} of {len(paths)} files are not readable {formats} "
                    f"of at most 256 MiB: {_few(bad, root)}. Remove them, or set ImageFolder.skip_unreadable=True."
                )
            shape = shape or _common_shape(sizes, root)
        reading = {"image_shape": shape, "fit": fit, "interpolation": self.interpolation}
        reading |= {"training_crop": self.training_crop}
        splits = {}
        for split, labels in listed.items():
            intact = [path for path in labels if path not in bad]
            groups = [_group(path, folders[split]) for path in intact] if self.groups else None
            splits[split] = FileExamples(intact, [labels[path] for path in intact], **reading, groups=groups)
        skipped = f"; left out as unreadable: {_few(bad, root)}" if bad else ""
        lying = 0 if sizes is None else int(np.sum(sizes[:, 3] != 1))
        skipped += f"; {lying:,} turned upright as their EXIF orientation says" if lying else ""
        transparent = 0 if sizes is None or (shape and shape[2] == 4) else int(np.count_nonzero(sizes[:, 2] % 2 == 0))
        skipped += f"; transparency of {transparent:,} image{'s' * (transparent > 1)} left out" if transparent else ""
        return splits, f"{shorten(root, 60)}: {_resizing_note(len(paths) - len(bad), sizes, shape, fit)}{skipped}"


def _group(path: str, folder: pathlib.Path) -> str:
    """Return the name of the folder between the class and the file; "none" without one."""
    _, *groups, _ = pathlib.Path(path).relative_to(folder).parts
    return groups[0] if groups else "none"


def _labels_by_path(folder: pathlib.Path, class_names: tuple[str, ...], grouped: bool) -> dict[str, int]:
    """Return the label of each image file in the class folders."""
    unknown = sorted(set(_folders(folder)) - set(class_names))
    if unknown:
        raise InputError(f"{shorten(folder)}: class {unknown[0]!r} is not among the training classes.")
    labels = {path: label for label, name in enumerate(class_names) for path in _images(folder / name, grouped)}
    if not labels:
        raise InputError(f"{shorten(folder)} holds no image files ({', '.join(SUFFIXES)}).")
    for path in labels:
        check_utf8(path, "the file name")
    return labels


def _few(bad: set[str], root: pathlib.Path) -> str:
    """Return the first of some files below the root, in about 100 characters, and the number of the others."""
    names = [shorten(pathlib.Path(path).relative_to(root), 50) for path in sorted(bad)]
    count = max(1, sum(length <= 100 for length in itertools.accumulate(len(name) + 2 for name in names)))
    return ", ".join(names[:count]) + (f" and {len(names) - count} more" if count < len(names) else "")


def _common_shape(sizes: np.ndarray, root: pathlib.Path) -> tuple[int, int, int]:
    """Return the shape of images that all have one size, of those that `examine` returns."""
    if len(np.unique(sizes[:, :2], axis=0)) > 1 or sizes[0, :2].max() > LARGEST_SIDE:
        raise InputError(
            f"{shorten(root, 60)}: {_count_and_sizes(len(sizes), sizes)}; set the size for the model, such as "
            '--gin_param="ImageFolder.image_shape=(32,32,3)", and how to fit them: ImageFolder.fit is '
            f"{', '.join(map(repr, FITS[:-1]))} or {FITS[-1]!r}."
        )
    height, width = (int(side) for side in sizes[0, :2])
    return height, width, 3 if np.any(sizes[:, 2] >= 3) else 1


def _count_and_sizes(count: int, sizes: np.ndarray | None) -> str:
    if sizes is None:
        return f"{count:,} images"
    different = np.unique(sizes[:, :2], axis=0)
    different = different[np.argsort(different.prod(axis=1), kind="stable")]
    few = [f"{height}x{width}" for height, width in different[[0, -1]]]
    if len(different) == 1:
        return f"{count:,} images of {few[0]} (height x width)"
    return f"{count:,} images of {len(different)} sizes, {few[0]} to {few[1]} (height x width)"


def _resizing_note(count: int, sizes: np.ndarray | None, shape: tuple[int, int, int], fit: int | str) -> str:
    """Describe in words what `decode_image` does to the images."""
    target = f"{shape[0]}x{shape[1]} in {'gray' if shape[2] == 1 else 'color'}"
    if sizes is not None and fit in FITS and np.all(sizes[:, :2] == shape[:2]):
        return f"{_count_and_sizes(count, sizes)}, read as {target}"
    done = {"stretch": "stretched", "crop": "resized and cropped", "pad": "resized and padded"}
    change = done.get(fit, f"resized to a shorter side of {fit} and cropped")
    return f"{_count_and_sizes(count, sizes)}, {change} to {target}"


def _split_folders(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """Return the folder of each split; the root alone is that of the training split if it holds the classes.

    A folder without folders is a class, whatever its name.
    """
    folders = {}
    for split, names in SPLITS.items():
        candidates = [name for name in _folders(root) if name.lower() in names and _folders(root / name)]
        if len(candidates) > 1:
            raise InputError(
                f"{shorten(root)}: {candidates[0]!r} and {candidates[1]!r} are both {split} folders; keep one of them."
            )
        if candidates:
            folders[split] = root / candidates[0]
    if folders and "train" not in folders:
        other = next(iter(folders.values())).name
        raise InputError(f"{shorten(root)} has the folder {other!r} of a split, and no folder 'train'.")
    return folders or {"train": root}


def _check_splits(root: pathlib.Path, folders: dict[str, pathlib.Path]) -> None:
    """Raise InputError if the folders of splits may as well be classes whose folders are groups, as others beside them.

    Args:
        root: the folder of the data.
        folders: the folder of each split.
    """

    def has_images(folder: pathlib.Path) -> bool:
        return any(_images(folder / name) for name in _folders(folder))

    splits = [folder for folder in folders.values() if folder != root]
    beside = [name for name in _folders(root) if root / name not in splits and has_images(root / name)]
    grouped = any(has_images(split / name) for split in splits for name in _folders(split))
    if splits and beside and not grouped:
        name = splits[0].name
        raise InputError(
            f"{shorten(root, 60)}: {name!r} may be a split or a class, as its folders hold images like the groups of "
            f"{shorten(beside[0], 50)!r}. Rename {name!r} if it is a class, or move the others elsewhere."
        )


def _left_out(
    root: pathlib.Path, folders: dict[str, pathlib.Path], class_names: tuple[str, ...], grouped: bool
) -> list[str]:
    """Describe the files and folders that are not read, and why."""
    beside = [] if root in folders.values() else _remaining_entries(root, {folder.name for folder in folders.values()})
    formats, deep, where = collections.Counter(), 0, ""
    for folder in folders.values():
        beside += [f"{folder.name}/{name}" for name in _remaining_entries(folder, class_names)]
        for class_folder in filter(pathlib.Path.is_dir, (folder / name for name in class_names)):
            formats.update(
                _suffix(name)
                for name in _remaining_entries(class_folder, _folders(class_folder))
                if _suffix(name) not in SUFFIXES
            )
            for inner in _unread(class_folder, grouped):
                count = sum(len(names) for _, _, names in os.walk(class_folder / inner))
                deep, where = deep + count, where or f"{class_folder.name}/{inner}"
    clauses = [f"{count:,} {suffix or 'nameless'} file{'s' * (count > 1)}" for suffix, count in formats.most_common()]
    clauses = [f"{shorten(', '.join(clauses), 100)} (not PNG or JPEG)"] if clauses else []
    if deep:
        inside = "a group" if grouped else "a class"
        hint = "" if grouped else " (ImageFolder.groups=True reads them as groups)"
        clauses.append(
            f"{deep:,} file{'s' * (deep > 1)} in folders inside {inside}, such as {shorten(where, 50)}{hint}"
        )
    if beside:
        clauses.append(f"{shorten(', '.join(beside), 100)}, outside the class folders")
    neighbors = [name for name in _folders(root.resolve().parent) if name.lower() in SPLITS["test"]]
    if root.name.lower() in SPLITS["train"] and neighbors:
        clauses.append(
            f"the folder {neighbors[0]!r} beside {root.name!r}; name their parent to use it as the test split"
        )
    return [f"left out: {sentence}" for sentence in clauses]


def _unread(folder: pathlib.Path, grouped: bool) -> list[str]:
    """Return the folders inside that of a class whose files are not read."""
    groups = _folders(folder)
    return [f"{group}/{name}" for group in groups for name in _folders(folder / group)] if grouped else groups


def _remaining_entries(folder: pathlib.Path, names) -> list[str]:
    """Return the entries of a folder other than `names` that do not start with a dot."""
    return sorted({entry.name for entry in os.scandir(folder) if entry.name[0] != "."} - set(names))


def _suffix(name: str) -> str:
    return pathlib.PurePath(name).suffix.lower()


def _folders(folder: pathlib.Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")


def _images(folder: pathlib.Path, grouped: bool = False) -> list[str]:
    """Return the image files in a folder and, if `grouped`, in the folders inside it."""
    if not folder.is_dir():
        return []
    # A link to a missing file is listed too, and reported as unreadable.
    entries = [entry for entry in os.scandir(folder) if not entry.is_dir()]
    names = sorted(entry.name for entry in entries if entry.is_file() or entry.is_symlink())
    paths = [str(folder / name) for name in names if name[0] != "." and _suffix(name) in SUFFIXES]
    return paths + [path for name in _folders(folder) if grouped for path in _images(folder / name)]


def _class_names(folder: pathlib.Path, grouped: bool) -> tuple[str, ...]:
    if not _folders(folder):
        suffixes = collections.Counter(_suffix(name) or "nameless" for name in _remaining_entries(folder, ()))
        listed = ", ".join(f"{count:,} {suffix} file{'s' * (count > 1)}" for suffix, count in suffixes.most_common(4))
        raise InputError(f"{shorten(folder)} has no folder per class, only {shorten(listed, 100) or 'nothing'}.")
    names = check_class_names(_folders(folder), shorten(folder))
    for name in names:
        if not _images(folder / name, grouped):
            suffixes = sorted({_suffix(other) or "folders" for other in _remaining_entries(folder / name, ())})
            hint = " ImageFolder.groups=True reads the images in its folders, as groups."
            raise InputError(
                f"{shorten(folder / name)} holds no image files ({', '.join(SUFFIXES)}), only "
                f"{shorten(', '.join(suffixes) or 'nothing', 60)}.{hint if _images(folder / name, True) else ''}"
            )
    return names
