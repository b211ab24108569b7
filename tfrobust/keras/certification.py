"""Certificates: sound lower bounds of the margin of each example over all images within epsilon."""

from tfrobust.certification.certify import certified_margins

__all__ = ["certified_margins"]
