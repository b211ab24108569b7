"""Runner: executes evaluators one after the other, caches their outcomes on disk, and resumes interrupted runs.

Several processes, on several machines, may share the attacks of one long evaluation through one directory:

    run_shard(evaluators, setting, Shard(1, 2), cache_directory=shared)  # here
    run_shard(evaluators, setting, Shard(2, 2), cache_directory=shared)  # there
    run_evaluation(evaluators, setting, cache_directory=shared)          # afterwards
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pathlib
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.common import configured, files, fingerprint
from tfrobust.common.kinds import TEXT, Kind, takes
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor import model as doctor_model
from tfrobust.evaluation.doctor.certificates import check_certificates
from tfrobust.evaluation.engine import searching
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.chunks import Shard, Store
from tfrobust.evaluation.engine.predictor import in_batches
from tfrobust.ops.probabilities import kind_of_outputs
from tfrobust.structs import Finding, Measurement, Series

_log = logging.getLogger("tfrobust")
# Version of cached results: increased with a new format, or when attacks or evaluators give other results than before.
_FORMAT = 5
_PROBES = 32


def run_evaluation(
    evaluators: Sequence[Evaluator], setting: Setting, *, cache_directory: str | os.PathLike | None = None
) -> Outcome:
    """Run evaluators in order and join their outcomes.

    Args:
        evaluators: evaluators whose ids do not clash.
        setting: predictor and data.
        cache_directory: folder for one JSON file per evaluator, named by a hash of weights, data, evaluator and seed,
            and in `chunks` for one file per finished chunk of an attack. What is there already is not run again.
            Results cut short by a time budget, and those of a model whose outputs for the images are not all finite,
            are not stored. None, or a predictor with unknown weights: nothing is stored.

    Returns:
        The joined outcome, and `cost.evaluation`, the seconds it took (for cached results, those of their own run). If
        the predictor has no input gradients, a finding `white_box` names what was left out, and replaces the doctor's
        `gradients`. If its outputs are or may be probabilities, a finding `logits` says so, whichever evaluators ran.
        If an example is certified, a finding `certificates` says whether an attack contradicts the bound.

    Raises:
        ValueError: two evaluators give one id, an evaluator rejects the setting, an attack's pixels do not lie in [0,
            1], or nothing is left to run without gradients.
    """
    evaluators, left_out = runnable(evaluators, setting)
    _check(evaluators, setting)
    common = _common_key(setting) if cache_directory is not None and setting.predictor.weights_sha256 else None
    setting = setting.within(None if common is None else _store(cache_directory, common), _attacks(evaluators, setting))
    outcome, seconds = Outcome(), 0.0
    for done, evaluator in enumerate(evaluators):
        if setting.progress is not None:
            setting.progress(f"evaluation: {type(evaluator).__name__}", done, len(evaluators))
        result, took = _run_one(evaluator, setting, cache_directory, common)
        outcome.extend(result)
        seconds += took
        if setting.progress is not None:
            setting.progress("evaluation", done + 1, len(evaluators))
    findings = _without_gradients_twice(left_out, outcome.findings)
    # Several evaluators can miss the same thing.
    contradiction = check_certificates(outcome, setting.examples)
    findings += [] if contradiction is None else [contradiction]
    outcome.findings = list(dict.fromkeys([*findings, *_logits_finding(findings, setting)]))
    _refuse_equal([item.id for item in [*outcome.measurements, *outcome.series]])
    outcome.measurements.append(Measurement("cost.evaluation", seconds, "seconds"))
    return outcome


def run_shard(
    evaluators: Sequence[Evaluator], setting: Setting, shard: Shard, *, cache_directory: str | os.PathLike
) -> int:
    """Compute one shard's chunks of all attacks and votes; `run_evaluation` finds them in the same directory.

    Args:
        evaluators: as for `run_evaluation`, the same in every shard.
        setting: as for `run_evaluation`, the same in every shard.
        shard: the number of this shard, and the number of shards.
        cache_directory: the folder that all shards share.

    Returns:
        The number of images searched, now or earlier, over all attacks, and of those voted on.

    Raises:
        ValueError: as `run_evaluation`; no such shard; the predictor's weights are unknown, so that nothing can be
            stored.
    """
    if not 1 <= shard.number <= shard.count:
        raise InputError(f"There is no shard {shard.number} of {shard.count}; they are counted from 1.")
    if setting.predictor.weights_sha256 is None:
        raise InputError(
            f"The weights of {setting.predictor.name} are unknown: nothing can be stored, so shards are impossible."
        )
    evaluators, _ = runnable(evaluators, setting)
    _check(evaluators, setting)
    setting = setting.within(_store(cache_directory, _common_key(setting)), _attacks(evaluators, setting))
    searches = [search for evaluator in evaluators for search in evaluator.searches(setting)]
    return searching.search_shard(setting, searches, shard) + sum(
        evaluator.share(setting, shard) for evaluator in evaluators
    )


def runnable(evaluators: Sequence[Evaluator], setting: Setting) -> tuple[list[Evaluator], list[Finding]]:
    """Return the evaluators that can run on a predictor, and findings about the others.

    Args:
        evaluators: the requested evaluators.
        setting: the setting, whose predictor decides; all evaluators run on one with input gradients.

    Returns:
        (evaluators, findings); an ensemble may be replaced by its members that need no gradients.

    Raises:
        ValueError: none is left.
    """
    predictor = setting.predictor
    if predictor.differentiable or predictor.is_text:  # no evaluator of text needs gradients
        return list(evaluators), []
    chosen, left_out = [], []
    taken = {name for candidate in evaluators if candidate in candidate.without_gradients() for name in candidate.ids()}
    for evaluator in evaluators:
        instead = evaluator.without_gradients()
        if evaluator in instead:
            chosen.append(evaluator)
            continue
        left_out += evaluator.ids()[:1] or (type(evaluator).__name__,)
        # A member of an ensemble may also have been requested separately, or belong to two ensembles.
        fresh = [substitute for substitute in instead if not taken.intersection(substitute.ids())]
        taken.update(name for substitute in fresh for name in substitute.ids())
        chosen += fresh
    reason = f" ({predictor.no_gradient.rstrip('.')})" if predictor.no_gradient else ""
    fault = f"{predictor.name} has no input gradients{reason}"
    if not chosen:
        raise InputError(
            f"{fault}, and all requested evaluators need them; add an attack that needs none, like gin/eval/square.gin."
        )
    remedy = "Export the model with its gradients, or evaluate it with strong black-box attacks (gin/eval/square.gin)."
    if not left_out:
        evidence = f"{fault}: no evaluator that needs them was run."
        return chosen, [Finding("white_box", "warn", evidence, remedy)]
    evidence = f"{fault}: left out: {', '.join(left_out)}. A white-box attack may find many more errors."
    return chosen, [Finding("white_box", "fail", evidence, remedy)]


def cache_key(evaluator: Evaluator, setting: Setting, common: dict) -> str:
    """Return the hash that names an evaluator's cached outcome: of all inputs it depends on, and of nothing else."""
    # The same model as a SavedModel has no layers to bound or to look for a normalization in.
    layers = [setting.predictor.network is not None, setting.predictor.normalization is not None]
    parts = {**common, "evaluator": configured.identity(evaluator), "layers": layers}
    parts["class_names"] = list(setting.class_names or ())
    if evaluator.uses_training:
        parts |= {"training_data": _training_data(setting), "training_attack": setting.training_attack}
        if setting.fine_tuning is not None:
            parts["fine_tuning"] = setting.fine_tuning
        if setting.pretraining_examples is not None:
            parts["pretraining_data"] = setting.pretraining_examples.fingerprint
    if evaluator.uses_validation and setting.has_validation:
        split = setting.validation_images, setting.validation_labels
        parts["validation_data"] = setting.cached("validation data", lambda: fingerprint.data_sha256(*split))
    if setting.limit is not None:
        parts["limit"] = setting.limit
    if evaluator.uses_attacks:
        parts["attacks"] = configured.identity(setting.evaluation_attacks)
    if evaluator.uses_embedding:
        parts["embedding"] = setting.cached("embedding fingerprint", lambda: _embedding_sha256(setting))
    if setting.strengths is not None:
        parts["strengths"] = fingerprint.weights_sha256([setting.strengths])
    if setting.vocabulary:
        parts["vocabulary"] = list(setting.vocabulary)
    if setting.groups is not None:
        parts["groups"] = fingerprint.weights_sha256([setting.groups])
    if evaluator.files_read():
        parts["files_read"] = evaluator.files_read()
    return fingerprint.json_sha256(parts)


