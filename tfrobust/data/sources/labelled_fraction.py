"""Few labels: a fraction of another source's training examples."""

import dataclasses

import keras
import numpy as np

from tfrobust.common.settings import require_least
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset
from tfrobust.data.splits import permutation, stratified
from tfrobust.errors import InputError

_PURPOSE = "labelled fraction"


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledFraction(Source):
    """Stratified fraction of the training examples of another source; validation and test splits are unchanged.

    round(fraction x n) of n examples are kept, with each class in proportion up to one example. A class that would have
    none keeps one. As data of the second stage (`train.data`), with all examples in the first (`Pretraining.data`),
    this is learning from few labels.

    Args:
        source: the source of the examples, with its own `validation_size` and `split_seed`.
        fraction: in (0, 1].
        seed: seed of the selection, >= 0; separate from the seeds of the split and of the run.
    """

    source: Source
    fraction: float
    seed: int = 0

    def load(self) -> Dataset:
        """Load the source and keep the fraction of its training examples."""
        if self.validation_size or self.split_seed:
            raise InputError("LabelledFraction does not split data; set validation_size and split_seed of its source.")
        if not 0 < self.fraction <= 1:
            raise InputError(f"LabelledFraction.fraction is {self.fraction}; it must be in (0, 1].")
        require_least(self.seed, "LabelledFraction.seed", 0)
        dataset = self.source.load()
        train = dataset.train.take(self._positions(dataset.train.labels))
        return dataclasses.replace(dataset, name=f"{dataset.name}, {self.fraction:.6g} of the labels", train=train)

    def _positions(self, labels: np.ndarray) -> np.ndarray:
        """Return the positions that are kept, int64, ascending."""
        _, taken = stratified(labels, round(self.fraction * len(labels)), self.seed, _PURPOSE)
        order = permutation(len(labels), self.seed, _PURPOSE)
        missing = np.setdiff1d(labels, labels[taken])
        return np.sort([*taken, *(order[labels[order] == label][0] for label in missing)]).astype(np.int64)
