"""Every gin file parses, resolves and builds; each pair of encoder and method in them takes two steps."""

import json
import pathlib
import re

import gin
import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust import cli
from tfrobust.data import pipeline
from tfrobust.evaluation.base import Evaluator
from tfrobust.models.heads import LinearHead
from tfrobust.ops import configured
from tfrobust.training.workdir import canonical

ROOT = pathlib.Path(__file__).resolve().parents[2]
GIN = ROOT / "gin"
# These judge somebody's weights and train nothing; test_susceptibility_recipes.py has them.
JUDGED = sorted((GIN / "papers" / "susceptibility").glob("*imagenet*.gin"))
PAPERS = sorted(path.relative_to(GIN).as_posix() for path in {*(GIN / "papers").rglob("*.gin")} - {*JUDGED})
COMPLETE = sorted(path.name for path in GIN.glob("*.gin")) + PAPERS
HOST = "adversarial_training.gin"
PARTS = sorted(f"{folder}/{path.name}" for folder in ("data", "models") for path in (GIN / folder).glob("*.gin"))


# Half the size where the networks take it: a step costs a quarter.
ARCHIVES = {
    f"{kind}{classes}": ((size, size, 3), classes)
    for kind, size in (("cifar", 32), ("half", 16), ("large", 40))
    for classes in (10, 100)
}


@pytest.fixture(scope="session")
def archives(tmp_path_factory):
    """data set -> .npz of images shaped like its own: random, every class in train and test."""
    folder = tmp_path_factory.mktemp("archives")
    generator = np.random.default_rng(0)
    paths = {}
    for name, (shape, classes) in ARCHIVES.items():
        content = {}
        for split, count in (("", 2 * classes), ("test_", classes)):
            content[f"{split}images"] = generator.integers(0, 256, (count, *shape), np.uint8)
            content[f"{split}labels"] = np.arange(count) % classes
        paths[name] = str(folder / f"{name}.npz")
        np.savez(paths[name], **content)
    return paths


# What stands for the data of recipes that name one of these: embedded data, and little of it.
DIGITS = ["CornerDigits.source=@Digits()", "Digits.validation_size=200", "CornerDigits.centre=20"]
EMBEDDED = {
    "mnist": [*DIGITS, "CornerDigits.per_class=5", "CornerDigits.balanced=1"],
    "sst2": ["DATA=@SentimentGrammar()", "TextTransformer.vocabulary_size=170"],
}
# Shape and classes by kind of data, where it is not images of 8x8.
SHAPES = {"CornerDigits": ((28, 28, 1), 15), "SentimentGrammar": ((16,), 2), "Sst2": ((64,), 2)}


def data_of(name: str) -> str | None:
    """Which archive stands for the data of a gin file; None for the embedded digits."""
    if "papers/" not in name or any(data in name for data in EMBEDDED):
        return None
    kind = "half" if re.search(r"noisymix/(base_)?cifar|resnet56|susceptibility/|simclr_tikhonov/", name) else "cifar"
    if "fcl/imagenet" in name:
        kind = "large"  # its 2,048 least and 2,048 most useful values do not fit into 32x32x3
    return f"{kind}100" if "cifar100" in name else f"{kind}10"


def arguments(*names: str, params=()) -> dict:
    """What `experiment.train` would be given: constructors and built parts, as gin hands them over."""
    cli.configure([str(GIN / name) for name in names], list(params))
    return gin.get_bindings("tfrobust.experiment.train", resolve_references=True)


def instead(archive: str | None) -> list[str]:
    return [] if archive is None else ["DATA=@Npz()", f"Npz.path={archive!r}"]


def text(configurable) -> str:
    return json.dumps(canonical(configured.serialize(configurable)), sort_keys=True)


_BUILT: dict = {}


def built_encoder(encoder, shape: tuple):
    """One built encoder for each configuration: building a ResNet takes longer than all the rest.

    A test that trains it puts its weights back.
    """
    found = _BUILT.setdefault((text(encoder), shape), encoder)
    found.build((None, *shape))
    return found


def build(given: dict, shape: tuple, class_count: int, *, shared: bool):
    """The method as `experiment.train` builds it."""
    encoder = given["encoder"]()
    if shared:
        encoder = built_encoder(encoder, shape)
    head = given.get("head", LinearHead)(class_count=class_count)
    method = given["method"](encoder=encoder, head=head, seed=given["seed"])
    if hasattr(method, "examples"):
        method.examples = 2 * class_count  # the training does so
    method.build((None, *shape))
    method.compile(optimizer=given["optimizer"](), jit_compile=False)
    return method


