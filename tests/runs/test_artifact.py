"""Check the facts of the training that evaluators get: images if one asks for them, the attack if there was one."""

import json
import os
import shutil
from types import SimpleNamespace

import pytest
import stored
import tensorflow as tf
from report.synthetic import make_report

from tfrobust.common import configured
from tfrobust.data.checks import DataNotFoundError
from tfrobust.data.spec import FileExamples
from tfrobust.errors import Failure, InputError, RefusedByGate
from tfrobust.evaluation.doctor.duplicates import check_duplicates
from tfrobust.evaluation.engine import base, predictor
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.data import ClassSubset, Digits, ImageFolder, LabelledFraction, WithGenerated
from tfrobust.keras.evaluators import CleanAccuracy, Doctor
from tfrobust.report.gate import Gate
from tfrobust.runs import artifact, publication
from tfrobust.runs.settings import PublicationSettings
from tfrobust.serving.export import publish

DATASET = Digits(validation_size=100).load()
JUDGES = (Doctor(attack=PGD(ThreatModel(epsilon=0.2))),)
PREDICTOR = predictor.from_function(lambda images: tf.zeros((tf.shape(images)[0], 10)), image_shape=(8, 8, 1))
FACTS = {"norm": "l2", "epsilon": 0.5, "attack_steps": 7, "selection": {"on": "validation"}}


def test_of_a_model_of_ours_everything_is_known():
    told = artifact.training_facts(FACTS, DATASET, (CleanAccuracy(), Doctor(attack=PGD(ThreatModel(epsilon=0.2)))))
    assert told["training_attack"] == {"norm": "l2", "epsilon": 0.5, "steps": 7}
    assert told["selected_on"] == "validation"
    assert told["train_images"].shape == (1337, 8, 8, 1) and told["train_labels"].shape == (1337,)


def test_what_a_first_stage_saw_is_told_and_read_again_by_its_report(caplog):
    other = Digits(validation_size=100, split_seed=7)
    seen, facts = other.load().train, {**FACTS, "pretraining": {"source": configured.serialize(other)}}
    told = artifact.training_facts(FACTS, DATASET, JUDGES, seen)
    assert told["pretraining_examples"] is seen and told["train_images"].shape == (1337, 8, 8, 1)
    again = artifact.training_facts(facts, DATASET, JUDGES)["pretraining_examples"]
    assert again.fingerprint == seen.fingerprint
    setting = {"images": DATASET.test.arrays()[0], "labels": DATASET.test.labels, "predictor": PREDICTOR}
    finding = check_duplicates(base.Setting(**setting, pretraining_examples=again))
    assert finding.verdict == "fail" and "Of 360 test images 272 (75.6%) are among 1337 images of" in finding.evidence
    for untold in (facts, (CleanAccuracy(),), None), (FACTS, JUDGES, DATASET.train), (FACTS, JUDGES, None):
        assert "pretraining_examples" not in artifact.training_facts(untold[0], DATASET, *untold[1:])
    assert not caplog.records


@pytest.mark.parametrize("first", stored.rows(globals(), "a_first_stage_that_cannot_be_read_again_is_left"))
def test_a_first_stage_that_cannot_be_read_again_is_left_out(first):
    assert "pretraining_examples" not in artifact.training_facts({"pretraining": first}, DATASET, JUDGES)


@pytest.mark.parametrize("facts", [{}, {"selection": {}}, {"epochs": 3}])
def test_of_a_foreign_or_plainly_trained_model_no_attack_is_known(facts):
    told = artifact.training_facts(facts, DATASET, (Doctor(attack=PGD(ThreatModel(epsilon=0.2))),))
    assert told["training_attack"] is None and told["selected_on"] == ""


def test_images_are_fetched_only_where_somebody_asks_and_no_more_than_fit(monkeypatch):
    assert artifact.training_facts(FACTS, DATASET, (CleanAccuracy(),))["train_images"] is None
    monkeypatch.setattr(artifact, "_TRAINING_BYTES", 10 * 64 * 4)
    assert (
        len(artifact.training_facts(FACTS, DATASET, (Doctor(attack=PGD(ThreatModel(epsilon=0.2))),))["train_images"])
        == 10
    )


