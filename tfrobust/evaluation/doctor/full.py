"""Expensive evaluation checks of the search effort: each runs attacks of its own."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import keras
import numpy as np
import tensorflow as tf

from tfrobust.attacks.ensemble import Ensemble
from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.configured import constructor_arguments
from tfrobust.common.kinds import CLIPS, kind_of
from tfrobust.common.norm_table import NORMS
from tfrobust.common.settings import require_least
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor import model as doctor_model
from tfrobust.evaluation.doctor.limits import LIMITS, graded, verdict
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting, are_correct
from tfrobust.evaluation.engine.loading import from_keras
from tfrobust.evaluation.engine.searching import perturbed, search
from tfrobust.structs import Finding

_PARTNERS = 4
_TRANSFER_STEPS = 20
_SURROGATE_BATCH = 128
_LARGEST_SIDE = 32  # of the surrogate's images, in pixels
_LEARNING_RATE = 2e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class FullDoctor(Evaluator):
    """Expensive evaluation checks: is there an attack that succeeds on clearly more images?

    | finding | fails or warns where |
    |---|---|
    | `large_epsilon` | the attack leaves accuracy at a radius at which every image can become gray |
    | `more_effort` | several times the steps and restarts succeed on images on which the attack fails |
    | `black_box` | an attack without gradients succeeds on images on which the white-box attacks fail |
    | `transfer` | so does one that attacks an undefended model of its own instead |

    Without input gradients, `more_effort` is left out, and the black-box attack is examined by the other checks.

    Attributes:
        attack: the white-box attack, as strong as the evaluation's.
        black_box: an attack that needs no gradients.
        limit: maximum number of images, drawn by the seed.
        more: factor of the steps, and of the restarts, in `more_effort`.
        surrogate_steps: training steps of the undefended model.
    """

    attack: Attack
    black_box: Attack
    limit: int = 500
    more: int = 4
    surrogate_steps: int = 400

    uses_training: ClassVar[bool] = True
    uses_attacks: ClassVar[bool] = True

    def __post_init__(self):
        for name, least in (("limit", 1), ("more", 2), ("surrogate_steps", 1)):
            require_least(getattr(self, name), f"FullDoctor.{name}", least)
        if self.attack.minimal or self.black_box.minimal:
            raise InputError("FullDoctor compares attacks at one epsilon; use attacks such as PGD and Square.")
        if self.attack.threat.variant:
            raise InputError(
                "FullDoctor compares attacks on whole clips; leave per_frame and max_frames to the others."
            )
        if self.black_box.needs_gradient:
            raise InputError("FullDoctor.black_box needs gradients; use an attack that needs none, such as Square.")

    def run(self, setting: Setting) -> Outcome:
        """Run all checks that apply."""
        positions = setting.subset(self.limit)
        chosen = [attack for attack, _ in self.attacks(setting)]
        robust = [~search(setting, attack, positions).success for attack in chosen]
        if self._climbs(setting):
            plain, longer, blind, large = robust
            white = plain & longer
            findings = [
                check_large(setting, chosen[3], positions, large),
                check_effort(chosen[:2], plain, longer, setting.examples),
                check_black_box(self.black_box, white, blind, setting.examples),
            ]
        else:
            white, large = robust
            findings = [
                check_large(setting, chosen[1], positions, large),
                only_black_box(self.black_box, white, setting.examples),
            ]
        findings.append(check_transfer(setting, self.attack, positions, white, self.surrogate_steps))
        return Outcome(findings=findings)

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        """Return the attacks of the checks, on the images drawn by the seed."""
        if self._climbs(setting):
            attacks = (self.attack, stronger(self.attack, self.more), self.black_box, enlarged(self.attack, setting))
        else:
            attacks = (self.black_box, enlarged(self.black_box, setting))
        positions = setting.subset(self.limit)
        return tuple((attack, positions) for attack in attacks)

    def _climbs(self, setting: Setting) -> bool:
        return not isinstance(doctor_model.gradients(setting), str)


def stronger(attack: Attack, more: int) -> Attack:
    """Return the attack with `more` times its steps and, if it starts at random, its restarts; so of each member."""
    if attack.members:
        return Ensemble(tuple(stronger(member, more) for member in attack.members))
    names = constructor_arguments(type(attack))
    arguments = {name: getattr(attack, name) for name in names}
    if "steps" not in names:  # one step by construction
        return PGD(threat=attack.threat, steps=10 * more, restarts=more)
    arguments["steps"] *= more
    if "restarts" in names and arguments.get("random_start") != "none":
        arguments["restarts"] *= more
    return type(attack)(**arguments)


def enlarged(attack: Attack, setting: Setting) -> Attack:
    """Return the attack with the radius at which every image can become gray: half the box's diameter in the norm."""
    low, high = attack.threat.bounds
    values = int(np.prod(setting.images.shape[1:]))
    return attack.with_epsilon(NORMS[attack.threat.norm].center(values) * (high - low))


