"""Check the catalogue: ids are written and read by one record each, with and without the settings."""

import pytest

from tfrobust.report import catalog, reading
from tfrobust.structs import Measurement, Series

PGD = {"attack": "pgd", "norm": "linf", "epsilon": 8 / 255, "steps": 20}
LABELED = PGD | {"label": "pgd20"}
MEMBER = {"attack": "apgd_ce", "ensemble": "autoattack", "norm": "l2", "epsilon": 0.5}
SMOOTHED = {"noise": "uniform", "sigma": 0.25, "norm": "l1"}
SETS = {"score": "lac", "level": 0.9}
FROST = "textures of tfrobust"
KINDS = [
    ("accuracy.clean", {}, "Clean accuracy", 1),
    ("accuracy.class.3", {"class": 3}, "accuracy.class.3", 1),
    ("attack.pgd_linf_0.0313725.accuracy", PGD, "PGD-20, L∞ ε = 0.0313725", 1),
    ("attack.pgd20_linf_0.0313725.drop", LABELED, "PGD-20, L∞ ε = 0.0313725, relative drop", -1),
    ("attack.pgd20_linf_0.0313725.class.3", LABELED | {"class": 3}, "attack.pgd20_linf_0.0313725.class.3", 1),
    ("attack.pgd_l2_1_per_frame_max_frames_2.accuracy",)
    + (
        {"attack": "pgd", "norm": "l2", "epsilon": 1, "per_frame": True, "max_frames": 2},
        "PGD, L2 ε = 1 per frame, in at most 2 frames",
        1,
    ),
    ("attack.autoattack_l2_0.5.apgd_ce.accuracy", MEMBER, "AutoAttack (APGD-CE), L2 ε = 0.5", 1),
    ("attack.prox_log_barrier_l0_9.median_distance",)
    + ({"attack": "prox_log_barrier", "norm": "l0", "epsilon": 9}, "proximal log-barrier, L0, median distance", 1),
    ("certified.linf_0.1.accuracy", {"norm": "linf", "epsilon": 0.1}, "Certified accuracy, L∞ ε = 0.1", 1),
    ("smoothing.uniform_sigma_0.25.l1_0.5.accuracy", SMOOTHED | {"radius": 0.5})
    + ("Smoothed by uniform noise, σ = 0.25, certified accuracy, L1 r = 0.5", 1),
    ("smoothing.uniform_sigma_0.25.acr", SMOOTHED)
    + ("Smoothed by uniform noise, σ = 0.25, average certified radius (ACR)", 0),
    ("corruption.frost.3.accuracy", {"corruption": "frost", "severity": 3}, "corruption.frost.3.accuracy", 1),
    ("corruption.mean.accuracy", {"corruptions": 3, "frost": FROST})
    + ("Corruptions, mean accuracy, 3 of 15, generated frost", 1),
    ("corruption.mce", {"baseline": "AlexNet"}, "Mean corruption error (mCE), against AlexNet", -1),
    ("clip_corruption.lag.2.drop", {"corruption": "lag", "severity": 2}, "clip_corruption.lag.2.drop", -1),
    ("stability.tilt.flip_rate", {"sequence": "tilt"}, "stability.tilt.flip_rate", -1),
    ("stability.mfr", {}, "Mean flip rate (mFR)", -1),
    ("noise.uniform.accuracy", {}, "Uniform noise (UN), accuracy", 1),
    ("shift.imagenet_r.ece", {"set": "imagenet_r"}, "ImageNet-R, calibration error (ECE)", -1),
    ("calibration.rms", {}, "Calibration error (RMS)", -1),
    ("calibration.pgd20_linf_0.0313725.nll", LABELED) + ("Negative log-likelihood under PGD-20, L∞ ε = 0.0313725", -1),
    ("conformal.lac_0.9.coverage", SETS, "LAC sets for 90.0 %, coverage", 0),
    ("conformal.pgd_linf_0.0313725.lac_0.9.size", PGD | SETS)
    + ("LAC sets for 90.0 %, mean size under PGD-20, L∞ ε = 0.0313725", 0),
    ("ood.corruptions_5.max_softmax.auroc", {"severity": 5, "score": "max_softmax"})
    + ("Corruptions of severity 5 by confidence, AUROC", 0),
    ("ood.digits.energy.fpr95", {"set": "digits", "score": "energy"})
    + ("Digits by energy, false positives at 95 %", 0),
    ("geometry.r_div", {}, "Relative divergence (R-DIV)", 0),
    ("sensitivity.agreement", {}, "Utility-sensitivity agreement (rho)", 0),
    ("sensitivity.tokens.correlation", {}, "Token sensitivity and strength, correlation in a sentence", 1),
    ("video.attack.pgd_linf_0.0313725.accuracy", PGD, "video.attack.pgd_linf_0.0313725.accuracy", 1),
    ("parity.accuracy_change", {}, "Accuracy, change from the SavedModel's", 0),
    ("reference.accuracy.clean", {"reference": "plain"}, "Clean accuracy, of plain", 1),
    ("cost.evaluation", {}, "cost.evaluation", 0),
    ("novel.kind", {}, "novel.kind", 0),
    ("novel.ece", {}, "novel.ece", -1),  # by its last word
]
# What ids cannot tell, and reports of earlier versions did not need to.
NOT_IN_IDS = {"steps", "baseline", "corruptions", "frost", "reference"}


