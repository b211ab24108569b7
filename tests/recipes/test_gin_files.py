"""Every gin file parses, resolves and builds; each network and each method of the recipes takes a step.

What the papers' recipes hold is tested beside this file, each by its paper.
"""

import inspect
import json
import pathlib
import re
import shlex

import gin
import keras
import make_recipe_tables as tables
import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance import recipes
from conformance.recipes import GIN, arguments, check_complete, first_stage, rates
from tfrobust import keras as robust
from tfrobust.commands.configuration import files
from tfrobust.commands.run import configure
from tfrobust.common import configured
from tfrobust.data import pipeline
from tfrobust.models.heads.linear import LinearHead
from tfrobust.ops import keras_private, schedules

HOST = "adversarial_training.gin"
PARTS = sorted(f"{folder}/{path.name}" for folder in ("data", "models") for path in (GIN / folder).glob("*.gin"))
# Method -> its file, which has the name of its module. That takes a step.
RECIPES = {
    name: cls.__module__.rpartition(".")[2]
    for name, cls in vars(robust.methods).items()
    if inspect.isclass(cls) and issubclass(cls, robust.methods.Method) and cls is not robust.methods.Method
}
# Method -> its other files, which are built.
VARIANTS = stored.table(globals(), "variants")
METHODS = {method: f"{recipe} {VARIANTS.get(method, '')}" for method, recipe in RECIPES.items()}
FILES = [pytest.param(method, name, id=name) for method, names in METHODS.items() for name in names.split()]
EVALUATED = ("imagenet_resnet50", "imagenet_vit_base16", "imagenet_c_resnet50", "r2plus1d18")
BASES = [f"{paper}/{base}" for paper in tables.papers() for base in tables.bases(paper) if base not in EVALUATED]
STEPS = {names.split()[0]: method for method, names in METHODS.items()}
STEPS |= {"fcl_text": "FCL", "supervised_text": "Supervised", "moco_v3_vit": "MoCoV3", "dino_vit": "DINO"} | {
    name: kind for name, (_, kind) in recipes.TRACED.items()
}

