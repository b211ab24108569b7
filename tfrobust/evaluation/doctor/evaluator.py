"""Evaluation checks (the doctor): inexpensive tests of whether the other numbers are credible."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.transfer import Transfer
from tfrobust.common.kinds import ANY
from tfrobust.common.norm_table import NORMS
from tfrobust.common.settings import require_least
from tfrobust.data import summary
from tfrobust.data.spec import Examples
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor import model as doctor_model
from tfrobust.evaluation.doctor import pixels as doctor_pixels
from tfrobust.evaluation.doctor.overfitting import check_overfitting
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting, are_correct
from tfrobust.evaluation.engine.searching import attack_result, search
from tfrobust.structs import Finding

# With fewer steps an attack is not a search.
_FEW_STEPS = 10
_LOST = 0.1
# Shares of the images on which only one of two gradients succeeds: above these `surrogate` warns or fails. A transfer
# attack tries fewer points: with equal weights, up to 4 % are found by the model's own gradients only.
_SOME, _MUCH = 0.06, 0.12
_GRAY_LEVEL = 1 / 255
_IMAGES_FOR_FIVE_POINTS = int(np.ceil((statistics.Z / 0.1) ** 2))
# Root mean square differences of pixels up to which images count as the same picture, re-encoded or with shifted
# brightness.
_NEAR, _NEAR_OF_CONTRAST = 4 / 255, 0.1
_SMALL_SIDE = 8
_TEST_ROWS = 256
# First-stage images, as float32: the bytes that are checked in total, spread evenly, and the bytes held at a time.
_FETCHED_BYTES, _BLOCK_BYTES = 2**30, 2**26
# Bounds for about a second of computation.
_SEPARATION_IMAGES, _SEPARATION_VALUES = 500, 1e9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor(Evaluator):
    """Evaluation checks: findings on model, data and attacks (pass, warn or fail), with evidence and remedy.

    | finding | fails or warns where |
    |---|---|
    | `logits` | the outputs are probabilities (`warn` if none is close to 1), or may be (`warn`) |
    | `deterministic` | equal images get different outputs |
    | `batch_independent` | an output depends on the other images of the batch |
    | `clean_accuracy` | no better than predicting the most frequent class |
    | `pixel_range` | another range of pixels, such as [0, 255], suits the model clearly better than [0, 1] |
    | `gradients` | input gradients are missing, 0, vanishing, exploding, not finite, or stochastic |
    | `ascent` | a small step up the gradient increases the loss no more than a step in a random direction |
    | `monotone` | a larger epsilon leaves more accuracy |
    | `repredict` | saved adversarial images are not misclassified again, or lie outside the threat set |
    | `rounding` | they are correctly classified when rounded to 8 bits |
    | `surrogate` | the gradients of a surrogate (a LiteRT file's float model) succeed on other images than its own |
    | `attack_strength` | the evaluation searches less than the training did, or within another radius, norm or box |
    | `overfitting` | FGSM leaves much more accuracy than PGD at the epsilon of a training by single steps |
    | `epsilon_units` | epsilon is not a sensible radius in pixels of [0, 1] for these images |
    | `test_size` | too few test images for the claim |
    | `classes` | classes without test images or training images (only named if there are any) |
    | `duplicates` | test images are among the training images of either stage (if those are known) |
    | `selection` | the weights were selected on the test split |

    Without input gradients, the checks that need them are left out, and `gradients` says so. The curve of the same
    attack over the same images shares its work if finished chunks are stored. For text, which no attack perturbs, the
    checks are `logits`, `deterministic`, `batch_independent`, `clean_accuracy`, `test_size`, `classes`, `duplicates`
    and `selection`.

    Attributes:
        attack: a short attack for `monotone`, `repredict` and `rounding`; a few steps are enough. None for text.
        factors: the radii to compare, as multiples of its epsilon; 1 is added for `repredict`. Those beyond the pixel
            box are left out.
        limit: maximum number of images, drawn by the seed.
        other_threat: True if the evaluation is meant to attack within another threat model than the training. The
            commands set it where a recipe sets EVAL_EPSILON or EVAL_NORM.
    """

    attack: Attack | None = None
    factors: tuple[float, ...] = (0.5, 1.0, 2.0)
    limit: int = 1000
    other_threat: bool = False

    uses_training: ClassVar[bool] = True
    uses_attacks: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = ANY

    def __post_init__(self):
        if len(self.factors) < 2 or min(self.factors) <= 0:
            raise InputError(f"Doctor.factors is {tuple(self.factors)}; it must hold two or more positive numbers.")
        require_least(self.limit, "Doctor.limit", 1)
        if self.attack is not None and self.attack.minimal:
            raise InputError(
                f"Doctor.attack is {self.attack.name}, a minimal-norm attack without epsilon; use one with "
                "epsilon, such as PGD."
            )

    def check(self, setting: Setting) -> None:
        """Raise ValueError unless there is an attack exactly if the data are images."""
        if setting.predictor.is_text != (self.attack is None):
            remedy = "None" if self.attack else "a short attack, as @PGD()"
            raise InputError(
                f"{setting.predictor.name} takes {setting.predictor.kind.name}: Doctor.attack must be {remedy}."
            )

    def run(self, setting: Setting) -> Outcome:
        """Run all checks that apply."""
        attack, limit = self.attack, self.limit
        climbs = attack is not None and not isinstance(doctor_model.gradients(setting), str)
        findings = [
            doctor_model.check_logits(setting),
            doctor_model.check_deterministic(setting),
            doctor_model.check_batch_independent(setting),
            check_accuracy(setting),
        ]
        if attack is not None:
            findings += [doctor_pixels.check_pixel_range(setting), doctor_model.check_gradients(setting)]
        if climbs:
            findings += [
                doctor_model.check_ascent(setting, attack.threat),
                check_monotone(setting, attack, tuple(sorted(self.factors)), limit),
                check_repredict(setting, attack, limit),
                check_rounding(setting, attack, limit),
                check_surrogate(setting, attack, limit),
                (None if self.other_threat else check_equal_threat(setting, attack)) or check_strength(setting, attack),
                check_overfitting(setting),
            ]
        robust = still_correct(setting, attack, attack.threat.epsilon, limit) if climbs else None
        if attack is not None:
            findings.append(check_units(setting, attack))
        findings += [
            check_test_size(setting, robust),
            check_classes(setting),
            check_duplicates(setting),
            check_selection(setting),
        ]
        return Outcome(findings=[finding for finding in findings if finding is not None])


# ------------------------------------------------------------------------------------- checks of the attack


def still_correct(setting: Setting, attack: Attack, epsilon: float, limit: int) -> np.ndarray:
    """Return which of at most `limit` images remain correctly classified, bool [m]; epsilon 0 is the clean prediction.

    The attack's own epsilon shares its work with `check_repredict`, other values with the chunks of a curve.
    """
    positions = setting.subset(limit)
    if epsilon == 0:
        return setting.clean_correct[positions]
    if epsilon == attack.threat.epsilon:
        return ~np.asarray(attack_result(setting, attack, limit)[1].success)
    return ~search(setting, attack.with_epsilon(epsilon), positions).success


def check_monotone(setting: Setting, attack: Attack, factors: tuple[float, ...], limit: int) -> Finding:
    """Check that a larger epsilon never leaves more accuracy: the smaller ball lies inside the larger one."""
    sizes = (0.0, *attack.threat.possible(factor * attack.threat.epsilon for factor in factors))
    robust = [still_correct(setting, attack, size, limit) for size in sizes]
    curve = ", ".join(f"{size:.4g}: {row.mean():.1%}" for size, row in zip(sizes, robust, strict=True))
    evidence = f"Accuracy by epsilon over {len(robust[0])} images: {curve}."
    remedy = "The attack fails at the larger epsilon: give it more steps and restarts, and look for masked gradients."
    rises = [statistics.paired_difference(after, before) for before, after in zip(robust, robust[1:], strict=False)]
    if max(low for _, low, _ in rises) > 0:
        return Finding("monotone", "fail", evidence, remedy)
    # The result of one image may change by chance within a few steps.
    if max(rise for rise, _, _ in rises) * len(robust[0]) > max(1.0, 0.01 * len(robust[0])):
        return Finding("monotone", "warn", evidence, remedy)
    return Finding("monotone", "pass", evidence)


def check_repredict(setting: Setting, attack: Attack, limit: int) -> Finding:
    """Check that the saved adversarial images lie in the threat set and are misclassified when predicted again."""
    positions, result = attack_result(setting, attack, limit)
    images, threat = np.asarray(result.adversarial), attack.threat
    fooled = ~are_correct(setting.predict(images), setting.labels[positions])
    differ = int(np.sum(fooled != np.asarray(result.success)))
    inside = np.asarray(threat.contains(tf.constant(setting.images[positions]), tf.constant(images)))
    outside = int(np.sum(~inside))
    evidence = (
        f"Of {len(images)} saved images, {differ} have another prediction than the attack reported and {outside} "
        f"lie outside the threat set; {np.mean(fooled):.1%} are misclassified."
    )
    if differ or outside:
        verdict = "warn" if not outside and differ <= 0.01 * len(images) else "fail"
        remedy = "Compute the accuracy by predicting the saved images, not from the attack's own report."
        return Finding("repredict", verdict, evidence, remedy)
    return Finding("repredict", "pass", evidence)


def check_rounding(setting: Setting, attack: Attack, limit: int) -> Finding:
    """Check that the saved adversarial images are still misclassified as 8-bit images."""
    positions, result = attack_result(setting, attack, limit)
    images, labels = np.asarray(result.adversarial), setting.labels[positions]
    caused = setting.clean_correct[positions] & ~are_correct(setting.predict(images), labels)
    if not caused.any():
        return Finding("rounding", "pass", "The attack caused no misclassification, so nothing was rounded.")
    rounded = np.round(images[caused] * 255) / np.float32(255)
    remaining = float(np.mean(~are_correct(setting.predict(rounded), labels[caused])))
    evidence = f"Of {caused.sum()} adversarial images, {remaining:.1%} are still misclassified when rounded to 8 bits."
    if 1 - remaining <= _LOST:
        return Finding("rounding", "pass", evidence)
    remedy = (
        "On 8-bit images the model is more robust than these numbers, or it masks gradients between gray levels: "
        "attack in uint8."
    )
    return Finding("rounding", "warn", evidence, remedy)


def check_surrogate(setting: Setting, attack: Attack, limit: int) -> Finding | None:
    """Check that an attack succeeds on the same images with the surrogate's gradients; None without a surrogate.

    Where only the model's own gradients succeed, robustness to transfer attacks says nothing about the model. Where
    only those of the surrogate do, the model's own are masked.
    """
    surrogate = setting.predictor.surrogate
    if surrogate is None or attack.members or not attack.needs_gradient:
        return None
    positions, result = attack_result(setting, attack, limit)
    direct, transferred = ~np.asarray(result.success), ~search(setting, Transfer(attack), positions).success
    apart = [int(np.sum(robust & ~elsewhere)) for robust, elsewhere in ((transferred, direct), (direct, transferred))]
    shares = [count / len(positions) for count in apart]
    evidence = (
        f"{attack.name} leaves {direct.mean():.1%} of {len(positions)} images with the model's gradients, and "
        f"{transferred.mean():.1%} with those of {surrogate.name}. Only the first succeed on {shares[0]:.1%}, only the "
        f"second on {shares[1]:.1%}."
    )
    if max(shares) <= _SOME or max(apart) <= 2:
        return Finding("surrogate", "pass", evidence)
    masked = (
        "the surrogate's gradients are masked, or it is another model" if apart[0] > apart[1] else "its own are masked"
    )
    remedy = f"Use the accuracy that all attacks together leave (gin/eval/litert.gin): {masked}."
    return Finding("surrogate", "fail" if max(shares) > _MUCH else "warn", evidence, remedy)


def check_equal_threat(setting: Setting, attack: Attack) -> Finding | None:
    """Return a failure if the doctor's attack has another norm, radius or pixel box than the attack in training."""
    trained = setting.training_attack
    if trained is None:
        return None
    facts = {"norm": attack.threat.norm, "epsilon": attack.threat.epsilon, "bounds": tuple(attack.threat.bounds)}
    facts |= attack.threat.frame_settings
    expected = {"bounds": (0.0, 1.0), **trained}
    expected["bounds"] = tuple(expected["bounds"])
    names = [name for name in (*facts, "per_frame", "max_frames") if not _alike(facts.get(name), expected.get(name))]
    if not names:
        return None
    differing = ", ".join(
        f"{name} {_value_text(expected.get(name))} against {_value_text(facts.get(name))}"
        for name in dict.fromkeys(names)
    )
    evidence = f"Training and evaluation attack within different threat models: {differing}."
    remedy = (
        "Train and evaluate within one (EPSILON and NORM set both), or, if the difference is intended, say so: set "
        "EVAL_EPSILON or EVAL_NORM, or Doctor.other_threat = True."
    )
    return Finding("attack_strength", "fail", evidence, remedy)


def _alike(first, second) -> bool:
    if isinstance(first, float) and isinstance(second, (int, float)):
        return bool(np.isclose(first, second, rtol=1e-5, atol=0.0))
    return first == second


def _value_text(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def check_strength(setting: Setting, doctor_attack: Attack) -> Finding:
    """Check that the evaluation attacks the model at least as hard as its training did."""
    attacks = [
        member for attack in setting.evaluation_attacks or (doctor_attack,) for member in attack.members or (attack,)
    ]
    climbers = [attack for attack in attacks if attack.needs_gradient]
    trained = setting.training_attack
    if trained is None:
        steps = max((attack.steps for attack in climbers), default=0)
        evidence = f"The longest gradient attack takes {steps} steps; no attack in training is known."
        return _check_steps(steps, _FEW_STEPS, evidence)
    norm, epsilon, needed = (trained[name] for name in ("norm", "epsilon", "steps"))
    frames = {name: trained[name] for name in ("per_frame", "max_frames") if name in trained}
    comparable = [attack for attack in climbers if (attack.threat.norm, attack.threat.frame_settings) == (norm, frames)]
    reach = max((np.inf if attack.minimal else attack.threat.epsilon for attack in comparable), default=0.0)
    full = [attack for attack in comparable if attack.minimal or attack.threat.epsilon >= epsilon * (1 - 1e-6)]
    steps = max((attack.steps for attack in full), default=0)
    evidence = f"Training attacked by {needed} steps within {norm} {epsilon:.6g}; the evaluation "
    if not comparable:
        remedy = f"Evaluate within {norm} {epsilon:.6g} as well: the model was trained for that."
        return Finding("attack_strength", "warn", f"{evidence}has no gradient attack in that norm.", remedy)
    if not full:
        remedy = f"Evaluate at {epsilon:.6g} too, the epsilon that was trained for."
        verdict = "fail" if reach < epsilon / 2 else "warn"
        return Finding("attack_strength", verdict, f"{evidence}uses at most {reach:.6g}.", remedy)
    return _check_steps(steps, max(needed, _FEW_STEPS), f"{evidence}takes up to {steps} steps there.", needed)


def _check_steps(steps: int, needed: int, evidence: str, trained: int = 0) -> Finding:
    if steps >= needed:
        return Finding("attack_strength", "pass", evidence)
    remedy = f"Give the attack at least {needed} steps; gin/eval/pgd.gin takes 100."
    return Finding("attack_strength", "fail" if steps < trained else "warn", evidence, remedy)


# ------------------------------------------------------------------------- checks of the data and the claims


def check_accuracy(setting: Setting) -> Finding:
    """Check that clean images are classified better than by always predicting the most frequent class."""
    correct, count = int(setting.clean_correct.sum()), len(setting.labels)
    chance = doctor_pixels.chance(setting)
    low, high = statistics.wilson_interval(correct, count)
    evidence = (
        f"{correct / count:.1%} of {count} clean {setting.examples} are correctly classified (95 % interval {low:.1%} "
        f"to {high:.1%})"
    )
    evidence += f"; always predicting the most frequent class gives {chance:.1%}."
    scaled = "the vocabulary is" if setting.predictor.is_text else "pixels are scaled as"
    remedy = f"Check that labels and classes are in the model's order and that {scaled} in its training."
    if low > chance:
        return Finding("clean_accuracy", "pass", evidence)
    return Finding("clean_accuracy", "fail" if correct / count <= chance else "warn", evidence, remedy)


def check_units(setting: Setting, doctor_attack: Attack) -> Finding | None:
    """Check that every epsilon is a radius in pixels of [0, 1]: neither 8 instead of 8/255, nor 8/255/255.

    Budgets for frames are left out, which do not compare with distances between whole clips; None if all are such.
    """
    images = setting.images
    attacks = {
        attack
        for attack in (doctor_attack, *setting.evaluation_attacks)
        if not (attack.minimal or attack.threat.variant)
    }
    if not attacks and doctor_attack.threat.variant:
        return None
    spread = float(images.max() - images.min())
    if spread <= 2 * _GRAY_LEVEL:
        return Finding(
            "epsilon_units",
            "fail",
            f"All pixels of all images lie within {spread:.2g} of each other.",
            "Pixels run over [0, 1]: these were divided by 255 once too often, or are empty.",
        )
    worst, remedy = "pass", ""
    sentences = []
    for norm in sorted({attack.threat.norm for attack in attacks}):
        sizes = [float(attack.threat.epsilon) for attack in attacks if attack.threat.norm == norm]
        # A curve starts small whatever its unit is. If the doctor's own attack is among the attacks, its epsilon
        # decides.
        claimed = float(doctor_attack.threat.epsilon) if doctor_attack.threat.norm == norm else min(sizes)
        verdict, evidence, remedy_of_norm = _check_sizes(setting, norm, sizes, claimed, spread)
        sentences.append(evidence)
        if _WORSE.index(verdict) > _WORSE.index(worst):
            worst, remedy = verdict, remedy_of_norm
    return Finding("epsilon_units", worst, " ".join(sentences), remedy)


_WORSE = ("pass", "warn", "fail")


def _check_sizes(setting: Setting, norm: str, sizes: list, claimed: float, spread: float) -> tuple[str, str, str]:
    """Return verdict, evidence and remedy for the attacks in one norm; `claimed` must not be too large."""
    values = int(np.prod(setting.images.shape[1:]))
    smallest, largest = min(sizes), max(sizes)
    if norm == "l0":
        evidence = f"l0: epsilon {smallest:.6g} to {largest:.6g} of {values} values."
        if largest < 1 or smallest >= values:
            return "fail", evidence, "For l0 epsilon counts pixel values that may change, from 1 to less than all."
        return "pass", evidence, ""
    span = spread * NORMS[norm].farthest(values)
    apart = setting.cached(f"separation {norm}", lambda: separation(setting, norm))
    evidence = (
        f"{norm}: epsilon {smallest:.4g} to {largest:.4g}; black and white differ by {span:.4g}; the median distance "
        f"to the nearest image of another class is {apart:.4g}."
    )
    remedy = f"Epsilon is in pixels of [0, 1]: {claimed:.4g}/255 = {claimed * _GRAY_LEVEL:.4g}, if that was meant."
    if claimed >= min(span, apart):
        # Images of another class lie within reach: no classifier can be correct on both.
        return "fail", evidence, remedy
    if claimed >= min(span, apart) / 2:
        return "warn", f"{evidence} Halfway to another class, or gray, lies within reach.", remedy
    if largest < _GRAY_LEVEL / 2:
        steps = f"Epsilon is in pixels of [0, 1]: {largest:.2g} is {largest * 255:.2g} of 255 gray levels"
        return "fail", evidence, f"{steps}, too little to change any 8-bit image; was it divided by 255 twice?"
    return "pass", evidence, ""


def separation(setting: Setting, norm: str) -> float:
    """Return the median distance of an image to the nearest one with another label, over a few hundred images."""
    fits = int(np.sqrt(_SEPARATION_VALUES / np.prod(setting.images.shape[1:])))
    chosen = setting.order("separation")[: max(2, min(_SEPARATION_IMAGES, fits))]
    rows, labels = setting.images[chosen].reshape(len(chosen), -1), setting.labels[chosen]
    nearest = []
    for row, label in zip(rows, labels, strict=True):
        gaps = np.abs(rows[labels != label] - row)
        if not len(gaps):
            return float("inf")
        nearest.append(np.linalg.norm(gaps, NORMS[norm].order, axis=1).min())
    return float(np.median(nearest))


def check_test_size(setting: Setting, robust: np.ndarray | None) -> Finding:
    """Check that there are enough test images for the claimed percentages.

    Args:
        setting: the setting, for the number of images.
        robust: bool [m], images that remain correctly classified under the doctor's attack; None: the clean accuracy is
            the only claim.

    Returns:
        The finding.
    """
    count = len(setting.labels)
    claims = {"clean accuracy": float(setting.clean_correct.mean())}
    if robust is not None:
        claims["accuracy under the doctor's attack"] = float(robust.mean())
    halves = {}
    for name, share in claims.items():
        low, high = statistics.wilson_interval(round(share * count), count)
        halves[name] = (high - low) / 2
    precision = " and ".join(f"a {name} of {claims[name]:.1%} to within {half:.1%}" for name, half in halves.items())
    evidence = f"{count} test {setting.examples} determine {precision} (95 % intervals).".replace(
        "a accuracy", "an accuracy"
    )
    worst = max(halves.values())
    if worst <= 0.06:
        return Finding("test_size", "pass", evidence)
    enough = f"{_IMAGES_FOR_FIVE_POINTS} {setting.examples}"
    remedy = f"Evaluate on {enough}, which determine any share to within 5 %, or claim no more than this."
    return Finding("test_size", "fail" if worst > 0.1 else "warn", evidence, remedy)


def check_classes(setting: Setting) -> Finding | None:
    """Warn of classes without test images, about which no number says anything, or without training images.

    None if every class has both, as far as is known.
    """
    count = setting.predictor.class_count
    names = setting.class_names or tuple(map(str, range(count)))
    counts = {"test": np.bincount(setting.labels, minlength=count), "training": setting.train_counts}
    gaps = {part: summary.without_examples(held, names) for part, held in counts.items() if held is not None}
    gaps = [f"{part} {setting.examples}: {missing}" for part, missing in gaps.items() if missing]
    if not gaps:
        return None
    remedy = (
        "Add examples of these classes, or leave the classes out (ClassSubset): the numbers say nothing about them."
    )
    return Finding("classes", "warn", f"Of {count} classes, {'; '.join(gaps)}.", remedy)


def check_duplicates(setting: Setting) -> Finding | None:
    """Check that test images, or near duplicates, are not among the training images; None if those are unknown.

    Images of a first stage count too: an encoder trained on the test images has seen them.
    """
    test, kind = setting.images, setting.examples
    exact, near, seen = np.zeros(len(test), bool), np.zeros(len(test), bool), []
    digests = _hashes(test)
    parts = {f"training {kind}": setting.train_images, f"{kind} of the first stage": setting.pretraining_examples}
    for name, images in parts.items():
        count = 0
        for block in _blocks(images, test):
            train_digests = set(_hashes(block))
            exact |= np.array([digest in train_digests for digest in digests])
            if not setting.predictor.is_text:
                near |= _nearly_equal(block, test)
            count += len(block)
        seen += [f"{count} {name}"] * (count > 0)
    if not seen:
        return None
    near &= ~exact
    evidence = f"Of {len(test)} test {kind} {exact.sum()} ({exact.mean():.1%}) are among {' and '.join(seen)}"
    if setting.predictor.is_text:
        evidence += "."
    else:
        evidence += (
            f", and {near.sum()} ({near.mean():.1%}) differ from one by less than {_NEAR:.3f} (root mean square)."
        )
    share = float(np.mean(exact | near))
    if share == 0:
        return Finding("duplicates", "pass", evidence)
    remedy = (
        f"Take the test {setting.examples} out of the training set, or the duplicates out of the test set, and "
        "evaluate again."
    )
    if setting.pretraining_examples is not None:
        remedy += " train.data and Pretraining.data have one test split where they have one split_seed."
    return Finding("duplicates", "fail" if share > 0.05 else "warn", evidence, remedy)


def check_selection(setting: Setting) -> Finding:
    """Check that the published weights were not selected on the test split."""
    chosen = setting.selected_on
    if chosen == "test":
        remedy = "Choose on a validation split: numbers on the split that chose are too good."
        return Finding("selection", "fail", "The weights were chosen by their test results.", remedy)
    if chosen:
        return Finding(
            "selection",
            "pass",
            "The weights are those of the last epoch."
            if chosen == "last"
            else f"The weights were chosen on the {chosen} split, not on test.",
        )
    return Finding(
        "selection",
        "warn",
        "It is not known on which split the weights were chosen.",
        "Ask the authors of the model; many published weights were selected by test results.",
    )


def _blocks(images: np.ndarray | Examples | None, test: np.ndarray) -> Iterator[np.ndarray]:
    """Yield training images as arrays [b, ...]: an array held already, or `Examples`, fetched block by block.

    It yields nothing if there are none, or if their shape differs from that of the test images.
    """
    if images is None or not len(images):
        return
    if not isinstance(images, Examples):
        if np.shape(images)[1:] == test.shape[1:]:
            yield np.asarray(images, test.dtype)
        return
    if tuple(images.image_shape) != test.shape[1:]:
        return
    bytes_each = 4 * int(np.prod(images.image_shape))
    count = min(len(images), max(1, _FETCHED_BYTES // bytes_each))
    positions, step = np.arange(count, dtype=np.int64) * len(images) // count, max(1, _BLOCK_BYTES // bytes_each)
    for start in range(0, count, step):
        yield images.fetch(tf.constant(positions[start : start + step])).numpy()


def _hashes(images: np.ndarray) -> list[bytes]:
    """Return hashes of the images at 8 bits; a few thousand images are converted at a time."""
    hashes = []
    for start in range(0, len(images), 4096):
        levels = images[start : start + 4096]
        levels = levels if levels.dtype == np.int32 else np.round(levels * 255).astype(np.uint8)
        hashes += [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in levels]
    return hashes


def _nearly_equal(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return which test images have a training image within the near distance; bool [n].

    Averaging over blocks of pixels never increases the root mean square distance of two images. So only the nearest
    small image is compared at full size.
    """
    train, test = (_frames_as_channels(images) for images in (train, test))
    small_train, small_test = _small(train), _small(test)
    lengths, near = np.sum(small_train**2, axis=1), np.zeros(len(test), bool)
    for start in range(0, len(test), _TEST_ROWS):
        rows = small_test[start : start + _TEST_ROWS]
        nearest = np.argmin(lengths[None] - 2 * rows @ small_train.T, axis=1)
        images = test[start : start + _TEST_ROWS]
        gap = np.sqrt(np.mean((images - train[nearest]) ** 2, axis=(1, 2, 3)))
        # Two nearly empty images are similar without being the same.
        near[start : start + _TEST_ROWS] = gap <= np.minimum(_NEAR, _NEAR_OF_CONTRAST * images.std(axis=(1, 2, 3)))
    return near


def _frames_as_channels(images: np.ndarray) -> np.ndarray:
    """Return clips [n, t, h, w, c] as images [n, h, w, t c], and images unchanged."""
    if images.ndim == 4:
        return images
    return np.moveaxis(images, 1, 3).reshape(len(images), *images.shape[2:4], -1)


def _small(images: np.ndarray) -> np.ndarray:
    """Return means over blocks: float32 [n, d] with at most 15 x 15 blocks per channel."""
    height, width = (max(1, size // _SMALL_SIDE) for size in images.shape[1:3])
    high, wide = images.shape[1] // height, images.shape[2] // width
    cut = images[:, : high * height, : wide * width]
    blocks = cut.reshape(len(cut), high, height, wide, width, -1)
    return blocks.mean(axis=(2, 4)).reshape(len(cut), -1)
