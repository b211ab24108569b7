"""The certified accuracy: from models to the report, its reasons where there is none, and contradictions by attacks."""

import dataclasses
import types
from unittest import mock

import keras
import numpy as np
import pytest
import stored

from tfrobust.certification import certify, costs
from tfrobust.errors import InputError
from tfrobust.evaluation import runner, summary
from tfrobust.evaluation.doctor.certificates import check_certificates
from tfrobust.evaluation.engine.base import Outcome, Setting
from tfrobust.evaluation.engine.chunks import Shard
from tfrobust.evaluation.engine.loading import from_keras
from tfrobust.evaluation.engine.predictor import from_function  # noqa: F401
from tfrobust.evaluation.evaluators.accuracy import CleanAccuracy, accuracy, outcomes
from tfrobust.keras.attacks import FGSM, PGD, ThreatModel
from tfrobust.keras.evaluators import AttackAccuracy, CertifiedAccuracy
from tfrobust.models.cnn import CNN
from tfrobust.report import attack_table, gate, protocol, sections, threat
from tfrobust.report.renderers import html

THREAT = ThreatModel(epsilon=0.05)
LABELS = np.array([0, 0, 1, 1, 0])
# Two pixels, which are the logits: margins 0.5, 0.06, 0.2, -0.1, 0.1.
IMAGES = np.array([[0.75, 0.25], [0.5, 0.44], [0.2, 0.4], [0.5, 0.4], [0.5, 0.4]], np.float32).reshape(5, 2, 1, 1)


def linear() -> keras.Model:
    model = keras.Sequential([keras.Input((2, 1, 1)), keras.layers.Flatten(), keras.layers.Dense(2)])
    model.layers[-1].set_weights([np.eye(2), np.zeros(2)])
    return model


def setting_of(predictor) -> Setting:
    return Setting(predictor=predictor, images=IMAGES, labels=LABELS)


def test_a_linear_model_is_certified_where_its_margin_exceeds_twice_epsilon():
    predictor = from_keras(linear())
    (measurement,) = CertifiedAccuracy(threat=THREAT).run(setting_of(predictor)).measurements
    # A margin of 0.1 is that of a tie at epsilon 0.05: not certified.
    assert (measurement.id, measurement.value, measurement.n) == ("certified.linf_0.05.accuracy", 0.4, 5)
    assert measurement.settings["method"] == "ibp" and "Wilson" in measurement.settings["interval"]


@pytest.mark.parametrize(("norm", "share"), [("linf", 0.4), ("l2", 0.6), ("l1", 0.8)])
@pytest.mark.parametrize("method", ["ibp", "crown", "complete", "tightest"])
def test_a_linear_model_is_certified_where_its_margin_exceeds_the_dual_norm(norm, share, method):
    """The margin is x_0 - x_1, whose gradient has the norms 2, sqrt(2) and 1."""
    evaluator = CertifiedAccuracy(threat=ThreatModel(norm=norm, epsilon=0.05), method=method)
    measurement = evaluator.run(setting_of(from_keras(linear()))).measurements[0]
    assert (measurement.id, measurement.value) == (f"certified.{norm}_0.05.accuracy", share)


def test_balls_of_single_frames_have_no_bound_in_l2_and_the_lipschitz_bound_none_elsewhere():
    frames = CertifiedAccuracy(threat=ThreatModel(norm="l2", epsilon=0.1, per_frame=True))
    measurement = frames.run(setting_of(from_keras(linear()))).measurements[0]
    assert measurement.value is None and "not of each frame" in measurement.settings["reason"]
    with pytest.raises(InputError, match="in linf"):
        CertifiedAccuracy(threat=THREAT, method="lipschitz")
    bent = keras.Sequential([keras.Input((2, 1, 1)), keras.layers.Activation("gelu", name="bent"), linear()])
    lipschitz = CertifiedAccuracy(threat=ThreatModel(norm="l2", epsilon=0.1), method="lipschitz")
    measurement = lipschitz.run(setting_of(from_keras(bent))).measurements[0]
    assert measurement.value is None and "bent has no Lipschitz constant" in measurement.settings["reason"]
    measurement = lipschitz.run(setting_of(from_keras(linear()))).measurements[0]
    assert measurement.value == 0.4  # margins above 0.1 sqrt(2)