def check_large(setting: Setting, attack: Attack, positions: np.ndarray, robust: np.ndarray) -> Finding:
    """Check that an attack with such a large radius succeeds at least as often as simple points within it."""
    remaining, trivial = float(robust.mean()), float(_plainly_robust(setting, attack, positions).mean())
    evidence = (
        f"Within {attack.threat.norm} {attack.threat.epsilon:.4g}, where every {setting.example} can become gray, "
        f"{attack.name} leaves {remaining:.1%} of {len(robust)} {setting.examples}; gray itself and a few mixtures "
        f"with other {setting.examples} leave {trivial:.1%}."
    )
    remedy = "The attack does not work: gradients are masked, or the steps too few. Do not rely on its numbers."
    return graded("large_epsilon", evidence, remedy, LIMITS["large_epsilon"].above(trivial).verdict(remaining))


def check_effort(attacks: list[Attack], plain: np.ndarray, longer: np.ndarray, examples: str = "images") -> Finding:
    """Check that a longer search with more restarts succeeds on few further images."""
    once, more = map(_effort, attacks)
    evidence = f"{more} succeed on {_only(plain, longer):.1%} of {len(plain)} {examples} on which {once} fail."
    remedy = "The search has not converged: use more steps and restarts, or gin/eval/autoattack.gin."
    return _gain("more_effort", plain, longer, evidence, remedy)


def _effort(attack: Attack) -> str:
    if not attack.members:
        return f"{attack.steps} steps (restarts: {getattr(attack, 'restarts', 1)})"
    return ", ".join(f"{member.name} by {_effort(member)}" for member in attack.members)


def check_black_box(attack: Attack, white: np.ndarray, blind: np.ndarray, examples: str = "images") -> Finding:
    """Check that an attack without gradients succeeds on few images on which attacks with gradients fail."""
    evidence = (
        f"{attack.name}, which uses no gradients, succeeds on {_only(white, blind):.1%} of {len(white)} {examples} "
        f"on which the white-box attacks fail; the accuracy under it alone is {blind.mean():.1%}, under them "
        f"{white.mean():.1%}."
    )
    remedy = "Gradients are masked: remove what masks them, or count only what all attacks together leave."
    return _gain("black_box", white, blind, evidence, remedy)


def only_black_box(attack: Attack, blind: np.ndarray, examples: str = "images") -> Finding:
    """Return the finding for models on which no white-box attack can run."""
    return Finding(
        "black_box",
        "warn",
        f"There are no input gradients; {attack.name}, which needs none, leaves an accuracy of {blind.mean():.1%} on "
        f"{len(blind)} {examples}.",
        "Read this as an upper bound: an attack on a differentiable copy of the model may find much more.",
    )


def check_transfer(
    setting: Setting, attack: Attack, positions: np.ndarray, white: np.ndarray, surrogate_steps: int
) -> Finding:
    """Check that adversarial images of an undefended surrogate succeed on few images on which direct attacks fail."""
    other = train_surrogate(setting, surrogate_steps)
    climb = PGD(threat=attack.threat, steps=_TRANSFER_STEPS)
    images = perturbed(other, climb, positions)
    labels = setting.labels[positions]
    moved = are_correct(setting.predict(images), labels)
    fooled = np.mean(~are_correct(other.predict(images), labels))
    evidence = (
        f"Adversarial {setting.examples} of an undefended network (clean accuracy {other.clean_correct.mean():.1%}, "
        f"{fooled:.1%} misclassified by itself) succeed on {_only(white, moved):.1%} of {len(white)} "
        f"{setting.examples} on which attacks on "
        f"this model fail; the accuracy under them alone is {moved.mean():.1%}."
    )
    remedy = "Gradients are masked: remove what masks them, or count only what all attacks together leave."
    return _gain("transfer", white, moved, evidence, remedy)