def first_stage(given: dict) -> dict:
    """What trains first: of two stages the pre-training, else all there is."""
    pretraining = given.get("pretraining")
    if pretraining is None:
        return given
    return given | {name: getattr(pretraining, name) for name in ("method", "optimizer", "batch_size", "augmentation")}


@pytest.mark.parametrize("name", COMPLETE)
def test_a_complete_file_builds(name):
    archive = data_of(name)
    given = arguments(name)
    embedded = SHAPES.get(type(given["data"]).__name__, ((8, 8, 1), 10))
    shape, classes = embedded if archive is None else ARCHIVES[archive]
    for stage in [given, first_stage(given)][: 1 + ("pretraining" in given)]:
        method = build(stage, shape, classes, shared=True)
        method.optimizer.iterations.assign(1)  # a rate may rise from 0
        assert method.count_params() > 0 and float(method.optimizer.learning_rate) > 0
    assert given["evaluators"] and all(isinstance(evaluator, Evaluator) for evaluator in given["evaluators"])
    assert given["name"] == pathlib.Path(name).stem
    ids = [identity for evaluator in given["evaluators"] for identity in evaluator.ids()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", PARTS)
def test_a_part_behind_a_method_builds(name, archives):
    given = arguments(HOST, name)
    if name.startswith("models/"):
        shape = (28, 28, 1) if "mnist" in name else (32, 32, 3)
        method = build(given, shape, 10, shared=True)
        assert method.compute_output_shape((2, *shape)) == (2, 10)
    elif name == "data/npz.gin":
        dataset = arguments(HOST, name, params=[f"Npz.path={archives['cifar10']!r}"])["data"].load()
        assert dataset.sizes == {"train": 18, "validation": 2, "test": 10}
    else:
        assert configured.deserialize(configured.serialize(given["data"])) == given["data"]  # touches no disk


def test_no_file_includes_another_twice():
    for path in GIN.rglob("*.gin"):
        included = re.findall(r"^include .*$", path.read_text(), re.MULTILINE)
        assert len(included) == len(set(included)), path.relative_to(GIN)


def test_a_label_takes_the_steps_that_it_names_from_the_attack():
    """A number of its own would stay behind where another file takes more steps."""
    texts = (path.read_text() for path in GIN.rglob("*.gin"))
    labels = [line for text in texts for line in re.findall(r"^\S*\.label *=.*$", text, re.MULTILINE)]
    assert labels and not [line for line in labels if re.search(r"\d", line)]


@pytest.mark.parametrize("name", sorted(path.name for path in (GIN / "eval").glob("*.gin")))
def test_an_evaluation_file_builds_and_obeys_the_knobs(name):
    cli.configure([str(GIN / "eval" / name)], ["EPSILON=0.07", "NORM='l2'"])
    evaluators = gin.get_bindings("tfrobust.experiment.evaluate", resolve_references=True)["evaluators"]
    attacks = [evaluator.attack for evaluator in evaluators if getattr(evaluator, "attack", None) is not None]
    text = (GIN / "eval" / name).read_text()
    assert bool(attacks) != ("include 'base/evaluators.gin'" in text)  # which has no threat to attack by
    assert all((a.threat.norm, a.threat.epsilon) == ("l2", 0.07) for a in attacks)


# ------------------------------------------------------------------------------------------------- two steps


def first_of_each_pair() -> list:
    """The first complete file of each (encoder, method, kind of views); found once, when tests are collected."""
    found = {}
    for name in COMPLETE:
        # The encoder from the files' text, so that collecting imports nothing: what differs is said by its folder.
        *folders, file = name.split("/")
        networks = "transfer released resnet50 cnn resnet20 resnet18 wrn28 resnet56 lenet sst2".split()
        networks = networks if folders else ("text",)
        encoder = next((part for part in networks if part in file), "resnet20" if folders else "digits")
        classes = "cifar100" if encoder == "cnn" and "cifar100" in file else ""
        found.setdefault((*folders[1:], encoder + classes, _method_of(name)), name)
    return [pytest.param(name, id="-".join(pair)) for pair, name in found.items()]


def _method_of(name: str) -> str:
    """What trains first: the last to be set, includes included; the released code's views are a kind of their own."""
    lines = list(_lines(name, set()))
    words = ("Pretraining.method = ", "METHOD = ")
    first, second = ([line.partition("@")[2].split()[0] for line in lines if line.startswith(word)] for word in words)
    return (first or second)[-1] + ("-two-transforms" if "released" in name else "")


def _lines(name: str, seen: set):
    """The lines of a file, with those of its includes where they first stand."""
    seen.add(name)
    for line in (GIN / name).read_text().splitlines():
        included = line.split("'")[1] if line.startswith("include '") else None
        if included is None:
            yield line
        elif included not in seen:
            yield from _lines(included, seen)


def check_two_steps(method, batches):
    """Train with a small rate: a batch of 4 at a recipe's own makes a deep untrained network diverge."""
    method.optimizer.learning_rate = keras.optimizers.schedules.ExponentialDecay(1e-4, 1, 1.0)
    before = [variable.numpy() for variable in method.trainable_variables]
    for batch in batches.take(2):
        logs = {key: float(value) for key, value in method.train_step(batch).items()}
    assert {"loss", *method.terms} <= set(logs) and all(map(np.isfinite, logs.values())), logs
    assert int(method.step) == 2
    moved = [np.any(new.numpy() != old) for new, old in zip(method.trainable_variables, before, strict=True)]
    assert all(moved), [v.path for v, has in zip(method.trainable_variables, moved, strict=True) if not has]


@pytest.mark.parametrize("name", first_of_each_pair())
def test_a_pair_of_encoder_and_method_takes_two_steps(name, archives):
    archive = data_of(name) and archives[data_of(name)]
    small = next((params for data, params in EMBEDDED.items() if data in name), [])
    small = ["ResNet50.resize_to=32"] if "transfer_" in name else small
    given = arguments(name, params=[*instead(archive), "STEPS=1", "BATCH_SIZE=4", *small])
    given, dataset = first_stage(given), given["data"].load()
    shared = "papers/ascl" not in name and "papers/" in name
    method = build(given, dataset.image_shape, dataset.class_count, shared=shared)
    batches = pipeline.training_batches(
        dataset.train, batch_size=given["batch_size"], seed=0, augmentation=given.get("augmentation")
    )
    initial = method.encoder.get_weights()
    try:
        check_two_steps(method, batches)
    finally:
        method.encoder.set_weights(initial)  # other cases start from them
    if getattr(method, "adversary", None) is not None:
        assert method.adversary.attack.steps == 1


def test_the_pairs_are_all_of_them():
    """What the text says of encoder and method is what gin builds, and no pair is left out."""
    pairs = {}
    for name in COMPLETE:
        given = first_stage(arguments(name))
        encoder = given["encoder"]
        settings = gin.get_bindings(f"{encoder.__module__}.{encoder.__name__}", resolve_references=True)
        settings = {key: value for key, value in settings.items() if key not in ("pixel_mean", "pixel_std")}
        pair = (encoder.__name__, json.dumps(settings, sort_keys=True), given["method"].__name__, data_of(name) is None)
        pairs.setdefault(pair, []).append(name)
    tested = {parameter.values[0] for parameter in first_of_each_pair()}
    untested = [names for names in pairs.values() if not tested & set(names)]
    assert untested == []


# ---------------------------------------------------------------------------------------------- the command


def test_the_command_prints_a_recipe_s_cost(archives, tmp_path, monkeypatch, capsys):
    from tfrobust import train

    monkeypatch.chdir(tmp_path)
    flags = [f"--gin_param={param}" for param in [*instead(archives["cifar10"]), "BATCH_SIZE=20"]]
    code = train.main(["--gin_file=gin/papers/ascl/cifar10_resnet20_ascl_leaked.gin", *flags, "--dry_run"])
    said = capsys.readouterr().out
    assert code == 0 and "12 forward and backward passes over the batch a step, 2400 in all" in said
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_without_validation_split_trains_reports_and_publishes(archives, tmp_path, monkeypatch):
    from tfrobust import train

    monkeypatch.chdir(tmp_path)
    params = [*instead(archives["cifar10"]), "EPOCHS=1", "BATCH_SIZE=4", "STEPS=1", "EVALUATORS=[@CleanAccuracy()]"]
    flags = [f"--gin_param={param}" for param in params]
    assert train.main(["--gin_file=gin/papers/ascl/cifar10_cnn_adv.gin", *flags]) == 0
    report = json.loads((tmp_path / "runs/cifar10_cnn_adv/robustness_report.json").read_text())
    assert report["data"]["validation_size"] == 0 and report["data"]["train_size"] == 20
    assert (tmp_path / "exported/cifar10_cnn_adv/1/saved_model.pb").is_file()
    assert tf.saved_model.contains_saved_model(str(tmp_path / "exported/cifar10_cnn_adv/1"))
