"""Certificates: sound bounds of the margin of each example within epsilon, and radii of smoothed classifiers."""

from tfrobust.certification.certify import certified_margins
from tfrobust.certification.smoothing import smoothed_certificates, smoothed_predictions

__all__ = ["certified_margins", "smoothed_certificates", "smoothed_predictions"]