# Half the size where the networks take it: a step costs a quarter.
ARCHIVES = {
    f"{kind}{classes}": ((size, size, 3), classes)
    for kind, size in (("half", 16), ("cifar", 32))
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
SHAPES = stored.table(globals(), "shapes")


def data_of(name: str) -> str | None:
    """Which archive stands for the data of a recipe; None for the embedded digits."""
    if "/" not in name or any(data in name for data in EMBEDDED):
        return None
    kind = "cifar" if "imagenet" in name else "half"
    return f"{kind}100" if "cifar100" in name else f"{kind}10"


def instead(archive: str | None) -> list[str]:
    return [] if archive is None else ["DATA=@Npz()", f"Npz.path={archive!r}"]


def build(bindings: dict, shape: tuple, class_count: int):
    """The method as `runs.experiment.train` builds it."""
    head = bindings.get("head", LinearHead)(class_count=class_count)
    method = bindings["method"](encoder=bindings["encoder"](), head=head, seed=bindings["seed"])
    if hasattr(method, "examples"):
        method.examples = 2 * class_count  # the training does so
    method.build((None, *shape))
    optimizer = bindings["optimizer"]()
    for schedule in schedules.over_training([method, keras_private.learning_rate(optimizer)]):
        schedule.begin(10)
    method.compile(optimizer=optimizer, jit_compile=False)
    return method


def test_each_complete_file_is_in_the_table():
    assert sorted(name for names in METHODS.values() for name in names.split()) == sorted(
        path.stem for path in GIN.glob("*.gin")
    )


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_a_complete_file_builds(kind, name):
    bindings = arguments(f"{name}.gin")
    check_complete(bindings, name)
    shape, classes = SHAPES.get(type(bindings["data"]).__name__, ((8, 8, 1), 10))
    for stage in [bindings, first_stage(bindings)][: 1 + ("pretraining" in bindings)]:
        method = build(stage, shape, classes)
        method.optimizer.iterations.assign(1)  # a rate may rise from 0
        assert method.count_params() > 0 and float(method.optimizer.learning_rate) > 0
    assert type(method).__name__ == kind


@pytest.mark.parametrize("name", BASES)
def test_the_base_of_recipes_is_complete(name):
    bindings = recipes.recipe(name)
    check_complete(bindings, pathlib.Path(name).stem)
    assert recipes.method_of(first_stage(bindings)).terms and bindings["encoder"]().dim


@pytest.mark.parametrize("name", PARTS)
def test_a_part_behind_a_method_builds(name, archives):
    params = ["EPSILON=0.1"] if name.startswith("data/") else []  # own data have no default
    bindings = arguments(HOST, name, params=params)
    if name.startswith("models/"):
        shape = (28, 28, 1) if "mnist" in name else (4, 32, 32, 3) if "r2plus1d" in name else (32, 32, 3)
        assert build(bindings, shape, 10).compute_output_shape((2, *shape)) == (2, 10)
    elif name == "data/npz.gin":
        dataset = arguments(HOST, name, params=[*params, f"Npz.path={archives['cifar10']!r}"])["data"].load()
        assert dataset.sizes == {"train": 18, "validation": 2, "test": 10}
    else:
        assert configured.deserialize(configured.serialize(bindings["data"])) == bindings["data"]  # touches no disk


@pytest.mark.parametrize("name", ["cnn", "gowal_medium", "gowal_small", "trades_small", "wong_kolter_small"])
def test_a_network_is_the_same_after_data_with_another(name):
    before = [], ["data/fashion_mnist.gin"]
    networks = [arguments(HOST, *files, f"models/{name}.gin")["encoder"](name="network") for files in before]
    assert networks[0].get_config() == networks[1].get_config()


@pytest.mark.parametrize("name, millions", stored.rows(globals(), "the_published_networks_for_28x28_images_have_the"))
def test_the_published_networks_for_28x28_images_have_the_published_multiply_adds(name, millions):
    method = build(arguments(HOST, f"models/{name}.gin"), (28, 28, 1), 10)
    shape, count = (1, 28, 28, 1), 0
    for layer in (layer for stage in method.encoder.stage_layers for layer in stage):
        shape = layer.compute_output_shape(shape)
        count += sum(v.shape[:-1].num_elements() * np.prod(shape) for v in layer.variables if len(v.shape) == 4)
    count += sum(np.prod(v.shape) for v in method.variables if len(v.shape) == 2)
    assert count / 1e6 == pytest.approx(millions, rel=0.005)


class Never(set):
    """A set that forgets: with it an include is read again, as plain gin does."""

    def __contains__(self, _):
        return False


@pytest.mark.parametrize("paper", ["", *tables.papers()])
def test_plain_gin_reads_the_same(paper):
    """gin reads an include each time, tfrobust at its first mention: the last statements must be equal."""
    runs = [row.files for row in tables.rows(paper)] if paper else [[path] for path in GIN.rglob("*.gin")]
    for run in runs:
        once, plain = (
            {
                (statement.scope, statement.selector, statement.argument): statement.value
                for file in run
                for statement in files._read_file(GIN / file, (), seen)
            }
            for seen in (set(), Never())
        )
        assert once == plain, run


def test_the_papers_files_are_few_flat_and_all_used():
    def depth(path):
        return 1 + max(
            (depth(GIN / name) for name in re.findall(r"^include '(.*)'", path.read_text(), re.M)), default=0
        )

    paths = sorted((GIN / "papers").rglob("*.gin"))
    assert len(paths) <= 98 and max(map(depth, paths)) <= 4
    used = {GIN / file for row in recipes.ROWS.values() for file in row.files}
    used |= {GIN / f"papers/{name}.gin" for name in BASES}
    used |= {GIN / name for path in paths for name in re.findall(r"^include '(.*)'", path.read_text(), re.M)}
    assert set(paths) <= used


def test_the_pages_of_the_papers_are_current():
    assert list(tables.stale(tables.paper_pages())) == [], "run python tools/make_recipe_tables.py"


@pytest.mark.rest
def test_the_page_of_the_recipes_is_current():
    assert tables.RECIPES.read_text("utf-8") == tables.recipes_page(), "run python tools/make_recipe_tables.py"


def test_the_recipes_name_their_terms_stage_by_stage():
    """A table of literals: the page's terms are the code's, so the page cannot be its own check."""
    expected = {"trades": "`ce`, `kl`", "fcl": "`ce`, `feature_contrast`", "byol": "`regression`, `probe`; then `ce`"}
    expected["adr"] = "`ce`, `ce_adv`, `local_compactness`, `local_smoothness`, `global_compactness`, "
    expected["adr"] += "`global_smoothness` (weight 0), `confidence`"
    for name, terms in expected.items():
        assert "; then ".join(map(tables.terms_of, tables.built_stages(GIN / f"{name}.gin"))) == terms
    trades = "| `gin/trades.gin` | TRADES (Zhang et al. 2019), beta = 6 | `robust.methods.TRADES` | `ce`, `kl` |"
    assert trades in tables.RECIPES.read_text("utf-8").splitlines()


def test_a_missing_and_a_changed_page_are_not_current(tmp_path, monkeypatch, capsys):
    pages = {tmp_path / "a.md": "current", tmp_path / "b.md": "current", tmp_path / "c.md": "current"}
    (tmp_path / "a.md").write_text("current")
    (tmp_path / "b.md").write_text("old")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "RECIPES", tmp_path / "a.md")
    monkeypatch.setattr(tables, "recipes_page", lambda: "current")
    monkeypatch.setattr(tables, "paper_pages", lambda: pages)
    assert tables.main(["--check"]) == 1
    assert capsys.readouterr().out == "b.md is not current\nc.md is not current\n"
    assert tables.main([]) == 0 and tables.main(["--check"]) == 0