def _run_one(evaluator: Evaluator, setting: Setting, cache_directory, common: dict | None) -> tuple[Outcome, float]:
    path = None
    if common is not None:
        name = f"{type(evaluator).__name__}-{cache_key(evaluator, setting, common)[:32]}.json"
        path = pathlib.Path(cache_directory) / name
        stored = _read(path)
        if stored is not None:
            return stored
    start = time.perf_counter()
    outcome = evaluator.run(setting)
    took = time.perf_counter() - start
    bounded = any("bound" in measured.settings for measured in outcome.measurements)
    if path is not None and not bounded and np.all(np.isfinite(setting.clean_logits)):
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"format": _FORMAT, "seconds": took, "outcome": dataclasses.asdict(outcome)}
        files.write_atomically(path, json.dumps(_plain(record), allow_nan=False))
    return outcome, took


def _check(evaluators: Sequence[Evaluator], setting: Setting) -> None:
    """Raise the errors that would otherwise occur hours later."""
    refuse_clashes(evaluators)
    refuse_kind(evaluators, setting.predictor.kind)
    refuse_radius(evaluators, setting.images.shape[1:])
    for evaluator in evaluators:
        for threat in _threats(evaluator):
            if tuple(threat.bounds) != (0.0, 1.0):
                raise InputError(
                    f"An attack of {type(evaluator).__name__} has the pixel bounds {tuple(threat.bounds)}; evaluation "
                    "takes pixels in (0.0, 1.0), and any normalization belongs in the model."
                )
        evaluator.check(setting)
        for attack, _ in evaluator.attacks(setting):
            searching.check_gradients(setting, attack)


