"""Generated images beside the original ones, at a fixed share of each batch."""

import dataclasses

import keras

from tfrobust.common.settings import require_share
from tfrobust.data.mixture import MixedExamples
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class WithGenerated(Source):
    """Another source, of whose training batches a fixed share are generated images.

    int(share x batch) rows of each batch are drawn from the training split of `generated`, with replacement. The others
    are the original examples, shuffled as without generated ones. The number of steps in an epoch is that of the source
    alone, so that an epoch takes a fraction 1 - share of the original examples. Validation and test splits are those of
    the source.

    Args:
        source: the source of the original examples, with its own `validation_size` and `split_seed`.
        generated: the source of the generated ones, such as `Npz` with `test_size`, of the same classes in the same
            order. Names of classes are compared unless one source has only their numbers, and the other has other
            names than these numbers. Only the training split is used.
        share: in (0, 1).

    Source:
        Wang et al. 2023, https://arxiv.org/abs/2302.04638, with 0.7; the sampler of Rebuffi et al. 2021,
        https://arxiv.org/abs/2103.01946.
    """

    source: Source
    generated: Source
    share: float = 0.7

    def load(self) -> Dataset:
        """Load both sources and mix their training examples."""
        if self.validation_size or self.split_seed:
            raise InputError("WithGenerated does not split data; set validation_size and split_seed of its source.")
        if not require_share(self.share, "WithGenerated.share"):
            raise InputError("WithGenerated.share is 0; take the source alone.")
        dataset, generated = self.source.load(), self.generated.load()
        if dataset.is_text:
            raise InputError(f"WithGenerated mixes images, and {dataset.name} is text.")
        if generated.class_count != dataset.class_count:
            raise InputError(
                f"the generated data have {generated.class_count} classes, and {dataset.name} has "
                f"{dataset.class_count}."
            )
        ids, here, there = tuple(map(str, range(dataset.class_count))), dataset.class_names, generated.class_names
        unnamed = ids in (here, there) and set(here) != set(there)
        if here != there and not unnamed:
            number = [class_name == other for class_name, other in zip(here, there, strict=True)].index(False)
            raise InputError(
                f"class {number} is {there[number]!r} in the generated data and {here[number]!r} in {dataset.name}; "
                "both need the same classes in the same order."
            )
        train = MixedExamples(dataset.train, generated.train, self.share)
        name = f"{dataset.name}, {self.share:.6g} of each batch generated"
        return dataclasses.replace(dataset, name=name, train=train)
