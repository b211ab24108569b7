"""Which names resolve, and which must not."""

import inspect
import pathlib
import sys
import tomllib

import gin
import pytest
import stored

from tfrobust.commands.configuration import parameters, registry
from tfrobust.errors import InputError

TABLES = tomllib.loads(pathlib.Path(__file__).with_name("tables.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def configurables():
    return registry.collect()


@pytest.mark.parametrize(("selector", "complete"), TABLES["complete"])
def test_resolves(configurables, selector, complete):
    assert configurables.resolve(selector, "here") == complete


@pytest.mark.parametrize("selector", TABLES["unknown"])
def test_does_not_resolve(configurables, selector):
    with pytest.raises(InputError, match="there is no"):
        configurables.resolve(selector, "here")


def test_short_names_resolve(configurables):
    assert {
        configurables.resolve(configurables.short(complete), "here") == complete for complete in configurables.objects
    } == {True}
    assert configurables.short("keras.optimizers.SGD") == "SGD"
    assert configurables.short("tfrobust.methods.ascl.ASCL") == "ASCL"
    assert configurables.short("tfrobust.losses.classification.cross_entropy") == "classification.cross_entropy"


def test_a_complete_name_of_a_former_module_is_answered_with_the_short_one(configurables):
    with pytest.raises(
        InputError, match=r"no 'tfrobust\.evaluation\.accuracy\.CleanAccuracy'; nearest: CleanAccuracy$"
    ):
        configurables.resolve("tfrobust.evaluation.accuracy.CleanAccuracy", "config.gin")
    with pytest.raises(InputError, match=r"nearest: \w+\.cross_entropy, \w+\.cross_entropy$"):
        configurables.resolve("tfrobust.cross_entropy_loss.cross_entropy", "config.gin")


def test_everything_named_is_public_and_defined_where_it_says(configurables):
    for complete, item in configurables.objects.items():
        module, _, name = complete.rpartition(".")
        assert not name.startswith("_") and not name == "keras"
        if module.startswith("tfrobust."):
            assert item.__module__ == module and item.__name__ == name
            assert module.split(".")[1] not in ("train", "evaluate", "export", "compare", "query", "commands")


def test_classes_have_names_of_their_own(configurables):
    """A gin file may name every class of ours by its last name alone."""
    ours = [
        name for name, item in configurables.objects.items() if isinstance(item, type) and name.startswith("tfrobust.")
    ]
    last = [name.rpartition(".")[2] for name in ours]
    assert sorted(name for name in ours if last.count(name.rpartition(".")[2]) > 1) == []


def test_a_module_of_the_users_own(tmp_path, monkeypatch):
    parts = "import os, gin\nclass Hers: pass\n@gin.configurable\ndef make(): pass\n_hidden = make\n"
    (tmp_path / "her_parts.py").write_text(parts)
    monkeypatch.syspath_prepend(tmp_path)
    gin.finalize()  # as an earlier configuration of the process leaves it
    configurables = registry.collect(["her_parts"])
    sys.modules.pop("her_parts")
    assert configurables.resolve("Hers", "here") == "her_parts.Hers"
    assert configurables.resolve("her_parts.make", "here") == "her_parts.make"
    with pytest.raises(InputError):
        configurables.resolve("her_parts.os", "here")


@pytest.mark.parametrize("text", ["raise ZeroDivisionError('why')", None])
def test_a_module_that_cannot_be_imported_is_one_line(tmp_path, monkeypatch, text):
    if text is not None:
        (tmp_path / "her_broken.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="--gin_import=her_broken: (ZeroDivisionError: why|ModuleNotFoundError)"):
        registry.collect(["her_broken"])


# Names of arguments that are paths, or data that are found by a path; a new one is added here and annotated.
PATHS = set(stored.table(globals(), "paths"))


def test_every_argument_that_names_a_file_is_marked():
    """`--dry_run` lists the marked ones."""
    objects = registry.collect().objects
    texts = (str, str | None, str | dict, tuple[str, ...])
    for name, item in objects.items():
        layers = ("tfrobust.data.", "tfrobust.evaluation.evaluators.", "tfrobust.models.backbone", "tfrobust.runs.in")
        if not inspect.isclass(item) or not name.startswith(layers) or not hasattr(item, "get_config"):
            continue
        by_name = parameters.parameters(item)
        unmarked = (PATHS & set(by_name)) - parameters.names_outside(item)
        assert not [argument for argument in unmarked if by_name[argument].hint in texts], name


def test_objects_that_write_are_not_offered():
    names = registry.collect().objects
    assert not [name for name in names if name.endswith((".BestWeights", ".CheckpointStore", ".Throughput", ".Loop"))]
