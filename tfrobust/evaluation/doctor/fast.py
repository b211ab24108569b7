"""Accuracy under a short ensemble, to which an attack without gradients is added where the checks see a need for it."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.attacks.ensemble import Ensemble
from tfrobust.attacks.shared.attack import Attack
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor import model as doctor_model
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.searching import search
from tfrobust.evaluation.evaluators.adversarial import AttackAccuracy
from tfrobust.losses import classification
from tfrobust.report.catalog.under_attack import MEMBER, PASSES
from tfrobust.structs import Finding, Measurement

# Images whose attack by `probe` decides if `black_box` runs.
_PROBED = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class FastAccuracy(AttackAccuracy):
    """Accuracy under an ensemble of gradient attacks, and under one without gradients where gradients are masked.

    The measurements are those of `AttackAccuracy`. `black_box` joins the ensemble as its last member if the checks
    `gradients`, `ascent`, `deterministic` or `batch_independent` of the doctor do not pass, or if `probe` succeeds on
    one of 64 images: of those that remain after the ensemble, the ones with the smallest margin of the unmodified
    image. The finding `masked_gradients` says if it ran, and why. The passes of the probe are counted.

    It is an upper bound of the accuracy under AutoAttack, which has more attacks; published numbers are AutoAttack's.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> threat = robust.attacks.ThreatModel(epsilon=0.1)
        >>> members = (robust.attacks.PMA(threat, steps=10), robust.attacks.MALT(threat, steps=10))
        >>> square = [robust.attacks.Square(threat, steps=steps) for steps in (20, 50)]
        >>> evaluator = robust.evaluators.FastAccuracy(
        ...     attack=robust.attacks.Ensemble(members), label="fast", probe=square[0], black_box=square[1]
        ... )
        >>> images = np.random.default_rng(0).random((20, 8, 8, 1), "float32")
        >>> predict = lambda images: tf.reduce_mean(images, axis=[1, 2]) * [1.0, -1.0]
        >>> outcome = robust.evaluate(predict, images, np.zeros(20, int), epsilon=0.1, evaluators=(evaluator,))
        >>> outcome["attack.fast_linf_0.1.accuracy"].value
        1.0

    Attributes:
        attack: an ensemble.
        black_box: the attack without gradients.
        probe: a shorter one.
    """

    black_box: Attack
    probe: Attack

    def __post_init__(self):
        super().__post_init__()
        if not self.attack.members:
            raise InputError(f"FastAccuracy.attack is {type(self.attack).__name__}; it must be an Ensemble.")
        for name in ("black_box", "probe"):
            if getattr(self, name).needs_gradient:
                raise InputError(f"FastAccuracy.{name} needs gradients; use an attack that needs none, such as Square.")

    def run(self, setting: Setting) -> Outcome:
        """Run the checks and the ensemble they ask for, and measure the accuracy it leaves."""
        seen, passes = self._reason(setting)
        attack = Ensemble((*self.attack.members, self.black_box)) if seen else self.attack
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(AttackAccuracy)}
        outcome = AttackAccuracy(**(shared | {"attack": attack})).run(setting)
        name, remedy = self.black_box.name, "Read the accuracy as an upper bound, and run gin/eval/autoattack.gin."
        if seen:
            evidence = f"{seen}: {name} ran on the remaining {setting.examples}."
            finding = Finding("masked_gradients", "warn", evidence, remedy)
        else:
            evidence = f"The checks of gradients pass, and {self._words(0, setting)}: {name} was left out."
            finding = Finding("masked_gradients", "pass", evidence)
        facts = {"black_box": f"{name} ran" if seen else f"{name} was left out"}
        measurements = [_told(measured, facts, passes) for measured in outcome.measurements]
        return Outcome(measurements, outcome.series, [*outcome.findings, finding])

    def ids(self) -> tuple[str, ...]:
        """Return the ids of `AttackAccuracy`, and that of the attack without gradients, if it runs."""
        return (*super().ids(), MEMBER.id("accuracy", self._in_ensemble(self.black_box)))

    def without_gradients(self) -> tuple[Evaluator, ...]:
        """Return the accuracy under the attack without gradients alone; see `Evaluator`."""
        settings = {name: getattr(self, name) for name in ("seconds", "limit", "first")}
        return (AttackAccuracy(attack=self.black_box, **settings),)

    def _reason(self, setting: Setting) -> tuple[str, np.ndarray]:
        """Return why the black-box attack runs, or "", and the passes of the probe: the sum over the images, [2]."""
        checks = (
            doctor_model.check_gradients(setting),
            doctor_model.check_ascent(setting, self.attack.threat),
            doctor_model.check_deterministic(setting),
            doctor_model.check_batch_independent(setting),
        )
        failed = [finding.check for finding in checks if finding is not None and finding.verdict != "pass"]
        if failed:
            return f"Checks that do not pass: {', '.join(failed)}", np.zeros(2)
        ((_, positions),) = self.attacks(setting)
        result = search(setting, self.attack, positions, seconds=self.seconds)
        remaining = positions[~result.success]
        logits, labels = setting.clean_logits[remaining], setting.labels[remaining]
        margins = np.asarray(classification.margin(logits, labels)) if len(remaining) else np.zeros(0)
        chosen = np.sort(remaining[np.argsort(-margins, kind="stable")[:_PROBED]])
        probed = search(setting, self.probe, chosen)
        passes = np.zeros(2) if probed.passes is None else probed.passes.sum(axis=0)
        found = int(probed.success.sum())
        return self._words(found, setting).capitalize() if found else "", passes

    def _words(self, found: int, setting: Setting) -> str:
        return (
            f"{self.probe.name} with {self.probe.steps} steps succeeds on {found} of the {_PROBED} remaining "
            f"{setting.examples} with the smallest margins"
        )


def _told(measured: Measurement, facts: dict, passes: np.ndarray) -> Measurement:
    """Return a measurement of the whole ensemble with what was decided, and with the passes of the probe."""
    if "ensemble" in measured.settings or "class" in measured.settings:
        return measured
    counts = zip(PASSES, passes / measured.n, strict=True)
    more = {name: measured.settings[name] + float(count) for name, count in counts if name in measured.settings}
    return dataclasses.replace(measured, settings=measured.settings | facts | more)