def test_a_label_takes_the_steps_that_it_names_from_the_attack():
    """A number of its own would stay behind where another file takes more steps."""
    texts = (path.read_text() for path in GIN.rglob("*.gin"))
    labels = [line for text in texts for line in re.findall(r"^\S*\.label *=.*$", text, re.MULTILINE)]
    assert labels and not [line for line in labels if re.search(r"\d", line)]


@pytest.mark.parametrize("name", sorted(path.name for path in (GIN / "eval").glob("*.gin")))
def test_an_evaluation_file_builds_and_obeys_the_knobs(name):
    configure([str(GIN / "eval" / name)], ["EPSILON=0.07", "NORM='l2'"])
    evaluators = gin.get_bindings("tfrobust.runs.experiment.evaluate", resolve_references=True)["evaluators"]
    attacks = [evaluator.attack for evaluator in evaluators if getattr(evaluator, "attack", None) is not None]
    text = (GIN / "eval" / name).read_text()
    if "RADII = " not in text:  # the radii of several norms
        assert bool(attacks) != ("include 'base/evaluators.gin'" in text)  # which has no threat to attack by
        assert all((a.threat.norm, a.threat.epsilon) == ("l2", 0.07) for a in attacks)


def test_a_budget_for_frames_reaches_all_attacks_of_a_run():
    limits = ["training/ThreatModel.max_frames=3", "evaluation/ThreatModel.per_frame=True", "EPSILON=0.1"]
    bindings = arguments(HOST, "models/r2plus1d18.gin", params=limits)
    ids = [name for evaluator in bindings["evaluators"] for name in evaluator.ids() if name.startswith("attack.")]
    assert all("_linf_0.1_per_frame." in name for name in ids if not name.endswith("curve"))
    assert "attack.apgd_linf_0.1_per_frame.apgd_t.accuracy" in ids and "attack.pgd_linf_per_frame.curve" in ids
    assert gin.query_parameter("training/ThreatModel.max_frames") == 3


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_every_training_run_has_the_first_members_of_autoattack(norm):
    configure([str(GIN / "eval" / "standard.gin")], ["EPSILON=0.07", f"NORM={norm!r}"])
    evaluators = gin.get_bindings("tfrobust.runs.experiment.train", resolve_references=True)["evaluators"]
    (ensemble,) = [evaluator.attack for evaluator in evaluators if getattr(evaluator, "label", None) == "apgd"]
    official = robust.attacks.AutoAttack(robust.attacks.ThreatModel(norm=norm, epsilon=0.07)).members[:2]
    assert list(map(configured.serialize, ensemble.members)) == list(map(configured.serialize, official))


