"""The code is in tfrobust.runs.first_stage; this path stays importable."""

from tfrobust.runs.first_stage import *  # noqa: F403
