"""Base class of sources: a configuration that loads a `Dataset`, and splits it by a seed."""

import dataclasses

import numpy as np

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_whole
from tfrobust.data.spec import Dataset, Examples
from tfrobust.data.splits import resolve_size, stratified
from tfrobust.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source(Configured):
    """Location and configuration of data. Creating the object reads no files; `load` does.

    Example:
        >>> from tfrobust import keras as robust
        >>> source = robust.data.Digits(validation_size=160)
        >>> dataset = source.load()
        >>> isinstance(source, robust.data.Source), len(dataset.validation), len(dataset.class_names)
        (True, 160, 10)

    Args:
        validation_size: examples split off the training split for validation, a count or a fraction.
        split_seed: seed of all splits that the source makes. It is separate from the run's seed, so that runs with
            different seeds are evaluated on the same test images.

    Raises:
        ValueError: a seed that is no integer >= 0.
    """

    validation_size: int | float = 0
    split_seed: int = 0

    def __post_init__(self):
        require_whole(self.split_seed, f"{type(self).__name__}.split_seed", 0)

    def load(self) -> Dataset:
        """Read the data and split them.

        Raises:
            ValueError: unreadable or ill-formed data, or sizes that do not fit.
            FileNotFoundError: missing data.
        """
        raise NotImplementedError

    def hold_out(self, examples: Examples, size: int | float, purpose: str) -> tuple[Examples, Examples]:
        """Split off `size` examples, with each class in proportion.

        Args:
            examples: the examples to split.
            size: a count or a fraction.
            purpose: "validation" or "test", which names the size in messages and keys the random split.

        Returns:
            (rest, taken).
        """
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
        """Create the data set, with validation split off `train`.

        Args:
            name: name of the data set.
            class_names: one per class id.
            train: training examples; empty if all examples are used for testing.
            test: test examples.
            vocabulary: for text, the word of each token id.

        Raises:
            ValueError: no test examples, or a class without training examples.
        """
        if not len(test):
            raise InputError(f"{name}: there are no test examples.")
        train, validation = self.hold_out(train, self.validation_size, "validation")
        missing = np.setdiff1d(np.concatenate([validation.labels, test.labels]), train.labels)
        missing = missing[missing < len(class_names)]  # Dataset reports an id out of range
        if len(missing) and len(train):
            raise InputError(f"{name}: class {class_names[missing[0]]!r} has no training example.")
        return Dataset(name, class_names, train, validation, test, vocabulary)
