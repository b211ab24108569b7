"""Runs the battery of tests/conformance/attacks.py."""

from conformance.attacks import *  # noqa: F403
