"""The verdict of a comparison: which model is better, by how much, at what price, or that nothing tells."""

import pytest
from report.synthetic import attack, fraction, make_report

from tfrobust.report.comparison import reports as compare
from tfrobust.report.comparison import views
from tfrobust.report.comparison.verdict import verdict
from tfrobust.structs import Finding, Series

PGD = "attack.pgd_linf_0.2.accuracy"


def run(name, clean, robust, n=1000, **changes):
    """A report with these counts of n correct images; the outcomes are the first ones of a row."""
    measured = [fraction("accuracy.clean", clean / n, n), *attack("pgd", robust / n, clean / n, n, steps=20)]
    rows = {"accuracy.clean": clean, PGD: robust}
    series = [
        Series(f"outcomes.{name}", "", {"right": ["1" * count + "0" * (n - count)]}) for name, count in rows.items()
    ]
    changes = {"cost": {}, "doctor": (), "measurements": measured} | changes
    return make_report(name=name, version=1, series=series, **changes)


def worded(*reports, **order):
    comparison = compare.arrange([(f"{number}.json", report) for number, report in enumerate(reports)], **order)
    return verdict(comparison)


def test_two_models_that_differ():
    """Check d = 10 points +- 1.96 sqrt((.1 - .01) / 1000) = 1.86: 100 of 1000 images are correct in one model only."""
    trained, plain = run("trades", 800, 600), run("plain", 880, 500)
    assert worded(plain, trained) == [
        "trades/1 is more robust than plain/1: under PGD-20, L∞ ε = 0.2 it is correct on 60.0 % of the images, plain/1"
        " on 50.0 %, a difference of +10.0 points (95 % interval +8.1 to +11.9).",
        "Its price is accuracy on unmodified images: 80.0 % against 88.0 % of plain/1, -8.0 points (95 % interval -9.7"
        " to -6.3).",
    ]
    timed = [run("a", 800, 600, cost={"training_seconds": 600}), run("b", 800, 500, cost={"training_seconds": 60})]
    assert worded(*timed)[1].startswith(
        "On unmodified images it does not differ significantly from b/1: 80.0 % against 80.0 %"
    )
    assert worded(*timed)[2] == "Its training took 10 min 0 s (b/1: 1 min 0 s)."
    assert (
        "also more accurate on unmodified images" in worded(run("a", 880, 600), plain := run("b", 800, 500))[1]
        and plain
    )


def test_the_images_do_not_tell():
    (answer, *_) = worded(run("a", 800, 500), run("b", 800, 501))
    assert answer == (
        "The images do not tell which of b/1 and a/1 is more robust: under PGD-20, L∞ ε = 0.2 they are correct on 50.1"
        " % and 50.0 %, and the difference of +0.1 points (95 % interval -0.2 to +0.4) may be chance."
    )


def test_several_models_and_a_reference():
    reports = [run(name, 800, robust) for name, robust in (("a", 600), ("b", 601), ("c", 500), ("d", 400))]
    first, second, *_ = worded(*reports)
    assert (
        first.startswith("b/1 is more robust than c/1 and d/1: under PGD-20")
        and "+10.1 points" in first
        and "ahead of c/1 and +20.1" in first
    )
    assert second.startswith("The images do not tell it from a/1 (+0.1 points")
    (_, _, third, *_) = worded(*reports, reference="c")
    assert third == (
        "More robust than the reference c/1: b/1 and a/1; not distinguishable from it: none; less robust: d/1."
    )
    assert "do not tell which of 3 models" in worded(*(run(name, 800, 500) for name in "abc"))[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": make_report().data | {"fingerprint": "b2" * 32}}, "they were evaluated on different data"),
        ({"doctor": [Finding("gradients", "fail", "masked")]}, "checks of the evaluation failed for b"),
        ({"measurements": [fraction("accuracy.clean", 0.8), *attack("pgd", 0.5, 0.8, steps=7)]}, "protocols differ in"),
        (
            {"measurements": [fraction("accuracy.clean", 0.8), *attack("pgd", 0.5, 0.8, bound="upper")]},
            "differ in bound",
        ),
    ],
)
def test_numbers_that_cannot_be_compared_get_no_verdict(changes, words):
    (answer,) = worded(run("a", 800, 600), run("b", 800, 500, **changes))
    assert answer.startswith("The reports do not tell which model is more robust: ") and words in answer


def test_reports_without_a_common_attack():
    clean = run("b", 800, 0, measurements=[fraction("accuracy.clean", 0.8, 1000)])
    assert worded(run("a", 700, 600), clean)[0].startswith("The reports do not tell which model is more robust: no two")
    assert worded(clean, run("a", 700, 0, measurements=[fraction("accuracy.clean", 0.7, 1000)]))[0].startswith(
        "b/1 is more accurate than a/1: on unmodified images it is correct on 80.0 %"
    )
    assert worded(clean) == []
    third = worded(run("a", 800, 600), run("c", 800, 500), clean)
    assert third[-1] == "Not compared, since not evaluated under PGD-20, L∞ ε = 0.2: b/1."


def test_groups_are_compared_over_seeds():
    runs = [
        run(f"{name}-seed{seed}", 800, robust + 3 * seed)
        for name, robust in (("a", 500), ("b", 600))
        for seed in (0, 1)
    ]
    answer = worded(*runs, grouped=True)[0]
    assert answer.startswith("b is more robust than a: ") and "+10.0 points (95 % interval +10.0 to +10.0)" in answer
    noisy = [
        run(f"{name}-seed{seed}", 800, value)
        for name, *values in (("a", 500, 600), ("b", 600, 520))
        for seed, value in enumerate(values)
    ]
    assert worded(*noisy, grouped=True)[0].startswith("The seeds do not tell which of b and a is more robust")


def test_every_view_opens_with_the_verdict():
    comparison = compare.arrange(
        [(f"{n}.json", report) for n, report in enumerate([run("a", 800, 600), run("b", 880, 500)])]
    )
    answer = verdict(comparison)[0]
    assert views.table(comparison).startswith("a/1 is more robust than b/1: under PGD-20, Linf eps = 0.2 it is correct")
    assert views.markdown(comparison).startswith(f"**{answer}**")
    assert f'<p class="answer">{answer}</p>' in views.html(comparison) and answer in views.as_json(comparison)
