"""Certificates: sound bounds of the margin of each example within epsilon, and radii of smoothed classifiers."""

from tfrobust.certification.certify import certified_margins, decide
from tfrobust.certification.smoothing import smoothed_certificates, smoothed_predictions

__all__ = ["certified_margins", "decide", "smoothed_certificates", "smoothed_predictions"]
