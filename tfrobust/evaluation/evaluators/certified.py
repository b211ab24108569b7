"""Certified accuracy: the share of examples that no perturbation within epsilon can turn into misclassified ones."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.certification import certify
from tfrobust.common.settings import require_choice, require_least, require_whole
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting, are_correct
from tfrobust.evaluation.evaluators import accuracy
from tfrobust.report.catalog.under_attack import CERTIFIED
from tfrobust.structs import Measurement

# Images on which the layers must reproduce the model's outputs.
_CHECKED = 64
# If nothing is certified, epsilon is halved so often, on so many images, to find out what the bound is worth.
_HALVINGS, _HALVED_IMAGES = 12, 128


@dataclasses.dataclass(frozen=True, kw_only=True)
class CertifiedAccuracy(Evaluator):
    """Certified accuracy, `certified.<norm>_<epsilon>.accuracy`, a lower bound of the accuracy under every attack.

    A sound bound of all margins proves it (`certification.certified_margins`), so no attack within epsilon can leave
    less. It says nothing about the other examples: bounds by propagation are loose on networks that were not trained
    for them. If it certifies no example, the setting `certified_up_to` is the largest of epsilon / 2, / 4, ... at which
    it certifies any.

    The method "complete" decides every image that it can within some seconds: it is certified, or an image of the ball
    breaks it, whose class the model itself confirms. The others are counted in `certified.<norm>_<epsilon>.unknown`.

    The value is None, with the setting `reason`, in another norm than L∞, for a model with layers that bounds cannot
    pass, and for a model whose outputs are not those of its layers. The bound of the whole ball covers threat models
    that restrict the frames of clips.

    Attributes:
        threat: the threat model.
        method: "ibp", "crown_ibp", "crown", "alpha_crown" or "complete", as in `certification.certified_margins`.
        seconds: after which "complete" leaves an image undecided, >= 0.
        first: number of images from the beginning of the test split; None: all.
    """

    threat: ThreatModel
    method: str = "ibp"
    seconds: float = 60.0
    first: int | None = None

    def __post_init__(self):
        require_choice(self.method, "CertifiedAccuracy.method", certify.METHODS)
        require_least(self.seconds, "CertifiedAccuracy.seconds", 0.0)
        if self.first is not None:
            require_whole(self.first, "CertifiedAccuracy.first")

    def run(self, setting: Setting) -> Outcome:
        """Measure the certified accuracy, once for each setting."""
        return setting.cached(f"certificates {self.get_config()}", lambda: self._measured(setting))

    def images(self, setting: Setting) -> np.ndarray:
        """Return which images are certified, bool [n]: none of those that the bound does not cover."""
        certified = np.zeros(len(setting.images), bool)
        for series in self.run(setting).series:
            (digits,) = series.columns["right"]
            certified[: len(digits)] = [digit == "1" for digit in digits]
        return certified

    def _measured(self, setting: Setting) -> Outcome:
        identity, *of_unknown = self.ids()
        settings = {"method": self.method, "norm": self.threat.norm, "epsilon": self.threat.epsilon}
        settings |= self.threat.frame_settings
        if self.first is not None and self.first < len(setting.images):
            settings["sample"] = f"first {self.first}"
        reason = self._reason(setting)
        if reason:
            return Outcome([Measurement(identity, None, settings=settings | {"reason": reason})])
        if of_unknown:
            return self._decided(setting, settings | {"seconds": self.seconds})
        certified = self._certified(setting, slice(self.first), self.threat.epsilon)
        if not certified.any():
            settings["certified_up_to"] = self._worth(setting)
        measurement = accuracy.accuracy(identity, certified, settings, setting.examples)
        return Outcome([measurement], [accuracy.outcomes(identity, certified)])

    def ids(self) -> tuple[str, ...]:
        """Return the id of the certified accuracy, and of a complete method that of the undecided share."""
        ball = {"norm": self.threat.norm, "epsilon": self.threat.epsilon, **self.threat.frame_settings}
        quantities = ("accuracy", "unknown") if self.method == "complete" else ("accuracy",)
        return tuple(CERTIFIED.id(quantity, ball) for quantity in quantities)

    def _decided(self, setting: Setting, settings: dict) -> Outcome:
        """Certify or break each image."""
        decisions = certify.decide(
            setting.predictor.network,
            setting.images[: self.first],
            setting.labels[: self.first],
            epsilon=self.threat.epsilon,
            seconds=self.seconds,
            progress=setting.reporter(f"branch and bound at epsilon {self.threat.epsilon:.6g}"),
        )
        certified = certify.certified(decisions.margins)
        logits = setting.predict(decisions.counterexamples, "predictions of counterexamples")
        unknown = ~certified & are_correct(logits, setting.labels[: self.first])
        identity, of_unknown = self.ids()
        measurements = [
            accuracy.accuracy(name, values, settings, setting.examples)
            for name, values in ((identity, certified), (of_unknown, unknown))
        ]
        return Outcome(measurements, [accuracy.outcomes(identity, certified)])

    def _reason(self, setting: Setting) -> str:
        """Return why there is no bound, or ""."""
        predictor = setting.predictor
        if self.threat.norm != "linf":
            return f"bounds are propagated from a box, which is a ball in L∞ and not in {self.threat.norm}"
        if predictor.network is None:
            return predictor.no_network
        if predictor.network.other_arithmetic:
            return predictor.network.other_arithmetic
        if not certify.reproduces(predictor.network, setting.images[:_CHECKED], setting.clean_logits[:_CHECKED]):
            return f"{predictor.name} does not compute what its layers compute"
        return ""

    def _certified(self, setting: Setting, rows, epsilon: float) -> np.ndarray:
        margins = certify.certified_margins(
            setting.predictor.network,
            setting.images[rows],
            setting.labels[rows],
            epsilon=epsilon,
            method=self.method,
            progress=setting.reporter(f"certificates at epsilon {epsilon:.6g}"),
        )
        return certify.certified(margins)

    def _worth(self, setting: Setting) -> float:
        """Return the largest of epsilon / 2, / 4, ... at which an example is certified; 0 if there is none."""
        epsilons = [self.threat.epsilon / 2**halvings for halvings in range(1, _HALVINGS + 1)]
        rows = setting.subset(_HALVED_IMAGES)
        return next((epsilon for epsilon in epsilons if self._certified(setting, rows, epsilon).any()), 0.0)