def test_missing_data_are_named_with_the_report_and_its_folder():
    for folder, origin in (("/home/me/project", ", seen from /home/me/project"), (7, ""), (None, "")):
        report = SimpleNamespace(data={"folder": folder})
        line = f"there is no folder x. The report of exported/m names it{origin}: run there, or name the data by --data"
        with pytest.raises(InputError, match=line), artifact.named_by(report, "exported/m"):
            raise DataNotFoundError("there is no folder x.")
    with pytest.raises(DataNotFoundError, match="no folder x"), artifact.named_by(None, "exported/m"):
        raise DataNotFoundError("there is no folder x.")


def test_a_folder_is_read_as_that_of_the_training():
    reading = {"fit": "crop", "short_side": 256, "interpolation": "bicubic", "groups": True}
    folder = ImageFolder(path="photos", image_shape=(224, 224, 3), **reading)
    mixed = WithGenerated(source=folder, generated=Digits())
    for source in (folder, LabelledFraction(source=ClassSubset(source=folder, classes=(1, 0)), fraction=0.5), mixed):
        report = SimpleNamespace(data={"source": configured.serialize(source)})
        assert artifact.fitting(report) == reading
    assert artifact.fitting(SimpleNamespace(data={"source": configured.serialize(Digits())})) == {}


def test_a_published_model_decodes_as_the_test_split():
    dataset = SimpleNamespace(image_shape=(8, 8, 1), class_names=(), vocabulary=())
    dataset.test = FileExamples(["a.png"], [0], (8, 8, 1), fit=10, interpolation="bicubic")
    trained = SimpleNamespace(dataset=dataset, method=SimpleNamespace(encoder=None, head=None))
    parts = artifact.Artifact._parts(SimpleNamespace(trained=trained, publication=PublicationSettings(name="net")))
    assert (parts["fit"], parts["interpolation"]) == (10, "bicubic")


def test_classes_of_other_ids_are_refused():
    """A folder that lacks a class gives the others smaller ids."""

    def named(*names):
        return SimpleNamespace(name="photos", class_names=names, class_count=len(names))

    report = SimpleNamespace(data={"class_names": ["disc", "square", "stripes"]})
    with pytest.raises(InputError, match="photos: class 1 is 'stripes' here and 'square' in the model"):
        artifact.check_classes(report, named("disc", "stripes"))
    with pytest.raises(InputError, match="photos: the model has no class 'zebra'.*: disc, square, stripes"):
        artifact.check_classes(report, named("disc", "zebra"))
    for names in (("disc", "square"), ("0", "1", "2"), ("cat", "dog")):
        artifact.check_classes(report, named(*names))
    artifact.check_classes(None, named("disc", "stripes"))
    numbers = [str(number) for number in range(12)]
    report = SimpleNamespace(data={"class_names": sorted(numbers)})  # those of folders
    for count in (12, 3):
        with pytest.raises(InputError, match="class 2 is '2' here and '10' in the model.* labels as texts"):
            artifact.check_classes(report, named(*numbers[:count]))
    artifact.check_classes(report, named(*sorted(numbers)))


@pytest.mark.parametrize("training, fault", stored.rows(globals(), "what_an_evaluation_uses_of_a_strangers_training"))
def test_what_an_evaluation_uses_of_a_strangers_training_has_the_right_type(training, fault):
    with pytest.raises(InputError, match=f"the report of export is not valid: {fault}: "):
        artifact.known_training("export", SimpleNamespace(training=training))
    assert artifact.known_training("export", SimpleNamespace(training=FACTS)) == FACTS


def published_in(folder, **settings):
    """Return the publication of an untrained model."""
    return artifact.Artifact(
        trained=SimpleNamespace(dataset=None, facts={"configuration": {}}),
        evaluation=SimpleNamespace(identity={}, evaluators=()),
        publication=PublicationSettings(name="net", export_dir=str(folder / "exported"), **settings),
        folder=folder / "run",
        configuration=str,
    )


