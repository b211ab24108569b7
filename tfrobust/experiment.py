"""The code is in tfrobust.runs.experiment; this path stays importable."""

from tfrobust.runs.experiment import *  # noqa: F403
