"""The code is in tfrobust.adapters.layers; this path stays importable."""

from tfrobust.adapters.layers import *  # noqa: F403
from tfrobust.adapters.layers import __all__  # noqa: F401