def test_the_report_has_both_bounds_and_the_pixels_of_the_caller():
    evaluators = (CleanAccuracy(), AttackAccuracy(attack=FGSM(threat=THREAT)), CertifiedAccuracy(threat=THREAT))
    outcome = summary.evaluate(linear(), IMAGES, LABELS, epsilon=0.05, evaluators=evaluators)
    assert outcome["certified.linf_0.05.accuracy"].value == 0.4
    assert [finding.verdict for finding in outcome.findings if finding.check == "certificates"] == ["pass"]
    text = outcome.report.threat
    assert "From below, 40.0 % are certified within L∞ ε = 0.05" in text
    assert "Certified accuracy, Linf eps = 0.05" in outcome.summary()
    assert "Certified, unknown, attacked" in html.render(outcome.report)
    (section,) = [candidate for candidate in sections.build(outcome.report) if candidate.anchor == "bracket"]
    assert section.content[1].rows[0][1] == "IBP" and section.content[1].rows[0][2].value == 0.4
    lines = ("certified.linf_0.05.accuracy >= 0.4", "certified.linf_0.05.accuracy >= 0.5")
    assert gate.Gate(require=lines).failures(outcome.report) == [f"{lines[1]}: it is 0.4"]
    scaled = keras.Sequential([keras.Input((2, 1, 1)), keras.layers.Rescaling(1 / 255), linear()])
    evaluators = (CertifiedAccuracy(threat=THREAT),)
    again = summary.evaluate(scaled, 255 * IMAGES, LABELS, epsilon=12.75, bounds=(0, 255), evaluators=evaluators)
    assert again["certified.linf_0.05.accuracy"].value == 0.4


def test_a_complete_method_certifies_breaks_or_counts_what_it_leaves_open():
    evaluators = (CleanAccuracy(), CertifiedAccuracy(threat=THREAT, method="complete"))
    outcome = summary.evaluate(linear(), IMAGES, LABELS, epsilon=0.05, evaluators=evaluators)
    assert outcome["certified.linf_0.05.accuracy"].value == 0.4
    # The tie of the last image is decided by the order of the classes, which is no proof.
    assert outcome["certified.linf_0.05.unknown"].value == 0.2
    some = CertifiedAccuracy(threat=THREAT, method="complete", first=2).run(setting_of(from_keras(linear())))
    assert [(m.value, m.n, m.settings["sample"]) for m in some.measurements] == [
        (0.5, 2, "first 2"),
        (0.0, 2, "first 2"),
    ]
    (bracket,) = attack_table.brackets(outcome.report.measurements)
    assert threat.bracket_sentence(bracket).endswith("For 20.0 % neither is known.")
    assert outcome.report.threat.startswith("No attack was run, so that nothing bounds the accuracy under attack from")
    assert "From below, 40.0 % are certified" in outcome.report.threat
    none = dataclasses.replace(bracket, certified=dataclasses.replace(bracket.certified, value=0.0))
    assert threat.bracket_sentence(none) == (
        "From below, none of the images are certified within L∞ ε = 0.05. For 20.0 % neither is known."
    )
    (failure,) = gate.Gate(require=("certified.linf_0.05.unknown <= 0.05",)).failures(outcome.report)
    assert failure.endswith("it is 0.2")
    (section,) = [candidate for candidate in sections.build(outcome.report) if candidate.anchor == "bracket"]
    assert section.content[1].rows[0][1] == "COMPLETE"


@pytest.mark.parametrize("method", ["ibp", "complete", "tightest"])
def test_a_limit_of_the_setting_draws_the_images(method):
    evaluator = CertifiedAccuracy(threat=THREAT, method=method)
    setting = dataclasses.replace(setting_of(from_keras(linear())), limit=3)
    drawn, robust = setting.subset(None), np.array([True, False, True, False, False])
    outcome = evaluator.run(setting)
    assert drawn.tolist() != [0, 1, 2] and outcome.series == []
    seeds = {(m.n, "sample" in m.settings, m.settings.get("seed")) for m in outcome.measurements}
    assert seeds == {(3, False, setting.seed)}
    assert outcome.measurements[0].value == robust[drawn].mean()
    assert np.flatnonzero(evaluator.images(setting)).tolist() == drawn[robust[drawn]].tolist()