def test_a_run_takes_a_number_above_the_versions_published_during_its_evaluation(tmp_path, monkeypatch):
    """Another workdir publishes the next version while a lower one is claimed."""
    base, staged, numbers = tmp_path / "exported" / "net", tmp_path / "staged", []
    (staged / "assets.extra").mkdir(parents=True)

    def assemble(folder, report_json="", **parts):
        shutil.copytree(staged, folder)
        (folder / "robustness_report.json").write_text(report_json)
        return "weights"

    def evaluated(self, folder, weights, number, run):
        other = f"run {len(numbers)}"
        numbers.append(publish.claim(base, "another workdir", run=other))
        publish.publish(staged, base, numbers[-1], "another workdir", run=other)
        return make_report(name="net", version=number)

    monkeypatch.setattr(artifact.Artifact, "_parts", lambda self: {})
    monkeypatch.setattr(artifact.Artifact, "_report", evaluated)
    monkeypatch.setattr(artifact.assets, "assemble", assemble)
    monkeypatch.setattr(artifact, "run_sha256", lambda *parts: "run")
    checks = {"loading": ("The clean process was ended after 300 s.",)}
    monkeypatch.setattr(artifact.verify, "verify", lambda folder: artifact.verify.VerifyResult(str(folder), checks))
    with pytest.raises(Failure, match="The model was not published: The clean process was ended after 300 s."):
        published_in(tmp_path, decided=True).publish()
    assert os.listdir(base) == ["2"]  # and no claim
    checks.clear()
    shutil.rmtree(tmp_path / "run")
    published_in(tmp_path, decided=True).publish()
    assert numbers == [2, 4] and sorted(os.listdir(base)) == ["2", "4", "5"]
    assert json.loads((base / "5" / "robustness_report.json").read_text())["model"]["version"] == 5


def test_of_a_refused_model_nothing_is_left_to_publish(tmp_path, capsys):
    final = tmp_path / "run" / publication.FINAL  # of an earlier run, which was held back
    final.mkdir(parents=True)
    (final / "robustness_report.json").write_text(make_report().to_json())
    refusing = published_in(tmp_path, gate=Gate(require=("accuracy.clean >= 1",)))
    with pytest.raises(RefusedByGate, match="nothing was published"):
        refusing._check_gate(make_report(), "nothing was published", published=False)
    assert "gate: accuracy.clean >= 1: it is" in capsys.readouterr().out and not final.exists()
    with pytest.raises(InputError, match="A model that its gate refused is not published"):
        publication.publish_workdir(str(tmp_path / "run"), str(tmp_path / "exported"))


def test_a_model_that_another_processor_trained_is_published(tmp_path, monkeypatch):
    """Its outputs differ from its golden response here by rounding, and so do those of the copy with its number."""
    final = tmp_path / "run" / publication.FINAL
    final.mkdir(parents=True)
    (final / "robustness_report.json").write_text(make_report(name="net").to_json())
    publication.workdirs.make_owner(tmp_path / "run")
    rounding, damage = {"golden request": ("other logits",)}, {"report": ("another report",)}

    def verified(directory):
        checks = rounding | (damage if directory.name == "sealed" else {})
        return artifact.verify.VerifyResult(str(directory), checks)

    monkeypatch.setattr(artifact.verify, "verify", verified)
    monkeypatch.setattr(publication.assets, "copy_with_report", lambda old, new, **texts: shutil.copytree(old, new))
    with pytest.raises(Failure, match="The model was not published: another report"):
        publication.publish_workdir(str(tmp_path / "run"), str(tmp_path / "exported"))
    damage.clear()
    assert "net/1" in publication.publish_workdir(str(tmp_path / "run"), str(tmp_path / "exported"))


def test_a_published_version_without_its_report_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(artifact.Artifact, "_parts", lambda self: {})
    monkeypatch.setattr(artifact.assets, "assemble", lambda folder: "weights")
    monkeypatch.setattr(artifact, "run_sha256", lambda *parts: "run")
    monkeypatch.setattr(artifact.publish, "claim", lambda *arguments, run: 1)
    monkeypatch.setattr(artifact.publish, "is_published", lambda *arguments, run: True)
    with pytest.raises(InputError, match="exported/net/1 has lost its report: withdraw it, then run again."):
        published_in(tmp_path).publish()
