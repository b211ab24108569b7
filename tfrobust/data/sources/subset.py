"""A subset of the classes of another source."""

import dataclasses

import keras
import numpy as np

from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset, Examples
from tfrobust.errors import InputError


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassSubset(Source):
    """Examples of some classes, in the splits of another source; class ids are renumbered.

    Args:
        source: the source of the examples, with its own `validation_size` and `split_seed`.
        classes: ids in the source, at least two; the first becomes class 0.
    """

    source: Source
    classes: tuple[int, ...]

    def load(self) -> Dataset:
        """Load the source and keep the examples of the classes."""
        if self.validation_size or self.split_seed:
            raise InputError("ClassSubset does not split data; set validation_size and split_seed of its source.")
        dataset = self.source.load()
        count, classes = dataset.class_count, tuple(self.classes)
        if len(classes) < 2 or len(set(classes)) < len(classes) or not set(classes) <= set(range(count)):
            raise InputError(
                f"ClassSubset.classes is {classes}; give two or more different ids from 0 to {count - 1}, which "
                f"{dataset.name} has."
            )
        number = np.full(count, -1, np.int32)
        number[list(classes)] = np.arange(len(classes))
        names = tuple(dataset.class_names[class_id] for class_id in classes)
        before = (dataset.train, dataset.validation, dataset.test)
        splits = [_relabelled_examples(examples, number) for examples in before]
        count = sum(map(len, before)) - sum(map(len, splits))
        note = "; ".join(
            filter(None, [dataset.note, f"left out: {count:,} examples of other classes" if count else ""])
        )
        return Dataset(f"{dataset.name} of {len(classes)} classes", names, *splits, dataset.vocabulary, note)


def _relabelled_examples(examples: Examples, number: np.ndarray) -> Examples:
    """Keep the examples whose class has a new number >= 0, and relabel them."""
    chosen = examples.take(np.flatnonzero(number[examples.labels] >= 0))
    chosen.labels = number[chosen.labels]
    return chosen
