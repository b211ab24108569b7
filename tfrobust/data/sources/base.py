"""What all sources share: a configuration that loads into a `Dataset`, and splits by seed."""

import dataclasses

import numpy as np

from tfrobust.data.spec import Dataset, Examples
from tfrobust.data.splits import resolve_size, stratified
from tfrobust.errors import InputError
from tfrobust.ops.configured import Configured


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source(Configured):
    """Where data come from. Building one touches nothing; `load` reads.

    Args:
        validation_size: examples taken out of the training split for validation, a count or a fraction.
        split_seed: decides every split the source makes itself; apart from the run's seed, so that runs with
            different seeds are judged on the same test images.
    """

    validation_size: int | float = 0
    split_seed: int = 0

    def load(self) -> Dataset:
        """Reads the data and splits them.

        Raises:
            ValueError: unreadable or ill-formed data, or sizes that do not fit.
            FileNotFoundError: data that are not there.
        """
        raise NotImplementedError

    def hold_out(self, examples: Examples, size: int | float, purpose: str) -> tuple[Examples, Examples]:
        """Splits off `size` examples, each class in its share: (rest, taken). `purpose` names the size."""
        count = resolve_size(size, len(examples), f"{purpose}_size")
        rest, taken = stratified(examples.labels, count, self.split_seed, purpose)
        return examples.take(rest), examples.take(taken)

    def assemble(
        self,
        name: str,
        class_names: tuple[str, ...],
        train: Examples,
        test: Examples,
        vocabulary: tuple[str, ...] = (),
    ) -> Dataset:
        """The data set, validation taken out of `train`, which is empty where all is there to be judged on.

        Raises:
            ValueError: no test examples, or a class without training examples.
        """
        if not len(test):
            raise InputError(f"{name}: there are no test examples.")
        train, validation = self.hold_out(train, self.validation_size, "validation")
        missing = np.setdiff1d(np.concatenate([validation.labels, test.labels]), train.labels)
        missing = missing[missing < len(class_names)]  # an id out of range is named by Dataset
        if len(missing) and len(train):
            raise InputError(f"{name}: class {class_names[missing[0]]!r} has no training example.")
        return Dataset(name, class_names, train, validation, test, vocabulary)
