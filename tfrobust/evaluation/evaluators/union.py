"""Accuracy over several norms: the images that are correct under the attacks of every threat model."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.settings import require_least
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.searching import search
from tfrobust.evaluation.evaluators import accuracy
from tfrobust.evaluation.evaluators.adversarial import effort_of, succeeded
from tfrobust.report.catalog.union import UNION


@dataclasses.dataclass(frozen=True, kw_only=True)
class Union(Evaluator):
    """Accuracy under the union of threat models, `union.<label>_<norm>_<epsilon>_<norm>_<epsilon>....accuracy`.

    An image counts if it is correct under every attack. The number is an upper bound as each of its parts is, and at
    most the smallest of them. All attacks take the same images, so that none is missing in one threat model. What
    `AttackAccuracy` or an earlier run has searched on these images is not searched again; if they took others (another
    `limit` or `first`), the union searches its own.

    Attributes:
        members: attacks, at least one in each of two or more threat models.
        label: the attacks' part of the id; None: their names, joined by "_".
        limit: maximum number of images, drawn by the seed; None: all.
        first: number of images from the beginning of the test split, in place of `limit`; None: all.

    Raises:
        InputError: fewer than two threat models, or a number that is not at least 1.
    """

    members: tuple[Attack, ...]
    label: str | None = None
    limit: int | None = None
    first: int | None = None

    def __post_init__(self):
        object.__setattr__(self, "members", tuple(self.members))
        if len(self._threats()) < 2:
            raise InputError(
                "Union.members needs attacks in two or more threat models, such as one each in linf, l2 and l1; for "
                "several attacks in one, use an Ensemble."
            )
        for name in ("limit", "first"):
            if getattr(self, name) is not None:
                require_least(getattr(self, name), f"Union.{name}", 1)
        if self.limit is not None and self.first is not None:
            raise InputError("Union has limit and first; images are drawn, or taken from the beginning.")

    def run(self, setting: Setting) -> Outcome:
        """Run the attacks and count the images that are correct under all of them."""
        robust = [~succeeded(attack, search(setting, attack, positions)) for attack, positions in self.attacks(setting)]
        correct = np.logical_and.reduce(robust)
        settings = self._id_settings() | {
            "attacks": [attack.name for attack in self.members],
            "member_efforts": [
                f"{attack.threat.budget}: {effort_of(part)}"
                for attack in self.members
                for part in attack.members or (attack,)
            ],
            "seed": setting.seed,
            "batch_norm": "inference",
            **setting.vote_settings,
        }
        if len(correct) < len(setting.images) and self.first is not None:
            settings["sample"] = f"first {len(correct)}"
        (identity,) = self.ids()
        series = [accuracy.outcomes(identity, correct)]
        drawn = self.first is None and len(correct) < len(setting.images)
        return Outcome([accuracy.accuracy(identity, correct, settings, setting.examples)], [] if drawn else series)

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        """Return the attacks, all on the same images."""
        positions = setting.subset(self.limit, first=self.first)
        return tuple((attack, positions) for attack in self.members)

    def without_gradients(self) -> tuple[Evaluator, ...]:
        """Return the union itself if no attack needs gradients, else none."""
        return () if any(attack.needs_gradient for attack in self.members) else (self,)

    def ids(self) -> tuple[str, ...]:
        """Return the id of the accuracy."""
        return (UNION.id("accuracy", self._id_settings()),)

    def _threats(self) -> list[dict]:
        """Return the settings of the distinct threat models, in the order of the attacks."""
        threats = dict.fromkeys(attack.threat for attack in self.members)
        return [{"norm": threat.norm, "epsilon": threat.epsilon, **threat.frame_settings} for threat in threats]

    def _id_settings(self) -> dict:
        label = self.label or "_".join(dict.fromkeys(attack.name for attack in self.members))
        return {"label": label, "threats": self._threats()}