@pytest.mark.parametrize(
    "name, kind",
    [pytest.param(*step, id=f"{'papers/' * ('/' in step[0])}{step[0]}.gin-{step[1]}") for step in STEPS.items()],
)
def test_a_network_and_a_method_take_a_step(name, kind, archives):
    archive = data_of(name) and archives[data_of(name)]
    small = next((params for data, params in EMBEDDED.items() if data in name), [])
    bindings = first_stage(recipes.recipe(name, [*instead(archive), "STEPS=1", "BATCH_SIZE=4", *small]))
    dataset = bindings["data"].load()
    method = build(bindings, dataset.image_shape, dataset.class_count)
    traced = recipes.TRACED.get(name, (type(method.encoder).__name__, kind))
    assert traced == (type(method.encoder).__name__, type(method).__name__)
    if getattr(method, "adversary", None) is not None:
        assert method.adversary.attack.steps == 1
    if hasattr(method, "helper"):
        method.helper = lambda images: tf.reshape(images, [len(images), -1])[:, : dataset.class_count]
    if hasattr(method, "frozen_steps"):
        method.frozen_steps = 0  # or prototypes would not move in the first step
    # A batch of 4 at a recipe's own rate makes a deep untrained network diverge.
    method.optimizer.learning_rate = keras.optimizers.schedules.ExponentialDecay(1e-4, 1, 1.0)
    before = [variable.numpy() for variable in method.trainable_variables]
    batches = pipeline.training_batches(dataset.train, batch_size=4, seed=0, augmentation=bindings.get("augmentation"))
    logs = {key: float(value) for key, value in method.train_step(next(iter(batches))).items()}
    assert {"loss", *method.terms} <= set(logs) and all(map(np.isfinite, logs.values())), logs
    moved = [np.any(new.numpy() != old) for new, old in zip(method.trainable_variables, before, strict=True)]
    assert all(moved), [v.path for v, has in zip(method.trainable_variables, moved, strict=True) if not has]


