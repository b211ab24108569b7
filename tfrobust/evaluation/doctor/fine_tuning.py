"""Advice on the adversarial fine-tuning of a backbone: before a run trains, and as an evaluation check afterwards."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.evaluation.doctor.limits import FEW_EPOCHS, graded, verdict
from tfrobust.evaluation.engine.base import Setting
from tfrobust.structs import Finding

_SOURCE = "https://arxiv.org/abs/2508.14079"
_NORMAL = {"plain": "trained without attacks", "unknown": "perhaps trained without attacks"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Describe an adversarial fine-tuning before it trains.

    Attributes:
        origin: how the backbone was trained: "adversarial", "plain" (without attacks) or "unknown".
        elsewhere: True if its weights come from another run or library, False if from a first stage of the run.
        frozen: True if the head alone is trained.
        ramped: True if the radius grows.
        epochs: of the training under attack.
        trades: True if the divergence of TRADES is trained.
        batch_normalized: True if the backbone has batch normalization.
    """

    origin: str
    elsewhere: bool
    frozen: bool
    ramped: bool
    epochs: int
    trades: bool
    batch_normalized: bool

    def advice(self) -> list[tuple[str, str]]:
        """Return what to expect and what to do instead, a pair of texts for each rule that applies."""
        pairs = []
        normal = _NORMAL.get(self.origin)
        if normal and self.frozen:
            pairs.append(
                (
                    f"The backbone is frozen and was {normal}: expect about 0 % under attack. 98 % of such linear "
                    f"probes ended below 1 % ({_SOURCE}).",
                    "Train the whole network, as gin/finetune/normal_backbone.gin does, or take a robust backbone.",
                )
            )
        elif normal and not self.ramped and self.epochs <= FEW_EPOCHS:
            pairs.append(
                (
                    f"The radius is whole from the first of {self.epochs} epochs, and the backbone was {normal}: "
                    f"expect failure. 62 to 76 % of such trainings of 5 epochs ended below 1 % ({_SOURCE}).",
                    "Train 20 to 50 epochs, and try a radius that grows (gin/finetune/ramp.gin).",
                )
            )
        if self.elsewhere and self.trades and self.batch_normalized and not self.frozen:
            pairs.append(
                (
                    "The backbone has batch normalization and is trained by TRADES: five such networks ended lower "
                    f"with TRADES than with adversarial cross-entropy ({_SOURCE}).",
                    "Set METHOD = @AdversarialTraining, or take a backbone with layer normalization.",
                )
            )
        return pairs


def check_fine_tuning(setting: Setting, robust: np.ndarray | None) -> Finding | None:
    """Repeat the advice on a fine-tuning that ended with a low accuracy under attack; None for others.

    Args:
        setting: the setting, with what is known of the fine-tuning.
        robust: bool [m], images that remain correctly classified under the doctor's attack, or None.
    """
    if setting.fine_tuning is None or robust is None:
        return None
    pairs = FineTuning(**setting.fine_tuning).advice()
    share = float(robust.mean())
    grade = verdict("fine_tuning", share)
    if not pairs or grade == "pass":
        return None
    expected, remedies = zip(*pairs, strict=True)
    evidence = f"{share:.1%} of {len(robust)} {setting.examples} remain correctly classified under the doctor's attack."
    return graded("fine_tuning", " ".join([evidence, *expected]), " ".join(remedies), grade)
