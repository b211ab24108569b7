"""scikit-learn's handwritten digits, the data on which every method runs without network access."""

import dataclasses
import gzip
import importlib.util
import pathlib

import keras
import numpy as np

from tfrobust.data.checks import DataNotFoundError
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import ArrayExamples, Dataset
from tfrobust.data.splits import stratified_folds
from tfrobust.errors import InputError


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Digits(Source):
    """1,797 real 8x8 gray images of ten digits, read from the scikit-learn wheel; pixel = value / 16.

    Args:
        test_size: test images, a count or a fraction; the rest is for training (360 leaves 1,437).
        fold: for cross-fitting: this fold is the test split, and `test_size` is ignored. Over all folds every image is
            tested exactly once. None for no folds.
        folds: number of folds.

    Source:
        Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits (UCI), as scikit-learn ships it.
    """

    test_size: int | float = 360
    fold: int | None = None
    folds: int = 5

    def load(self) -> Dataset:
        """Read the digits and split them."""
        examples = ArrayExamples(*read_digits())
        if self.fold is None:
            train, test = self.hold_out(examples, self.test_size, "test")
        else:
            fold = stratified_folds(examples.labels, self.folds, self.split_seed)
            if not 0 <= self.fold < self.folds:
                raise InputError(f"fold is {self.fold}; it must be in 0..{self.folds - 1}.")
            train = examples.take(np.flatnonzero(fold != self.fold))
            test = examples.take(np.flatnonzero(fold == self.fold))
        return self.assemble("digits", tuple(str(digit) for digit in range(10)), train, test)


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Read images float32 [1797, 8, 8, 1] in [0, 1] and labels int32 [1797].

    The file is read by its path: importing `sklearn.datasets` takes two seconds, reading the file 0.02.

    Raises:
        FileNotFoundError: scikit-learn is not installed.
    """
    package = importlib.util.find_spec("sklearn")
    folders = package.submodule_search_locations if package is not None else []
    files = [pathlib.Path(folder, "datasets", "data", "digits.csv.gz") for folder in folders]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise DataNotFoundError("the digits are part of scikit-learn, which is not installed: pip install scikit-learn")
    with gzip.open(file, "rb") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.float32)
    return table[:, :-1].reshape(-1, 8, 8, 1) / 16, table[:, -1].astype(np.int32)