def _gain(check: str, base: np.ndarray, other: np.ndarray, evidence: str, remedy: str) -> Finding:
    return graded(check, evidence, remedy, verdict(check, _only(base, other), int(np.sum(base & ~other))))


def _only(base: np.ndarray, other: np.ndarray) -> float:
    """Return the share of images on which only the second attack succeeds."""
    return float(np.mean(base & ~other))


def _plainly_robust(setting: Setting, attack: Attack, positions: np.ndarray) -> np.ndarray:
    """Return images that resist gray and the points nearest to some other images, without any search; bool [m]."""
    images, labels = setting.images[positions], setting.labels[positions]
    gray = np.full_like(images, np.mean(attack.threat.bounds))
    turns = [np.roll(images, 1 + turn * max(1, len(images) // (_PARTNERS + 1)), axis=0) for turn in range(_PARTNERS)]
    robust = setting.clean_correct[positions]
    for candidate in (gray, *turns):
        points = attack.threat.project(tf.constant(images), tf.constant(candidate))
        robust = robust & are_correct(setting.predict(np.asarray(points)), labels)
    return robust


# --------------------------------------------------------------------------- the undefended network


def train_surrogate(setting: Setting, steps: int) -> Setting:
    """Train a convolutional network in seconds and return it in a setting with the same test images.

    It is trained on the training images if they are known. Otherwise it is trained on the test images and the classes
    that the evaluated model predicts, as an attacker with query access alone would do.

    Args:
        setting: images, labels, seed.
        steps: steps of Adam, of 128 images each.

    Returns:
        The same setting with the network as its predictor.
    """
    return setting.cached(f"surrogate {steps}", lambda: _train_surrogate(setting, steps))


def _train_surrogate(setting: Setting, steps: int) -> Setting:
    if setting.train_images is not None and len(setting.train_images):
        images, labels = np.asarray(setting.train_images), np.asarray(setting.train_labels)
    else:
        images, labels = setting.images, setting.clean_logits.argmax(axis=-1)
    model = surrogate_network(images.shape[1:], setting.predictor.class_count, setting.seed)
    optimizer = keras.optimizers.Adam(_LEARNING_RATE)
    optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step(batch, targets):
        with tf.GradientTape() as tape:
            logits = model(batch, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    generator = np.random.default_rng(setting.seed)
    size, report = min(_SURROGATE_BATCH, len(images)), setting.reporter("undefended network")
    for done in range(steps):
        rows = generator.integers(0, len(images), size)
        step(tf.constant(images[rows], tf.float32), tf.constant(labels[rows], tf.int32))
        if report is not None:
            report(done + 1, steps)
    return dataclasses.replace(setting, predictor=from_keras(model), store=None)


def surrogate_network(image_shape: tuple[int, ...], class_count: int, seed: int) -> keras.Model:
    """Return two convolutions and two dense layers, float32; larger images are averaged down to about 32 pixels.

    The frames of clips are channels.
    """
    layers, count = [keras.Input(image_shape)], iter(range(4))
    if kind_of(image_shape) is CLIPS:
        frames, *image_shape, channels = image_shape
        layers += [keras.layers.Permute((2, 3, 1, 4)), keras.layers.Reshape((*image_shape, frames * channels))]

    def layer(kind, *arguments, **options):
        initializer = keras.initializers.HeNormal(seed=seed * 4 + next(count))
        return kind(*arguments, kernel_initializer=initializer, dtype="float32", **options)

    shrink = max(1, max(image_shape[:2]) // _LARGEST_SIDE)
    if shrink > 1:
        layers.append(
            keras.layers.AveragePooling2D(shrink, padding="same", dtype="float32", data_format="channels_last")
        )
    layers += [
        keras.layers.Rescaling(2.0, offset=-1.0, dtype="float32"),
        layer(keras.layers.Conv2D, 32, 3, padding="same", activation="relu", data_format="channels_last"),
        layer(keras.layers.Conv2D, 64, 3, strides=2, padding="same", activation="relu", data_format="channels_last"),
        keras.layers.Flatten(dtype="float32", data_format="channels_last"),
        layer(keras.layers.Dense, 128, activation="relu"),
        layer(keras.layers.Dense, class_count),
    ]
    return keras.Sequential(layers)
