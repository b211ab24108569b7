"""The code is in tfrobust.runs.initial_encoder; this path stays importable."""

from tfrobust.runs.initial_encoder import *  # noqa: F403