@pytest.mark.parametrize(("identity", "settings", "label", "better"), KINDS, ids=[kind[0] for kind in KINDS])
def test_a_measurement_is_read_by_its_settings_and_in_earlier_reports_by_its_id(identity, settings, label, better):
    written, earlier = (
        Measurement(identity, 0.5, settings=kept)
        for kept in (settings, {name: value for name, value in settings.items() if name in NOT_IN_IDS})
    )
    assert reading.label(written) == reading.label(earlier) == label
    entries = catalog.read(written), catalog.read(earlier)
    assert [entry.quantity.better for entry in entries] == [better] * 2
    assert entries[0].family == entries[1].family == identity.split(".")[0]
    assert entries[0].sort_key == entries[1].sort_key and entries[0].prefix == entries[1].prefix


def test_each_id_has_one_record():
    for identity, settings, *_ in KINDS:
        readers = [record for record in catalog.records() if record.read(identity, settings)]
        assert len(readers) == (identity.split(".")[0] not in ("novel", "reference"))


@pytest.mark.parametrize(
    "settings",
    [
        {"attack": ["pgd"], "norm": "linf", "epsilon": 0.2},
        {"attack": "pgd", "norm": ["linf"], "epsilon": 0.2},
        {"attack": "pgd", "norm": "l7", "epsilon": 0.2},
        {"attack": "pgd", "norm": "linf", "epsilon": None},
        {"attack": "pgd", "norm": "linf", "epsilon": "far"},
        {"attack": "fgsm", "norm": "l2", "epsilon": 0.3, "label": "other"},
        {"attack": "pgd", "ensemble": {}, "member": 3, "norm": "linf", "epsilon": 0.2},
    ],
)
def test_settings_that_contradict_the_id_do_not_count(settings):
    """Another program may have written them."""
    measurement = Measurement("attack.pgd_linf_0.2.accuracy", 0.5, settings=settings)
    assert reading.label(measurement) == "PGD, L∞ ε = 0.2"


def test_an_id_of_no_known_norm_is_shown_as_it_is():
    settings = {"attack": "pgd", "norm": "l7", "epsilon": 0.2}
    assert reading.label(Measurement("attack.pgd_l7_0.2.accuracy", 0.5, settings=settings)).startswith("attack.")


def test_series_are_read_alike():
    for identity, settings in (
        ("attack.pgd20_linf.curve", {**LABELED, "epsilon": None}),
        ("attack.pgd20_linf_0.0313725.examples", LABELED),
        ("calibration.reliability.pgd20_linf_0.0313725", LABELED),
        ("ood.corruptions_5", {"set": "corruptions_5"}),
        ("smoothing.uniform_sigma_0.25.curve", SMOOTHED),
    ):
        written, earlier = (catalog.read(Series(identity, "", {}, kept)) for kept in (settings, {}))
        assert written.record is earlier.record and written.name == earlier.name and written.prefix == earlier.prefix


def test_every_family_has_one_place_and_every_record_its_ids():
    places = {}
    for record in catalog.records():
        assert places.setdefault(record.family.name, record.family.place) == record.family.place
        assert record.quantities and all(isinstance(name, str) for name in record.quantities)
    assert len(set(places.values())) == len(places)
