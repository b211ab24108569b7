#!/usr/bin/env python3
r"""Make the table of methods on the digits: cross-fitted, so that each of the 1,797 images is tested once.

For each fold and each method the recipe gin/<method>.gin is trained on the other folds with its own seed (--seed plus
the fold), and its attacks (those of the recipe's @AttackAccuracy evaluators) are run on the fold. Every (fold, method)
leaves one JSON file in --output, complete or not at all; running again continues with what is missing. The output, in
Markdown, is the accuracies over all images, and the differences from a reference on the same images; with --values also
the numbers of other evaluators, as means over the folds. Other gin files or values make another table, which needs its
own --output.

    python tools/benchmarks/digits_table.py                      # the methods against attacks, about half an hour
    python tools/benchmarks/digits_table.py --gin_file=gin/eval/full.gin --output=runs/digits_full  # with AutoAttack
    python tools/benchmarks/digits_table.py --methods=adversarial_training,ascl --only_folds=0 --epochs=1 \
        --output=runs/short
    python tools/benchmarks/digits_table.py --methods=supervised,mixup,noisymix --reference=supervised \
        --output=runs/natural --gin_file=gin/eval/natural.gin --values=corruption.mean.accuracy,calibration.rms
    python tools/benchmarks/digits_table.py --methods=simclr --folds=10 --values=accuracy.clean \
        --gin_file=gin/stage_two/labels_1_percent.gin --gin_param="LabelledFraction.seed={fold}" \
        --output=runs/few_labels
"""

import argparse
import dataclasses
import gc
import hashlib
import json
import pathlib
import re
import sys
import tempfile
import time

from _recipes import recipe, source_sha256
from _result_tables import CLEAN, tables

from tfrobust.commands import failures
from tfrobust.commands.configuration import files as gin_files
from tfrobust.commands.configuration.pipe import KNOBS_FILE
from tfrobust.commands.flags import count
from tfrobust.common import files
from tfrobust.errors import InputError

SCHEMA = "tfrobust/digits_table/1"
# The methods compared by default. Other recipes train on other data, or are compared by other measurements.
DEFAULT_METHODS = (
    "adr",
    "adversarial_training",
    "ascl",
    "ascl_hard",
    "ascl_leaked",
    "ascl_soft",
    "ascl_trades",
    "ascl_trades_leaked",
    "supervised",
    "supervised_contrastive",
    "trades",
)


# ------------------------------------------------------------------------------------------------------- runs


def params(flags: argparse.Namespace, fold: int) -> list[str]:
    """Return the values of --gin_param that turn a recipe into the run of one fold."""
    own = [f"Digits.fold={fold}", f"Digits.folds={flags.folds}", f"SEED={flags.seed + fold}"]
    given = [param.replace("{fold}", str(fold)) for param in flags.gin_param]
    return [*given, *own, *([] if flags.epochs is None else [f"EPOCHS={flags.epochs}"])]


def fingerprint(flags: argparse.Namespace, method: str, fold: int) -> str:
    """Return the sha256 of all settings of a run in gin files and flags; needs no TensorFlow."""
    bindings = gin_files.read([f"gin/{method}.gin", *flags.gin_file], params(flags, fold), KNOBS_FILE)
    said = [(b.scope, b.selector, b.argument, b.value) for b in bindings] + flags.values
    return hashlib.sha256(repr(said).encode()).hexdigest()


def train_and_attack(flags: argparse.Namespace, method: str, fold: int, say) -> dict:
    """Train a recipe on all folds but one and attack that one.

    Args:
        flags: of the tool.
        method: stem of the recipe.
        fold: the test split.
        say: called with a text on the progress of the run.

    Returns:
        The content of the run's file; outcomes are strings of 1 (correct) and 0, one per image of the fold.
    """
    parts = recipe([f"gin/{method}.gin", *flags.gin_file], params(flags, fold))
    measuring = who_measures(parts["evaluators"], flags.values)
    import numpy as np

    from tfrobust.evaluation.engine import loading, searching
    from tfrobust.evaluation.engine.base import Setting
    from tfrobust.evaluation.evaluators import adversarial

    dataset = parts["data"].load()
    began = time.monotonic()
    model = train(parts, dataset, say)
    trained = time.monotonic()
    (images, labels), (train_images, train_labels) = dataset.test.arrays(), dataset.train.arrays()
    setting = Setting(
        predictor=loading.from_keras(model),
        images=images,
        labels=labels,
        train_images=train_images,
        train_labels=train_labels,
        seed=parts["seed"],
        progress=lambda task, done, total: say(f"{task} {done / total:.0%}"),
    )
    outcomes = {CLEAN: setting.clean_correct}
    for evaluator in parts["evaluators"]:
        if isinstance(evaluator, adversarial.AttackAccuracy):
            result = searching.run(setting, evaluator.attack, np.arange(len(images)))
            outcomes[column(evaluator)] = ~result.success
    values = {each.id: each.value for evaluator in measuring for each in evaluator.run(setting).measurements}
    return {
        "schema": SCHEMA,
        "method": method,
        "fold": fold,
        "folds": flags.folds,
        "seed": parts["seed"],
        "epochs": parts["epochs"],
        "recipe_sha256": fingerprint(flags, method, fold),
        "source_sha256": flags.source_sha256,
        "data_fingerprint": dataset.fingerprint,
        "outcomes": {name: "".join("01"[int(right)] for right in row) for name, row in outcomes.items()},
        "values": {name: values[name] for name in flags.values},
        "seconds": {"training": trained - began, "attacks": time.monotonic() - trained},
    }


