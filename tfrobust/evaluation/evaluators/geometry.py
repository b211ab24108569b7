"""Geometry of clean and adversarial features: divergences and a t-SNE map."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.square import Square
from tfrobust.attacks.transfer import Transfer
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting, are_correct
from tfrobust.evaluation.engine.searching import check_last_points, last_points, perturbed
from tfrobust.evaluation.evaluators.adversarial import check_epsilons, curve_epsilons, last_point_settings
from tfrobust.ops.divergences import Divergences, batched_divergences
from tfrobust.ops.probabilities import entropy_from_logits
from tfrobust.report.catalog.features import DIVERGENCES, GEOMETRY
from tfrobust.structs import Finding, Measurement, Series

# Features of this size are scaled before t-SNE, which squares them in float32.
_LARGEST_FEATURE = 1e15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Divergence(Evaluator):
    """Divergences `geometry.r_div`, `.intra_class_divergence`, `.inter_class_divergence`, and their curve over epsilon.

    The curve `geometry.divergence_curve` also has the accuracy on the same adversarial images whose features it
    measures (the attack's last iterates; Bui et al. 2021, Figs. 2c and 4). A predictor without an embedding is not
    measured, and a finding says so.

    Attributes:
        attack: an attack that maximizes the loss, such as PGD, or random noise; the measurements are at its epsilon.
        epsilons: values of the curve; None: multiples of the attack's from 0 to 2.
        batch_size: images per batch of pairs; the paper's 128.
        limit: maximum number of images, drawn by the seed; None: all.
    """

    attack: Attack
    epsilons: tuple[float, ...] | None = None
    batch_size: int = 128
    limit: int | None = 1000

    uses_embedding: ClassVar[bool] = True

    def __post_init__(self):
        check_epsilons("Divergence", self.epsilons)
        _check_attack("Divergence", self.attack)
        if self.batch_size < 2:
            raise InputError(f"Divergence.batch_size is {self.batch_size}; pairs need at least 2.")

    def run(self, setting: Setting) -> Outcome:
        """Measure the divergences and their curve."""
        if setting.predictor.embedding is None:
            return no_embedding(setting, "no divergences, no feature map")
        # Data sets are often sorted by class, but each batch needs several classes.
        order = setting.order("divergence")
        positions = order[np.isin(order, setting.subset(self.limit))]
        clean = setting.embed(setting.images[positions])
        sizes = curve_epsilons(self.attack, self.epsilons)
        trained = float(self.attack.threat.epsilon)
        results = {epsilon: self._at(setting, epsilon, positions, clean) for epsilon in {*sizes, trained}}
        settings = last_point_settings(self.attack, setting) | {
            "batch_size": self.batch_size,
            "distance": "cosine",
        }
        units = ("ratio", "cosine distance", "cosine distance")
        measurements = [
            Measurement(GEOMETRY.id(name), finite(value), unit, results[trained][0].anchors, settings=settings)
            for name, value, unit in zip(DIVERGENCES, results[trained][0], units, strict=False)
        ]
        columns = {"epsilon": list(sizes)}
        for column, name in (("r_div", "r_div"), ("intra", "intra"), ("inter", "inter")):
            columns[column] = [finite(getattr(results[epsilon][0], name)) for epsilon in sizes]
        columns["accuracy"] = [results[epsilon][1] for epsilon in sizes]
        return Outcome(measurements, [Series("geometry.divergence_curve", "Divergence against epsilon", columns)])

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the measurements."""
        return tuple(map(GEOMETRY.id, DIVERGENCES))

    def _at(self, setting: Setting, epsilon: float, positions, clean) -> tuple[Divergences, float]:
        if epsilon == 0:
            return self._divergences(setting, positions, clean, clean), float(setting.clean_correct[positions].mean())
        images, logits = self._attacked(setting, epsilon, positions)
        correct = are_correct(logits, setting.labels[positions])
        return self._divergences(setting, positions, clean, setting.embed(images)), float(correct.mean())

    def _attacked(self, setting: Setting, epsilon: float, positions) -> tuple[np.ndarray, np.ndarray]:
        """Return adversarial images of the images at `positions`, and their logits."""
        if epsilon != self.attack.threat.epsilon:
            images = perturbed(setting, self.attack.with_epsilon(epsilon), positions)
            return images, setting.predict(images)
        points = last_points(setting, self.attack, self.limit)  # which other evaluators use, too
        rows = np.searchsorted(points.positions, positions)
        return points.images[rows], points.logits[rows]

    def _divergences(self, setting, positions, clean, adversarial) -> Divergences:
        return batched_divergences(clean, adversarial, setting.labels[positions], self.batch_size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureMap(Evaluator):
    """Feature map: t-SNE of clean and adversarial features, and entropies, the series `geometry.feature_map`.

    Columns x, y (no unit), label, adversarial (0 or 1), entropy in nats (Bui et al. 2021, Fig. 6). Images whose
    features or logits are not all finite are left out.

    Attributes:
        attack: as in `Divergence`; None shows clean images alone, whatever `adversarial` is.
        natural: number of clean images, drawn by the seed.
        adversarial: number of them that are also shown with their adversarial image; at most `natural`.
        perplexity: of t-SNE, reduced if there are fewer than three times as many points.
    """

    attack: Attack | None = None
    natural: int = 200
    adversarial: int = 100
    perplexity: float = 30.0

    uses_embedding: ClassVar[bool] = True

    def __post_init__(self):
        too_many = self.attack is not None and not 0 <= self.adversarial <= self.natural
        if self.natural < 4 or too_many:
            raise InputError(
                f"FeatureMap shows {self.natural} natural and {self.adversarial} adversarial images; at least "
                "4 natural ones are needed, and no more adversaries than those."
            )
        if self.attack is not None:
            _check_attack("FeatureMap", self.attack)

    def run(self, setting: Setting) -> Outcome:
        """Compute the map."""
        if setting.predictor.embedding is None:
            return no_embedding(setting, "no divergences, no feature map")
        positions = setting.order("feature map")[: self.natural]
        if len(positions) < 4:
            return Outcome()
        chosen = positions[: self.adversarial if self.attack is not None else 0]
        images = setting.images[positions]
        if len(chosen):
            images = np.concatenate([images, perturbed(setting, self.attack, chosen)])
        features, logits = setting.embed(images), setting.predict(images)
        shown = np.isfinite(features).all(axis=-1) & np.isfinite(logits).all(axis=-1)
        if shown.sum() < 4:
            return Outcome()
        places = _tsne(features[shown], self.perplexity, setting.seed)
        columns = {
            "x": places[:, 0].tolist(),
            "y": places[:, 1].tolist(),
            "label": np.concatenate([setting.labels[positions], setting.labels[chosen]])[shown].tolist(),
            "adversarial": np.repeat([0, 1], [len(positions), len(chosen)])[shown].tolist(),
            "entropy": entropy_from_logits(logits[shown]).numpy().tolist(),
        }
        title = f"Features of {setting.examples} and adversaries"
        return Outcome(series=[Series("geometry.feature_map", title, columns)])

    def ids(self) -> tuple[str, ...]:
        """Return the id of the series."""
        return ("geometry.feature_map",)


def _check_attack(owner: str, attack: Attack) -> None:
    """Raise ValueError for an attack of this library that does not change every image, as random noise does."""
    is_search = isinstance(attack, (Square, Transfer)) or attack.members or attack.minimal
    if attack.needs_gradient or is_search:
        check_last_points(owner, attack)


def _tsne(embeddings: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    # Imported here because they take a second and only this plot needs them; threadpoolctl is a dependency of
    # scikit-learn.
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(perplexity, (len(embeddings) - 1) / 3)
    largest = np.abs(embeddings).max()
    if largest > _LARGEST_FEATURE:  # whose squares overflow; the map does not depend on the scale
        embeddings = embeddings / largest
    # A collapsed model (all features equal) has no variance for the PCA initialization.
    init = "pca" if embeddings.shape[1] > 1 and np.ptp(embeddings, axis=0).max() > 0 else "random"
    # With so few points, threads wait for each other longer than they compute (4 times slower on 2 cores).
    with threadpool_limits(1):
        return TSNE(2, perplexity=perplexity, init=init, random_state=seed).fit_transform(embeddings)


def no_embedding(setting: Setting, missing: str) -> Outcome:
    """Return the finding for a predictor whose features are unknown, which names what is missing."""
    return Outcome(
        findings=[
            Finding(
                "embedding",
                "warn",
                f"{setting.predictor.name} has no output 'embedding': {missing}.",
                "Export the penultimate features as an output named 'embedding'.",
            )
        ]
    )


def finite(value) -> float | None:
    """Return the number, or None for NaN and infinity."""
    return float(value) if np.isfinite(value) else None