def _threats(evaluator: Evaluator) -> list[ThreatModel]:
    """Return the threat models of an evaluator: its own, its attacks', and those of an ensemble's members."""
    arguments = [getattr(evaluator, name) for name in configured.constructor_arguments(type(evaluator))]
    values = [part for value in arguments for part in (value if isinstance(value, tuple) else (value,))]
    attacks = [value for value in values if isinstance(value, Attack)]
    attacks += [member for attack in attacks for member in attack.members]
    return [value for value in values if isinstance(value, ThreatModel)] + [attack.threat for attack in attacks]


def _without_gradients_twice(left_out: list[Finding], findings: list[Finding]) -> list[Finding]:
    """Join both lists, without the doctor's `gradients` if `white_box` says the same and names what was left out."""
    doctors = [finding for finding in findings if finding.check == "gradients"]
    if not left_out or not doctors:
        return [*left_out, *findings]
    # A failure in the doctor's finding stays a failure.
    left_out = [dataclasses.replace(finding, verdict="fail") for finding in left_out]
    return [*left_out, *(finding for finding in findings if finding not in doctors)]


def _logits_finding(findings: list[Finding], setting: Setting) -> list[Finding]:
    """Return findings that a report must contain even if no doctor ran."""
    predictor = setting.predictor
    if any(finding.check == "logits" for finding in findings):
        return []
    if not predictor.outputs_probabilities:
        # One batch with outputs outside [0, 1] is sufficient, so cached results need no pass over all images.
        outputs = np.asarray(predictor.compiled_logits(setting.images[: setting.batch_size]))
        if kind_of_outputs(outputs) == "logits":
            return []
    finding = doctor_model.check_logits(setting)
    return [] if finding.verdict == "pass" else [finding]


def _attacks(evaluators: Sequence[Evaluator], setting: Setting) -> tuple:
    """Return the attacks of all evaluators that do not examine attacks, for those that do."""
    sources = [evaluator for evaluator in evaluators if not evaluator.uses_attacks]
    return tuple(attack for evaluator in sources for attack, _ in evaluator.attacks(setting))


def _store(cache_directory, common: dict) -> Store:
    return Store(pathlib.Path(cache_directory, "chunks"), common)


def _common_key(setting: Setting) -> dict:
    predictor = setting.predictor
    surrogate = {"surrogate": _model_key(predictor.surrogate, setting)} if predictor.surrogate else {}
    return {
        **surrogate,
        "format": _FORMAT,
        **_model_key(predictor, setting),
        "data": fingerprint.data_sha256(setting.images, setting.labels),
        "seed": setting.seed,
        "batch_size": setting.batch_size,
        "selected_on": setting.selected_on,
        **setting.vote_settings,
    }