def who_measures(evaluators: tuple, wanted: list[str]) -> list:
    """Return the evaluators that produce the wanted measurement ids.

    Raises:
        InputError: no evaluator measures one of them.
    """
    known = {name: evaluator for evaluator in evaluators for name in evaluator.ids()}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise InputError(f"--values names {missing[0]!r}, which no evaluator of the gin files measures.")
    return list({id(known[name]): known[name] for name in wanted}.values())


def train(parts: dict, dataset, say):
    """Run the stages of `runs.experiment.train` without validation and publication; return the trained method."""
    import keras
    import tensorflow as tf

    from tfrobust.models.heads.linear import LinearHead
    from tfrobust.runs.stage import Stage
    from tfrobust.training import strategy as strategies

    class Epochs(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            say(f"{type(self.model).__name__}, epoch {epoch + 1} of {self.params['epochs']}")

    tf.get_logger().setLevel("ERROR")  # each model is traced anew, of which TensorFlow would warn
    strategies.set_determinism(parts.get("deterministic", "auto"))
    keras.utils.set_random_seed(parts["seed"])
    strategy = tf.distribute.get_strategy()
    encoder, head = parts["encoder"](), parts.get("head", LinearHead)
    stage = Stage(
        method=parts["method"](encoder=encoder, head=head(class_count=dataset.class_count), seed=parts["seed"]),
        dataset=dataset,
        source=parts["data"],
        epochs=parts["epochs"],
        batch_size=parts["batch_size"],
        seed=parts["seed"],
        augmentation=parts.get("augmentation"),
    )
    pretraining, first = parts.get("pretraining"), None
    if pretraining is not None:
        pretraining = dataclasses.replace(pretraining, callbacks=(*pretraining.callbacks, Epochs()))
        first = pretraining.stage(encoder, head, parts["data"], dataset, parts["seed"])
    stage.build(parts["optimizer"]())
    driven = {"checkpoint_seconds": float("inf"), "verbose": 0}
    driven["jit_compile"] = strategies.use_xla(parts.get("jit_compile", "auto"), strategy)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if first is not None:
            pretraining.run(first, strategy, folder, folder, **driven)
        stage.loop(strategy, folder, [Epochs()], **driven).run()
    return stage.method


def column(evaluator) -> str:
    """Return the column heading of an attack: its label or name, its steps, norm and epsilon."""
    from tfrobust.evaluation.evaluators.adversarial import attack_label
    from tfrobust.report.catalog.spelling import attack_name

    attack = evaluator.attack
    name = {"multi_targeted_pgd": "mPGD"}.get(attack.name, attack_name(attack.name))
    steps = f"-{attack.steps}" if attack.steps > 1 and not attack.members else ""
    given = evaluator.label and attack_label(attack, evaluator.label)
    return given or f"{name}{steps} {attack.threat.norm} {attack.threat.epsilon:.6g}"


# ------------------------------------------------------------------------------------------------------ files


def path_of(flags: argparse.Namespace, method: str, fold: int) -> pathlib.Path:
    """Return the path of a run's file."""
    return flags.output / f"{method}.fold{fold}of{flags.folds}.json"


def load(flags: argparse.Namespace, method: str, fold: int) -> dict | None:
    """Load a run's file; None if it does not exist yet.

    Raises:
        InputError: it is not readable, or of another configuration.
    """
    path, wanted = path_of(flags, method, fold), fingerprint(flags, method, fold)
    if not path.exists():
        return None
    try:
        result = json.loads(path.read_text())
        known = result["schema"] == SCHEMA and result["recipe_sha256"] == wanted
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is no result of this tool; move it away or give another --output.") from None
    if not known:
        raise InputError(f"{path} is of another configuration (gin files or flags); give another --output.")
    return result


def run_missing(flags: argparse.Namespace) -> list[dict]:
    """Run all pairs without a file, fold by fold, so that the table is always fair; return all results."""
    pairs = [(method, fold) for fold in flags.only_folds for method in flags.methods]
    results = {pair: load(flags, *pair) for pair in pairs}
    missing = [pair for pair in pairs if results[pair] is None]
    configure_all(flags, missing)
    flags.output.mkdir(parents=True, exist_ok=True)
    flags.source_sha256 = source_sha256()
    began = time.monotonic()
    print(f"{len(pairs) - len(missing)} of {len(pairs)} runs are in {flags.output}", file=sys.stderr, flush=True)
    for number, (method, fold) in enumerate(missing):
        where = f"[{number + 1}/{len(missing)}] {method} fold {fold}"
        result = train_and_attack(flags, method, fold, lambda text, where=where: say(f"{where}: {text}"))
        files.write_atomically(path_of(flags, method, fold), json.dumps(result, indent=1) + "\n")
        results[method, fold] = result
        left = (time.monotonic() - began) / (number + 1) * (len(missing) - number - 1)
        say(f"{where}: {summary(result)}, about {left / 60:.0f} min left", end="\n")
        forget()
    return list(results.values())


def configure_all(flags: argparse.Namespace, missing: list[tuple[str, int]]) -> None:
    """Configure every method to be trained first, so that a mistake in the last is found before any training.

    Raises:
        InputError: a recipe is refused, or does not measure what --values names.
    """
    for method, fold in dict(missing).items():
        try:
            parts = recipe([f"gin/{method}.gin", *flags.gin_file], params(flags, fold))
            who_measures(parts["evaluators"], flags.values)
        except InputError as error:
            raise InputError(f"{method}: {error}") from None


def summary(result: dict) -> str:
    """Format one run on one line."""
    shares = ", ".join(f"{name} {100 * row.count('1') / len(row):.1f}" for name, row in result["outcomes"].items())
    shares += "".join(f", {name} {100 * value:.1f}" for name, value in result.get("values", {}).items())
    seconds = result["seconds"]
    return f"{shares}; trained {seconds['training']:.0f} s, attacked {seconds['attacks']:.0f} s"


def forget() -> None:
    """Release the graphs of a run: those of fifty runs would fill the memory."""
    import keras

    keras.backend.clear_session()
    gc.collect()


def say(text: str, end: str = "") -> None:
    """Print a line that is overwritten on a terminal; elsewhere print only lines with an `end`."""
    terminal = sys.stderr.isatty()
    if terminal or end:
        print(f"\r{text}\x1b[K" if terminal else text, end=end, file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------------------------- command


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument(
        "--methods",
        default=",".join(DEFAULT_METHODS),
        help="stems of gin/*.gin, in the order of the rows; default: %(default)s",
    )
    flags.add_argument("--reference", default="adversarial_training", help="what the others are compared with")
    flags.add_argument("--folds", type=count, default=5, help="number of folds; default 5")
    flags.add_argument("--only_folds", help="run only these, such as 0,1; default: all")
    flags.add_argument("--epochs", type=count, help="instead of the recipes' own")
    flags.add_argument("--seed", type=int, default=0, help="of fold 0; fold k has this plus k; default 0")
    flags.add_argument("--gin_file", action="append", default=[], help="after every recipe, such as other attacks")
    flags.add_argument(
        "--gin_param",
        action="append",
        default=[],
        help="for every recipe, such as STEPS=5; {fold} in it is the fold's number",
    )
    flags.add_argument("--values", default="", help="ids of measurements, by comma, such as corruption.mean.accuracy")
    flags.add_argument(
        "--output", type=pathlib.Path, default=pathlib.Path("runs/digits_table"), help="default: %(default)s"
    )
    return flags


def take_apart(flags: argparse.Namespace) -> None:
    """Split the comma-separated flags into lists.

    Raises:
        InputError: --only_folds names no folds.
    """
    flags.methods = flags.methods.split(",")
    flags.values = [name for name in flags.values.split(",") if name]
    folds = ",".join(map(str, range(flags.folds))) if flags.only_folds is None else flags.only_folds
    if not re.fullmatch(r"\d+(,\d+)*", folds) or max(map(int, folds.split(","))) >= flags.folds:
        raise InputError(f"--only_folds is {folds}; it names folds from 0 to {flags.folds - 1}, such as 0,1.")
    flags.only_folds = [int(fold) for fold in folds.split(",")]


def run(flags: argparse.Namespace) -> None:
    """Run what is missing and print the tables."""
    take_apart(flags)
    results = run_missing(flags)
    ordered = sorted(results, key=lambda result: (flags.methods.index(result["method"]), result["fold"]))
    print(tables(ordered, flags.reference))


if __name__ == "__main__":
    sys.exit(failures.main(parser(), run))