@pytest.mark.rest
def test_a_transformer_of_full_size_takes_an_adversarial_step_on_images_of_imagenet_s_size(tmp_path):
    """The command in the comment of vit_small16.gin, with two images of 256x320 pixels and random weights."""
    text = (GIN / "models" / "vit_small16.gin").read_text().replace("\n#", " ")
    command = shlex.split(re.search(r"python -m tfrobust.train .*?(?=\n)", text).group())
    files = [word.partition("=gin/")[2] for word in command if word.startswith("--gin_file")]
    params = [word.partition("=")[2] for word in command if word.startswith("--gin_param")]
    pixels = np.random.default_rng(0).integers(0, 256, (4, 256, 320, 3), np.uint8)
    for number, image in enumerate(pixels):
        path = tmp_path / ("train", "test")[number // 2] / f"class{number % 2}" / "0.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(tf.io.encode_png(image).numpy())
    instead = [f"ImageFolder.path={str(tmp_path)!r}", "ImageFolder.validation_size=0", "BATCH_SIZE=2"]
    bindings = recipes.arguments(*files, params=[*params, *instead])
    dataset = bindings["data"].load()
    assert dataset.image_shape == (224, 224, 3) and bindings["pretrained"].path == "data/vit_small16.safetensors"
    assert rates(bindings["optimizer"](), (0, 6255, 62_550)) == pytest.approx([0, 5e-4, 0], abs=1e-9)
    method = build(bindings, dataset.image_shape, 1000)
    assert sum(int(np.prod(v.shape)) for v in method.trainable_variables) == 22_050_664
    method.optimizer.iterations.assign(1)  # the rate rises from 0
    batches = pipeline.training_batches(dataset.train, batch_size=2, seed=0, augmentation=bindings["augmentation"])
    before = [variable.numpy() for variable in method.trainable_variables]
    logs = method.train_step(next(iter(batches)))
    assert all(np.isfinite(float(value)) for value in logs.values()), logs
    assert all(np.any(new.numpy() != old) for new, old in zip(method.trainable_variables, before, strict=True))


# ---------------------------------------------------------------------------------------------- the command


def test_the_command_prints_a_recipe_s_cost(archives, tmp_path, monkeypatch, capsys):
    from tfrobust.commands import train

    monkeypatch.chdir(tmp_path)
    flags = [f"--gin_param={param}" for param in [*instead(archives["cifar10"]), "BATCH_SIZE=20"]]
    row = shlex.split(recipes.ROWS["ascl/cifar10_resnet20_ascl_leaked"].command)[3:]
    code = train.main([*row, *flags, "--dry_run"])
    output = capsys.readouterr().out
    assert code == 0 and "12 forward and backward passes over the batch per step, 2400 in total" in output
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_without_validation_split_trains_reports_and_publishes(archives, tmp_path, monkeypatch):
    from tfrobust.commands import train

    monkeypatch.chdir(tmp_path)
    params = [*instead(archives["half10"]), "EPOCHS=1", "BATCH_SIZE=4", "STEPS=1", "EVALUATORS=[@CleanAccuracy()]"]
    flags = [f"--gin_param={param}" for param in params]
    assert train.main([*shlex.split(recipes.ROWS["ascl/cifar10_cnn_adv"].command)[3:], *flags]) == 0
    report = json.loads((tmp_path / "runs/cifar10_cnn_adv/robustness_report.json").read_text())
    assert report["data"]["validation_size"] == 0 and report["data"]["train_size"] == 20
    assert tf.saved_model.contains_saved_model(str(tmp_path / "exported/cifar10_cnn_adv/1"))


@pytest.mark.rest
@pytest.mark.skipif(
    not pathlib.Path(robust.data.FashionMnist.folders[0]).is_dir(),
    reason="Fashion-MNIST is not installed: apt-get install dataset-fashion-mnist",
)
def test_real_images_are_trained_on_and_published(tmp_path, monkeypatch):
    from tfrobust.commands import train

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    params = ["NAME='clothes'", "EPOCHS=1", "STEPS=1", "BATCH_SIZE=1000", "train.validation=None"]
    params += ["apgd/AttackAccuracy.limit=20", "EVALUATORS=[@CleanAccuracy(), @apgd/AttackAccuracy()]"]
    flags = ["--gin_file=gin/trades.gin", "--gin_file=gin/data/fashion_mnist.gin"]
    assert train.main([*flags, *(f"--gin_param={param}" for param in params)]) == 0
    report = json.loads((tmp_path / "runs/clothes/robustness_report.json").read_text())
    measurements = {
        measurement["id"]: (measurement["value"], measurement["n"]) for measurement in report["measurements"]
    }
    accuracy, count = measurements["accuracy.clean"]
    assert accuracy > 0.4 and count == 10_000  # one in ten by chance
    assert measurements["attack.apgd_linf_0.1.accuracy"][1] == 20
    assert report["data"]["source"]["config"]["path"] is None and report["data"]["train_size"] == 55_000
