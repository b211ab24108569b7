"""The code is in tfrobust.adapters.metrics; this path stays importable."""

from tfrobust.adapters.metrics import *  # noqa: F403
from tfrobust.adapters.metrics import __all__  # noqa: F401
