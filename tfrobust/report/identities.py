"""Ids of measurements: display names, and the parts of ids of prediction sets and of detection."""

import re

# Ends of a budget's part of an id, from `ThreatModel.variant`.
FRAMES = r"(?P<frames>(?:_per_frame)?(?:_max_frames_[0-9]+)?)"
_CONFORMAL_ID = re.compile(
    rf"^conformal(?:\.(?P<attack>.+_(?:linf|l2|l1|l0)_[0-9][0-9.e+-]*?{FRAMES}))?"
    r"\.(?P<score>[a-z]+)_(?P<level>0?\.[0-9]+)\.(?P<what>coverage|size|empty)$"
)
_OOD_ID = re.compile(r"^ood\.(?P<set>[a-z0-9_]+)\.(?P<score>[a-z_]+)\.(?P<what>auroc|fpr95)$")
CONFORMAL_NUMBERS = {"coverage": "coverage", "size": "mean size", "empty": "empty"}
_OOD_NUMBERS = {"auroc": "AUROC", "fpr95": "false positives at 95 %"}
_OOD_SCORES = {"max_softmax": "confidence", "energy": "energy"}
# Display names of measurements whose ids have no parts of variable value.
LABELS = {
    "accuracy.clean": "Clean accuracy",
    "corruption.mean.accuracy": "Corruptions, mean accuracy",
    "corruption.mean_without_noise.accuracy": "Corruptions without noise, mean accuracy",
    "corruption.mean_noise.accuracy": "Noise, mean accuracy",
    "corruption.mean_blur.accuracy": "Blur, mean accuracy",
    "corruption.mean_weather.accuracy": "Weather, mean accuracy",
    "corruption.mean_digital.accuracy": "Digital, mean accuracy",
    "corruption.mce": "Mean corruption error (mCE)",
    "corruption.relative_mce": "Relative mCE",
    "clip_corruption.mean_temporal.accuracy": "Clip corruptions in time, mean accuracy",
    "clip_corruption.mean_frames.accuracy": "Clip corruptions of frames, mean accuracy",
    "video.accuracy": "Videos, clean accuracy",
    "video.clip_accuracy": "Clips of videos, clean accuracy",
    "stability.mean.flip_probability": "Mean flip probability",
    "stability.mfr": "Mean flip rate (mFR)",
    "noise.uniform.accuracy": "Uniform noise (UN), accuracy",
    "noise.non_uniform.accuracy": "Non-uniform noise (NUN), accuracy",
    "calibration.ece": "Calibration error (ECE)",
    "calibration.rms": "Calibration error (RMS)",
    "calibration.aurra": "AURRA",
    "calibration.brier": "Brier score",
    "calibration.nll": "Negative log-likelihood",
    "parity.agreement": "Same class as the SavedModel",
    "parity.accuracy_change": "Accuracy, change from the SavedModel's",
    "parity.largest_gap": "Largest difference from the SavedModel",
    "parity.mean_gap": "Mean difference from the SavedModel",
    "geometry.r_div": "Relative divergence (R-DIV)",
    "geometry.intra_class_divergence": "Divergence within a class",
    "geometry.inter_class_divergence": "Divergence between classes",
    "geometry.inter_intra_ratio": "Inter / intra-class distance",
    "geometry.inter_class_distance": "Distance between classes",
    "geometry.intra_class_distance": "Distance within a class",
    "geometry.alignment": "Alignment",
    "geometry.uniformity": "Uniformity",
    "sensitivity.utility_concentration": "Utility, concentration (Gini)",
    "sensitivity.sensitivity_concentration": "Sensitivity, concentration (Gini)",
    "sensitivity.agreement": "Utility-sensitivity agreement (rho)",
    "sensitivity.tokens.correlation": "Token sensitivity and strength, correlation in a sentence",
    "sensitivity.tokens.pooled_correlation": "Token sensitivity and strength, correlation over all",
}


def conformal_parts(identity: str) -> tuple[str, str, str, str] | None:
    """Return attack (or ""), score, level and number of a measurement of prediction sets; None for other ids."""
    match = _CONFORMAL_ID.match(identity)
    return match and (match["attack"] or "", *match.group("score", "level", "what"))


def ood_parts(identity: str) -> tuple[str, str, str] | None:
    """Return set, score and number of a measurement of detection; None for other ids."""
    match = _OOD_ID.match(identity)
    return match and match.group("set", "score", "what")


def ood_set(name: str) -> str:
    """Return the display name of a set of images: "corruptions of severity 5" for "corruptions_5"."""
    severity = re.fullmatch(r"corruptions_([1-5])", name)
    return f"corruptions of severity {severity[1]}" if severity else name.replace("_", " ")


def ood_score(name: str) -> str:
    """Return the display name of a score: "confidence" for "max_softmax"."""
    return _OOD_SCORES.get(name, name.replace("_", " "))


def ood_label(name: str, score: str, measure: str) -> str:
    """Return the display name of a measurement of detection from the parts of its id."""
    label = f"{ood_set(name)} by {ood_score(score)}, {_OOD_NUMBERS[measure]}"
    return label[0].upper() + label[1:]
