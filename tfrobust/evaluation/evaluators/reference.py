"""Accuracies of another model on the same images, for the opening of a report."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tfrobust.common.kinds import ANY
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.structs import Measurement

_FIELDS = {"value", "n", "low", "high", "settings"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReferenceAccuracies(Evaluator):
    """Accuracies of another model, `reference.<id>`, copied from its report: nothing is computed.

    `train.reference` and `evaluate.reference` make it from the path of a report on the same test images. A report then
    says what the other model does under the same attack.

    Attributes:
        model: name of the other model.
        accuracies: id of an accuracy -> its value, n, low, high and settings.
        undefended: True if the other model was trained without attacks.
    """

    model: str
    accuracies: dict[str, dict]
    undefended: bool = False

    kinds: ClassVar[tuple[str, ...]] = ANY

    def __post_init__(self):
        for identity, fields in self.accuracies.items():
            if not isinstance(fields, dict) or set(fields) != _FIELDS:
                raise InputError(
                    f"ReferenceAccuracies.accuracies has {str(fields)[:80]!r} for {identity[:60]}; give a dict with "
                    f"{', '.join(sorted(_FIELDS))}."
                )

    def run(self, setting: Setting) -> Outcome:
        """Return the accuracies under their ids."""
        named = {"reference": self.model, "undefended": self.undefended}
        return Outcome(
            [
                Measurement(f"reference.{identity}", **{**fields, "settings": fields["settings"] | named})
                for identity, fields in self.accuracies.items()
            ]
        )

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the copied accuracies."""
        return tuple(f"reference.{identity}" for identity in self.accuracies)
