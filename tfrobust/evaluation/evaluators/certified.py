"""Certified accuracy: the share of examples that no perturbation within epsilon can turn into misclassified ones."""

from __future__ import annotations

import dataclasses
from typing import cast

import numpy as np

from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.certification import certify, costs, lipschitz
from tfrobust.certification.network import Network, NoBoundsError
from tfrobust.common.norm_table import NORMS
from tfrobust.common.settings import require_choice, require_least, require_whole
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import chunks
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting, are_correct
from tfrobust.evaluation.evaluators import accuracy
from tfrobust.report.catalog.under_attack import CERTIFIED
from tfrobust.structs import Measurement

# Images that a complete method decides between two times that it stores its verdicts.
_CHUNK = 20
# Images on which the layers must reproduce the model's outputs.
_CHECKED = 64
# If nothing is certified, epsilon is halved so often, on so many images, to find out what the bound is worth.
_HALVINGS, _HALVED_IMAGES = 12, 128
# Chooses a method by its cost; the methods that it chooses from, tightest first; and the fewest images worth one.
TIGHTEST, _CHOICES, _FEWEST = "tightest", ("alpha_crown", "crown", "crown_ibp"), 100


def covers(bound: dict, attack: dict) -> bool:
    """Return True if an attack stays inside the ball of a certificate: |d| in L∞ <= |d| in L2 <= |d| in L1.

    Args:
        bound: norm and epsilon of a certificate. It holds within the ball of whole clips, however many frames change.
        attack: those of an attack, with its `frame_settings`.
    """
    inner, outer = NORMS.get(str(attack.get("norm"))), NORMS[bound["norm"]]
    if inner is None or not inner.dual or (attack.get("per_frame") and bound["norm"] != "linf"):
        return False
    return inner.order <= outer.order and attack["epsilon"] <= bound["epsilon"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CertifiedAccuracy(Evaluator):
    """Certified accuracy, `certified.<norm>_<epsilon>.accuracy`, a lower bound of the accuracy under every attack.

    A sound bound of all margins proves it (`certification.certified_margins`), so no attack within epsilon can leave
    less. It says nothing about the other examples: bounds by propagation are loose on networks that were not trained
    for them. If it certifies no example, the setting `certified_up_to` is the largest of epsilon / 2, / 4, ... at which
    it certifies any.

    The method "complete" decides every image that it can within some seconds: it is certified, or an image of the ball
    breaks it, whose class the model itself confirms. The others are counted in `certified.<norm>_<epsilon>.unknown`.
    Verdicts are stored for 20 images at a time, so an interrupted evaluation resumes, and shards share it.

    The method "tightest" takes the tightest other one that needs at most `products` multiply-adds, counted from the
    shapes of the network, so that the choice is the same on every machine. Intervals come first; the tighter method
    bounds the correctly classified images that they leave open. If these are too many, the measurement covers a sample
    alone, with as many of them as the budget allows but at least 100: images drawn by the seed, in the same order for
    every model, or with `first` the first ones. The settings name the method and the sample.

    The value is None, with the setting `reason`, in L0, for a model with layers that bounds cannot pass, and for one
    whose outputs are not those of its layers. The bound of the whole ball covers threat models that restrict the frames
    of clips, except balls of each frame in L2 and L1.

    Attributes:
        threat: the threat model.
        method: "ibp", "crown_ibp", "crown", "alpha_crown", "complete" or, in L2, "lipschitz", as in
            `certification.certified_margins`; or "tightest".
        seconds: after which "complete" leaves an image undecided, >= 0.
        first: number of images from the beginning of the test split; None: all, or those that `Setting.limit` draws.
        products: budget of "tightest", multiply-adds, >= 0; a second of a processor core makes about 1e9.
    """

    threat: ThreatModel
    method: str = "ibp"
    seconds: float = 60.0
    first: int | None = None
    products: float = 2e10

    def __post_init__(self):
        require_choice(self.method, "CertifiedAccuracy.method", (*certify.METHODS, TIGHTEST))
        if self.method == "lipschitz" and self.threat.norm != "l2":
            raise InputError(f"CertifiedAccuracy.method is 'lipschitz', which bounds in L2, not in {self.threat.norm}.")
        require_least(self.seconds, "CertifiedAccuracy.seconds", 0.0)
        require_least(self.products, "CertifiedAccuracy.products", 0.0)
        if self.first is not None:
            require_whole(self.first, "CertifiedAccuracy.first")

    def run(self, setting: Setting) -> Outcome:
        """Measure the certified accuracy, once for each setting."""
        return self._measured_once(setting)[0]

    def share(self, setting: Setting, shard: chunks.Shard) -> int:
        """Decide and store a shard's images, if the method is complete."""
        if self.method != "complete" or self._reason(setting):
            return 0
        return sum(len(certified) for certified, _ in self._verdicts(setting, shard.select(self._parts(setting))))

    def images(self, setting: Setting) -> np.ndarray:
        """Return which images are certified, bool [n]: none of those that the bound does not cover."""
        certified = np.zeros(len(setting.images), bool)
        certified[self._measured_once(setting)[1]] = True
        return certified

    def _measured_once(self, setting: Setting) -> tuple[Outcome, np.ndarray]:
        """Return the outcome and the positions of the certified images."""
        return setting.cached(f"certificates {self.get_config()}", lambda: self._measured(setting))

    def _measured(self, setting: Setting) -> tuple[Outcome, np.ndarray]:
        identity, *of_unknown = self.ids()
        settings = {"method": self.method, "norm": self.threat.norm, "epsilon": self.threat.epsilon}
        settings |= self.threat.frame_settings
        reason = self._reason(setting)
        if reason:
            return Outcome([Measurement(identity, None, settings=settings | {"reason": reason})]), np.array([], int)
        rows, method, unknown = self._rows(setting), self.method, {}
        if of_unknown:
            settings["seconds"] = self.seconds
            verdicts = self._verdicts(setting, self._parts(setting))
            certified, unknown[of_unknown[0]] = (np.concatenate(parts) for parts in zip(*verdicts, strict=True))
        elif self.method == TIGHTEST:
            order = rows if self.first is not None else setting.order("subset")
            taken = order[np.isin(order, rows)]  # a class-sorted split begins with images of one class
            method, certified = self._tightest(setting, taken)
            ascending = np.argsort(taken[: len(certified)])
            rows, certified = taken[ascending], certified[ascending]
        else:
            certified = self._certified(setting, rows, self.threat.epsilon, method)
        settings["method"] = method
        if not of_unknown and not certified.any():
            settings["certified_up_to"] = self._worth(setting, method)
        from_beginning, images = rows[-1] < len(rows), None
        if from_beginning and len(rows) < len(setting.images):
            settings["sample"] = f"first {len(rows)}"
        elif len(rows) < len(self._rows(setting)):
            settings |= {"sample": f"{len(rows)} drawn", "seed": setting.seed}
            images = np.isin(np.arange(len(setting.images)), rows)
        elif len(rows) < len(setting.images):  # those that attacks draw too
            settings["seed"] = setting.seed
        measurements = [
            accuracy.accuracy(name, values, settings, setting.examples)
            for name, values in ({identity: certified} | unknown).items()
        ]
        # Another seed draws other images, so that outcomes of drawn ones cannot be compared without their positions.
        has_positions = from_beginning or images is not None
        series = [accuracy.outcomes(identity, certified, images)] if has_positions else []
        return Outcome(measurements, series), rows[certified]

    def ids(self) -> tuple[str, ...]:
        """Return the id of the certified accuracy, and of a complete method that of the undecided share."""
        ball = {"norm": self.threat.norm, "epsilon": self.threat.epsilon, **self.threat.frame_settings}
        quantities = ("accuracy", "unknown") if self.method == "complete" else ("accuracy",)
        return tuple(CERTIFIED.id(quantity, ball) for quantity in quantities)

    def _rows(self, setting: Setting) -> np.ndarray:
        return setting.subset(None, first=self.first)

    def _parts(self, setting: Setting) -> list[np.ndarray]:
        """Return the positions of the images in parts that are stored when they are decided."""
        return chunks.split(self._rows(setting), min(_CHUNK, setting.chunk_size))

    def _verdicts(self, setting: Setting, parts: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return which images of each part are certified, and which are undecided, from the store where it has them."""
        threat, store = self.threat, setting.store
        made_by = {"decisions": [threat.norm, threat.epsilon, threat.frame_settings, self.seconds]}
        paths = [store.path_of("complete", made_by, part) if store else None for part in parts]
        shapes = [{"certified": part.shape, "unknown": part.shape} for part in parts]
        stored = [
            store.arrays(path, shape) if store and path else None for path, shape in zip(paths, shapes, strict=True)
        ]
        decided = certify.decide_parts(
            cast(Network, setting.predictor.network),
            [
                (setting.images[part], setting.labels[part])
                for part, arrays in zip(parts, stored, strict=True)
                if not arrays
            ],
            epsilon=threat.epsilon,
            norm=threat.norm,
            seconds=self.seconds,
            progress=setting.reporter(f"branch and bound at epsilon {threat.epsilon:.6g}"),
        )
        verdicts = []
        for part, path, arrays in zip(parts, paths, stored, strict=True):
            if not arrays:
                margins, _, counterexamples = next(decided)
                certified, logits = certify.certified(margins), setting.predict(counterexamples)
                arrays = {"certified": certified, "unknown": ~certified & are_correct(logits, setting.labels[part])}
                if store and path:
                    store.keep(path, **arrays)
            verdicts.append((arrays["certified"], arrays["unknown"]))
        return verdicts

    def _reason(self, setting: Setting) -> str:
        """Return why there is no bound, or ""."""
        predictor = setting.predictor
        if self.threat.norm not in certify.NORMS:
            return f"there are bounds within a norm, and {self.threat.norm} counts changed values"
        if self.threat.per_frame and self.threat.norm != "linf":
            return f"bounds in {self.threat.norm} are those of the ball of a whole clip, not of each frame"
        if predictor.network is None:
            return predictor.no_network
        if predictor.network.other_arithmetic:
            return predictor.network.other_arithmetic
        if not certify.reproduces(predictor.network, setting.images[:_CHECKED], setting.clean_logits[:_CHECKED]):
            return f"{predictor.name} does not compute what its layers compute"
        if self.method == "lipschitz":
            try:
                lipschitz.norms(predictor.network, setting.images.shape[1:])
            except NoBoundsError as error:
                return str(error)
        return ""

    def _tightest(self, setting: Setting, rows: np.ndarray) -> tuple[str, np.ndarray]:
        """Return the method that the budget allows, and which of the first rows that it covers are certified."""
        certified = self._certified(setting, rows, self.threat.epsilon, "ibp")
        undecided = np.flatnonzero(~certified & setting.clean_correct[rows])
        network = cast(Network, setting.predictor.network)  # without one there is a reason
        for method in _CHOICES if len(undecided) else ():
            by_image = costs.products(network, setting.images.shape[1:], method, self.threat.norm)
            count = int(self.products // by_image)
            if count >= min(_FEWEST, len(undecided)):
                if count < len(undecided):
                    certified = certified[: undecided[count]]
                undecided = undecided[:count]
                certified[undecided] = self._certified(setting, rows[undecided], self.threat.epsilon, method)
                return method, certified
        return "ibp", certified

    def _certified(self, setting: Setting, rows: np.ndarray, epsilon: float, method: str) -> np.ndarray:
        margins = certify.certified_margins(
            setting.predictor.network,
            setting.images[rows],
            setting.labels[rows],
            epsilon=epsilon,
            norm=self.threat.norm,
            method=method,
            progress=setting.reporter(f"certificates at epsilon {epsilon:.6g}"),
        )
        return certify.certified(margins)

    def _worth(self, setting: Setting, method: str) -> float:
        """Return the largest of epsilon / 2, / 4, ... at which an example is certified; 0 if there is none."""
        epsilons = [self.threat.epsilon / 2**halvings for halvings in range(1, _HALVINGS + 1)]
        rows = setting.subset(_HALVED_IMAGES)
        return next((epsilon for epsilon in epsilons if self._certified(setting, rows, epsilon, method).any()), 0.0)