def _model_key(predictor, setting: Setting) -> dict:
    """Return what distinguishes a model: equal weights can belong to different graphs (an additional softmax)."""
    outputs = in_batches(predictor.compiled_logits, setting.images[: setting.batch_size], setting.batch_size)
    return {
        "weights": predictor.weights_sha256,
        "answers": fingerprint.weights_sha256([outputs[:_PROBES]]),
        "gradients": _steepest_positions(predictor, setting),
    }


def _steepest_positions(predictor, setting: Setting) -> list[int] | None:
    """Return the position in each image that its label's logit depends on most, -1 if on none; None without gradients.

    Equal weights and outputs can hide different gradients, such as a mask that was removed or added since. Positions
    are used because they are robust to rounding, which differs from run to run.
    """
    rows = slice(setting.batch_size)
    if not predictor.differentiable:
        return None
    images = tf.constant(setting.images[rows])
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(images)
        chosen = tf.gather(tf.cast(predictor.logits(images), tf.float32), setting.labels[rows], batch_dims=1)
    gradient = tape.gradient(chosen, images)
    if gradient is None:
        return None
    sizes = np.nan_to_num(np.abs(gradient.numpy()[:_PROBES])).reshape(min(_PROBES, len(images)), -1)
    return np.where(sizes.any(axis=1), sizes.argmax(axis=1), -1).tolist()


def _embedding_sha256(setting: Setting) -> str | None:
    """Hash the embedding of a few images, which equal weights and outputs do not determine; None without embedding."""
    if setting.predictor.embedding is None:
        return None
    images = setting.images[: setting.batch_size]
    features = in_batches(setting.predictor.compiled_embedding, images, setting.batch_size)
    return fingerprint.weights_sha256([features[:_PROBES]])


def _training_data(setting: Setting) -> str | None:
    if setting.train_images is None or setting.train_labels is None:
        return None
    return fingerprint.data_sha256(setting.train_images, setting.train_labels)


def _read(path: pathlib.Path) -> tuple[Outcome, float] | None:
    """Return a cached outcome; None if there is none, or (with a warning) if the file is damaged."""
    try:
        record = json.loads(files.read_bounded(path))
        outcome = record["outcome"]
        if record["format"] != _FORMAT:
            raise InputError(f"format {record['format']}")
        return (
            Outcome(
                # Outcomes written by earlier versions have a name, which was always "".
                [Measurement(**{key: item[key] for key in item if key != "name"}) for item in outcome["measurements"]],
                [Series(**item) for item in outcome["series"]],
                [Finding(**item) for item in outcome["findings"]],
            ),
            float(record["seconds"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        _log.warning("The cached evaluation %s cannot be read (%s) and is computed again.", path, error)
        return None


def refuse_clashes(evaluators: Sequence[Evaluator]) -> None:
    """Raise ValueError for evaluators that would give one id twice, before hours of work."""
    _refuse_equal([name for evaluator in evaluators for name in evaluator.ids()])


def refuse_kind(evaluators: Sequence[Evaluator], kind: Kind) -> None:
    """Raise ValueError for evaluators that do not support the kind of data, before hours of work.

    Raises:
        ValueError: names the evaluators that do not support such data, or a part of one, such as its views.
    """
    lost = [evaluator for evaluator in evaluators if not takes(evaluator, kind)]
    if lost:
        names = ", ".join(dict.fromkeys(type(evaluator).__name__ for evaluator in lost))
        reason = "these data are text (set EVALUATORS as gin/eval/text.gin does)"
        reason = reason if kind is TEXT else f"these are {kind.examples}"
        raise InputError(f"{names} do not support such data: {reason}.")
    for evaluator in evaluators:
        for name in configured.constructor_arguments(type(evaluator)):
            part = getattr(evaluator, name, None)
            if hasattr(part, "kinds") and not takes(part, kind):
                raise InputError(
                    f"{type(evaluator).__name__}.{name} is {type(part).__name__}, which supports "
                    f"{' and '.join(part.kinds)}; these are {kind.examples}."
                )


def refuse_radius(evaluators: Sequence[Evaluator], image_shape: Sequence[int]) -> None:
    """Raise ValueError for a threat model that does not suit the examples, see `ThreatModel.check_examples`."""
    for evaluator in evaluators:
        for threat in _threats(evaluator) if evaluator.whole_examples else ():
            threat.check_examples(tuple(image_shape))


def _refuse_equal(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"Two evaluators give the id {twice[0]!r}: give one attack a distinct label.")


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