def test_an_interrupted_search_resumes_and_shards_share_it(tmp_path):
    evaluator, seen = CertifiedAccuracy(threat=THREAT, method="complete"), []
    setting = dataclasses.replace(setting_of(from_keras(linear())), chunk_size=2)

    def stop_in_the_second_part(task, number, total):
        if "branch" in str(task):
            seen.append((number, total))
            if number == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped = dataclasses.replace(setting, progress=stop_in_the_second_part)
        runner.run_evaluation([evaluator], stopped, cache_directory=tmp_path)
    assert len(list((tmp_path / "chunks").iterdir())) == 1
    counts = [runner.run_shard([evaluator], setting, Shard(n, 2), cache_directory=tmp_path) for n in (1, 2)]
    assert (seen, counts) == ([(1, 5), (2, 5), (3, 5)], [3, 2])
    with mock.patch.object(certify, "_decided", side_effect=AssertionError("all parts are stored")):
        outcome = runner.run_evaluation([evaluator], setting, cache_directory=tmp_path)
    assert [m.value for m in outcome.measurements[:2]] == [0.4, 0.2]


def test_what_a_vacuous_bound_is_worth_is_stated():
    keras.utils.set_random_seed(0)
    model = CNN(stages=((6,), (6,)), dense=(8,))
    model = keras.Sequential([keras.Input((8, 8, 1)), model, keras.layers.Dense(3)])
    images = np.random.default_rng(0).uniform(size=(6, 8, 8, 1)).astype(np.float32)
    labels = model(images, training=False).numpy().argmax(-1)
    evaluators = (CleanAccuracy(), CertifiedAccuracy(threat=ThreatModel(epsilon=0.5)))
    outcome = summary.evaluate(model, images, labels, epsilon=0.5, evaluators=evaluators)
    measurement = outcome["certified.linf_0.5.accuracy"]
    assert measurement.value == 0 and 0 < measurement.settings["certified_up_to"] < 0.5
    assert np.log2(0.5 / measurement.settings["certified_up_to"]) % 1 == 0
    assert not [finding for finding in outcome.findings if finding.check == "certificates"]


