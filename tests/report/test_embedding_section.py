"""Check what a report shows about features without adversaries, and about false negatives."""

from report.synthetic import make_report, written

from tfrobust.report.sections.geometry import Features
from tfrobust.report.sections.training import History, Pairs
from tfrobust.structs import Series


def report_of(identity, **columns):
    return make_report(series=[Series(identity, "Title", columns)])


def test_a_map_of_natural_images_alone_speaks_of_no_adversaries():
    cloud = {"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 0.0], "label": [0, 1, 1], "entropy": [0.1, 0.2, 0.3]}
    lead, natural = written(Features, report_of("geometry.feature_map", **cloud, adversarial=[0, 0, 0]))
    assert "adversarial" not in lead + natural and "Images by class" in natural
    lead, mixed = written(Features, report_of("geometry.feature_map", **cloud, adversarial=[0, 0, 1]))
    assert "hints at an error" in lead and mixed.count("adversarial images") >= 2
    assert "color of its true class" in lead


def test_shares_of_false_negatives_are_no_counts_of_pairs():
    shares = {"false_negatives_found": [0.1, 0.4], "true_negatives_removed": [0.0, 0.02]}
    _, body = written(Pairs, report_of("training.history", epoch=[1, 2], loss=[3.0, 2.0], **shares))
    assert "pairs-shares" in body and "per anchor" not in body and "40" in body
    _, losses = written(History, report_of("training.history", epoch=[1, 2], loss=[3.0, 2.0], **shares))
    assert "negatives" not in losses
    counts = {"negatives_clean": [100.0, 90.0]}
    _, body = written(Pairs, report_of("training.history", epoch=[1, 2], **counts))
    assert "negatives per anchor" in body and "pairs-shares" not in body


def test_of_two_stages_both_histories_are_shown():
    first = Series("pretraining.history", "Title", {"epoch": [1, 2], "contrastive": [3.0, 2.0], "accuracy": [0.1, 0.8]})
    second = Series("training.history", "Title", {"epoch": [1], "ce": [0.5], "accuracy": [0.9]})
    _, body = written(History, make_report(series=[first, second]))
    assert body.index("Loss and its terms, first stage") < body.index("Loss and its terms<")
    assert "pretraining-history-accuracy" in body and "contrastive" in body
    shares = {"false_negatives_found": [0.1, 0.4], "true_negatives_removed": [0.0, 0.02]}
    _, body = written(Pairs, make_report(series=[Series("pretraining.history", "Title", {"epoch": [1, 2], **shares})]))
    assert "pretraining-pairs-shares" in body
