"""Data sources that a stranger's report describes: the library's own, with arguments that fit, and nothing else."""

import copy
import importlib
import json
import time

import pytest
import stored

from tfrobust.common import configured
from tfrobust.data import description
from tfrobust.data.description import described_source
from tfrobust.data.wordpiece import WordPiece
from tfrobust.errors import InputError
from tfrobust.keras import data
from tfrobust.keras.models import Backbone

SOURCES = stored.table(globals(), "sources")
NAMES = [type(source).__name__ for source in SOURCES]


def described(source) -> dict:
    return json.loads(json.dumps(configured.serialize(source)))


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_sources_of_the_library_come_back_without_downloads(source):
    assert described_source(described(source)) == source
    if hasattr(source, "download"):
        assert not described_source(described(type(source)(dataset="mnist", download=True))).download


VALUES = (None, True, -1, 10**6, 2**62, 0.5, "x", "gs://bucket/x", "/dev/zero", [], [-1, 2], ["a"], {}, [2**40] * 3)


@pytest.mark.rest
@pytest.mark.parametrize("source", [source for source in SOURCES if type(source) is not data.SentimentGrammar], ids=str)
def test_any_value_of_any_argument_loads_or_is_refused(source):
    document = described(source)
    for name in document["config"]:
        for value in VALUES:
            changed = copy.deepcopy(document)
            changed["config"][name] = value
            began = time.monotonic()
            try:
                described_source(changed).load()
            except (InputError, FileNotFoundError) as error:
                assert len(str(error)) <= 300
            assert time.monotonic() - began < 20


def changed(source, /, **config) -> dict:
    document = described(source)
    return {**document, "config": {**document["config"], **config}}


BACKBONE = {"module": "tfrobust.models.backbone", "class_name": "Backbone", "registered_name": "tfrobust>Backbone"}
BACKBONE |= {"config": {"preset": "hf://me/small"}}
NESTED = described(data.Digits())
for _ in range(200):
    NESTED = changed(data.LabelledFraction(source=data.Digits(), fraction=0.5), source=NESTED)
REFUSED = stored.cases(__file__, "descriptions", globals())


@pytest.mark.parametrize("name", REFUSED)
def test_anything_else_is_refused(name, monkeypatch):
    monkeypatch.setattr(Backbone, "__init__", lambda *_, **__: pytest.fail("it was built"))
    document, message = REFUSED[name]
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        described_source(document)


def test_a_class_of_ones_own_is_named_by_the_module_that_a_flag_imports(tmp_path, monkeypatch):
    (tmp_path / "my_table.py").write_text(
        "import dataclasses, keras\nfrom tfrobust import keras as robust\n\n\n"
        "@keras.saving.register_keras_serializable(package='mine')\n@dataclasses.dataclass(frozen=True, kw_only=True)\n"
        "class Table(robust.data.Source):\n    path: str\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = importlib.import_module("my_table").Table(path="rows.txt")
    document = described(source)
    with pytest.raises(
        InputError, match="'mine>Table', which a report must not name; if it is .*--gin_import=my_table$"
    ):
        described_source(document)
    try:
        description.trust(["my_table"])
        assert described_source(document) == source
    finally:
        description.trust([])


def test_relative_paths_are_also_taken_from_the_folder_that_a_report_names(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.npz").touch()
    source = data.Npz(path="a.npz")
    monkeypatch.chdir(tmp_path / "there")
    assert description.relative_paths(source) == {"path": "a.npz"} and not description.relative_paths(
        data.Npz(path="b.npz")
    )
    assert description.placed(source, "/elsewhere") == source
    monkeypatch.chdir(tmp_path)
    assert description.placed(source, f"{tmp_path}/there") == data.Npz(path=f"{tmp_path}/there/a.npz")
    for folder in (None, 3, "gs://there", f"{tmp_path}/none", "a\x1b"):
        assert description.placed(source, folder) == source


def test_relative_paths_of_the_parts_of_a_source_are_moved_too(tmp_path, monkeypatch):
    there = tmp_path / "there"
    there.mkdir()
    for name in ("a.npz", "b.npz", "vocab.txt"):
        (there / name).touch()
    npz, other = data.Npz(path="a.npz"), data.Npz(path="b.npz")
    moved, moved_other = data.Npz(path=f"{there}/a.npz"), data.Npz(path=f"{there}/b.npz")
    words, moved_words = WordPiece(vocabulary="vocab.txt"), WordPiece(vocabulary=f"{there}/vocab.txt")
    cases = [
        (data.ClassSubset(source=npz, classes=(0, 1)), data.ClassSubset(source=moved, classes=(0, 1))),
        (
            data.LabelledFraction(source=data.WithGenerated(source=npz, generated=other), fraction=0.5),
            data.LabelledFraction(source=data.WithGenerated(source=moved, generated=moved_other), fraction=0.5),
        ),
        (data.Sst2(tokenizer=words), data.Sst2(tokenizer=moved_words)),
    ]
    monkeypatch.chdir(there)
    assert [list(description.relative_paths(source)) for source, _ in cases] == [
        ["source.path"],
        ["source.source.path", "source.generated.path"],
        ["tokenizer.vocabulary"],
    ]
    monkeypatch.chdir(tmp_path)
    for source, expected in cases:
        assert not description.relative_paths(source)
        assert description.placed(source, str(there)) == expected
