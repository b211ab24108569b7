"""Check the facts that make two numbers with the same name differ, beyond their other settings."""

from report.synthetic import fraction

from tfrobust.report import protocol


def test_facts_that_must_agree():
    """None: an older report, which does not say it."""
    for identity, name, values in (
        ("attack.ensemble_linf_0.2.accuracy", "member_efforts", (["square (300 steps)"], ["square (1 step)"], None)),
        ("corruption.mean.accuracy", "names", (["contrast", "fog"], ["brightness", "fog"], None)),
        ("corruption.mce", "baseline_sha256", ("a1" * 32, "b2" * 32, None)),
        ("certified.linf_0.1.accuracy", "method", ("ibp", "crown", None)),
        ("smoothing.sigma_0.25.acr", "n0", (100, 64, None)),
        ("smoothing.sigma_0.25.acr", "alpha", (0.001, 0.01, None)),
        ("geometry.inter_intra_ratio", "distance", ("cosine", "euclidean", None)),
        ("geometry.uniformity", "sharpness", (2.0, 3.0, None)),
        ("ood.npz.energy.auroc", "other_data", ("a1" * 32, "b2" * 32, None)),
        ("stability.mfr", "baseline_sha256", ("a1" * 32, "b2" * 32, None)),
    ):
        first, second, older = (fraction(identity, 0.5, **({name: value} if value else {})) for value in values)
        assert protocol.differences(first, second) == protocol.differences(first, older) == [name]
        assert protocol.differences(first, first) == protocol.differences(older, older) == []