def ordinary(seed=0):
    """Return a network that intervals certify less than linear bounds, and images with the classes it gives them."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.Input((4, 4, 1)), keras.layers.Flatten(), *(keras.layers.Dense(12, "relu") for _ in range(3))]
    )
    model.add(keras.layers.Dense(3))
    images = np.random.default_rng(0).uniform(size=(150, 4, 4, 1)).astype(np.float32)
    return model, images, model(images).numpy().argmax(-1)


def test_the_tightest_method_within_the_budget_covers_the_drawn_images_that_it_affords():
    model, images, labels = ordinary()
    labels[::10] = (labels[::10] + 1) % 3  # misclassified, so that no method need look at them
    setting, shape = Setting(predictor=from_keras(model), images=images, labels=labels), images.shape[1:]
    budgets = {
        method: costs.products(setting.predictor.network, shape, method)
        for method in ("ibp", "crown_ibp", "crown", "alpha_crown")
    }
    assert sorted(budgets.values()) == list(budgets.values())
    threat = ThreatModel(epsilon=0.04)
    by_method = {
        method: certify.certified(certify.certified_margins(model, images, labels, epsilon=0.04, method=method))
        for method in budgets
    }
    is_open = ~by_method["ibp"] & (labels == model(images).numpy().argmax(-1))
    assert is_open.sum() > 101
    for first, order in ((None, setting.order("subset")), (150, np.arange(150))):
        undecided = np.flatnonzero(is_open[order])
        for products, method, count in (
            (0.0, "ibp", 150),
            (100 * budgets["crown_ibp"], "crown_ibp", undecided[100]),
            (150 * budgets["crown"], "crown", 150),
            (101 * budgets["alpha_crown"], "alpha_crown", undecided[101]),
        ):
            outcome = CertifiedAccuracy(threat=threat, method="tightest", products=products, first=first).run(setting)
            (measurement,), (series,) = outcome.measurements, outcome.series
            assert (measurement.settings["method"], measurement.n) == (method, count)
            sample = f"first {count}" if first else f"{count} drawn"
            assert measurement.settings.get("sample") == (None if count == 150 else sample)
            assert measurement.value == pytest.approx(by_method[method][order[:count]].mean())
            covered = np.sort(order[:count])
            assert [digit == "1" for digit in series.columns["right"][0]] == by_method[method][covered].tolist()
            if count < 150 and not first:
                assert [digit == "1" for digit in series.columns["images"][0]] == np.isin(range(150), covered).tolist()
                np.testing.assert_array_equal(covered, setting.subset(count))


def test_a_budget_does_not_choose_the_classes_of_a_sorted_split():
    model, images, labels = ordinary()
    order = np.argsort(labels, kind="stable")
    setting = Setting(predictor=from_keras(model), images=images[order], labels=labels[order])
    budget = 100 * costs.products(setting.predictor.network, images.shape[1:], "alpha_crown")
    evaluator = CertifiedAccuracy(threat=ThreatModel(epsilon=0.04), method="tightest", products=budget)
    (series,) = evaluator.run(setting).series
    covered = np.array([*series.columns["images"][0]]) == "1"
    shares = [np.bincount(part, minlength=3) / len(part) for part in (setting.labels[covered], labels)]
    assert not covered[:100].all() and np.abs(shares[0] - shares[1]).max() < 0.1


def test_a_bound_of_drawn_images_meets_the_attack_on_them():
    robust, drawn = np.arange(6) != 1, np.array([False, True, True, False, True, True])
    certified, ball = np.array([False, False, True, True]), {"norm": "linf", "epsilon": 0.05}
    bound = accuracy("certified.linf_0.05.accuracy", certified, ball | {"method": "crown", "sample": "4 drawn"})
    attack = accuracy("attack.x_linf_0.05.accuracy", robust, ball)
    series = [outcomes(attack.id, robust), outcomes(bound.id, certified, drawn)]
    (bracket,) = attack_table.brackets([attack, bound], series)
    assert (bracket.upper, bracket.unknown, bracket.attacked.accuracy.n) == (0.75, 0.25, 4)
    assert "50.0 % of the 4 drawn images are certified" in threat.bracket_sentence(bracket)
    assert check_certificates(Outcome([attack, bound], series)).verdict == "pass"
    series[1] = outcomes(bound.id, ~certified, drawn)  # image 1, which the attack breaks
    assert check_certificates(Outcome([attack, bound], series)).verdict == "fail"
    for sample, seed in (("4 drawn", 3), ("first 4", None)):  # two models are paired if one seed drew for both
        bound.settings.update(sample=sample, seed=3)
        assert protocol.drawn_by(bound.id, types.SimpleNamespace(get=lambda _: bound, data={"test_size": 6})) == seed


def test_a_bound_of_the_first_images_meets_the_attack_on_them():
    right, certified = np.arange(6) != 1, np.array([True, False, True, False])
    settings = {"norm": "linf", "epsilon": 0.05}
    bound = accuracy("certified.linf_0.05.accuracy", certified, settings | {"method": "crown", "sample": "first 4"})
    attack, series = "attack.x_linf_0.05.accuracy", [outcomes("attack.x_linf_0.05.accuracy", right)]
    (bracket,) = attack_table.brackets([accuracy(attack, right, settings), bound], series)
    assert (bracket.upper, bracket.unknown, bracket.attacked.accuracy.n) == (0.75, 0.25, 4)
    sentence = threat.bracket_sentence(bracket)
    assert "50.0 % of the first 4 images are certified" in sentence and "For 25.0 % neither" in sentence
    assert attack_table.brackets([accuracy(attack, right, settings), bound])[0].attacked is None


@keras.saving.register_keras_serializable(package="tests")
class Squaring(keras.Sequential):
    """A model whose call does what its layers do not show."""

    def call(self, inputs, training=None):
        return super().call(inputs) ** 2 - 0.3


@pytest.mark.parametrize("predictor, threat, reason", stored.rows(globals(), "where_there_is_no_bound_the_report"))
def test_where_there_is_no_bound_the_report_gives_the_reason(predictor, threat, reason):
    predictor = predictor()
    evaluators = (CleanAccuracy(), CertifiedAccuracy(threat=threat))
    outcome = summary.evaluate(predictor, IMAGES, LABELS, epsilon=0.05, evaluators=evaluators)
    (measurement,) = [candidate for candidate in outcome.measurements if candidate.id.startswith("certified.")]
    assert measurement.value is None and reason in measurement.settings["reason"]
    (line,) = [line for line in outcome.summary().splitlines() if "Certified" in line]
    assert "measured:" in line and reason in line
    assert any(f"Certified accuracy: {measurement.settings['reason']}" in line for line in outcome.report.not_measured)


def planted(wrong: int, norm: str = "linf", epsilon: float = 0.05, other: str = "attack.x_linf_0.05.accuracy", first=5):
    """An outcome in which an attack on the first of five examples breaks `wrong` of three certified ones."""
    certified, robust = np.array([True] * 3 + [False] * 2), np.arange(first) >= wrong
    settings = {"norm": norm, "epsilon": epsilon} | ({"sample": f"first {first}"} if first < 5 else {})
    names = {"certified.linf_0.05.accuracy": (certified, {"norm": "linf", "epsilon": 0.05}), other: (robust, settings)}
    measurements = [accuracy(name, *parts) for name, parts in names.items()]
    return Outcome(measurements, [outcomes(name, row) for name, (row, _) in names.items()])


def test_an_attack_on_a_certified_example_fails_the_doctor():
    assert check_certificates(planted(0)).verdict == "pass"
    finding = check_certificates(planted(2))
    assert finding.verdict == "fail" and "2 of the 3 images of certified.linf_0.05.accuracy" in finding.evidence
    # Of a smaller radius: contradicted all the more. Outside the certified ball: no contradiction.
    assert check_certificates(planted(1, epsilon=0.01)).verdict == "fail"
    assert check_certificates(planted(1, epsilon=0.06)).verdict == "pass"
    # A ball in L2 lies in that of the same radius in L∞, and one of a larger radius does not.
    assert check_certificates(planted(1, norm="l2")).verdict == "fail"
    assert check_certificates(planted(1, norm="l2", epsilon=0.06)).verdict == "pass"
    assert check_certificates(planted(1, norm="l0", epsilon=0.01)).verdict == "pass"
    assert check_certificates(planted(1, other="accuracy.clean")).verdict == "fail"
    for epsilon, verdict in ((0.02, "fail"), (0.06, "pass")):  # of attacks, all of which must lie inside
        union = planted(1, other=f"union.x_linf_0.05_l2_{epsilon}.accuracy")
        threats = [{"norm": "linf", "epsilon": 0.05}, {"norm": "l2", "epsilon": epsilon}]
        union.measurements[1].settings.update(label="x", threats=threats)
        assert check_certificates(union).verdict == verdict
    assert check_certificates(planted(2, first=2)).verdict == "fail"
    assert check_certificates(planted(0, first=2)).verdict == "pass"
    nothing = CleanAccuracy().run(setting_of(from_keras(linear())))
    assert check_certificates(nothing) is None


def test_bounds_of_another_network_are_refused_and_wrong_ones_contradicted():
    model, other = linear(), linear()
    other.layers[-1].set_weights([10 * np.eye(2), np.zeros(2)])
    wrong = dataclasses.replace(from_keras(model), network=from_keras(other).network)
    evaluator = CertifiedAccuracy(threat=THREAT)
    (measurement,) = evaluator.run(setting_of(wrong)).measurements
    assert "does not compute what its layers compute" in measurement.settings["reason"]
    with mock.patch.object(certify, "certified", lambda margins: margins > -0.3):  # an unsound bound
        attack = AttackAccuracy(attack=PGD(threat=THREAT, steps=3))
        outcome = runner.run_evaluation([CleanAccuracy(), attack, evaluator], setting_of(from_keras(model)))
    (finding,) = [finding for finding in outcome.findings if finding.check == "certificates"]
    assert finding.verdict == "fail" and "attack.pgd_linf_0.05.accuracy" in finding.evidence
