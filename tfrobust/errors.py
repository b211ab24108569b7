"""Errors with an exit code of their own."""


class InputError(ValueError):
    """Wrong usage, configuration or input (exit code 2). The message is one sentence of at most 300 characters."""

    # tf.function re-raises an error as the same class only if the class has the constructor of Exception.
    __init__ = Exception.__init__


class Failure(Exception):
    """The work failed although program and input may be right (exit code 1). The message is one sentence."""


class RefusedByGate(Exception):
    """A model misses a requirement, or nothing decided that it replaces the newest version (exit code 3)."""


class StopRequested(Exception):
    """SIGTERM or Ctrl-C arrived and the work so far is saved (exit code 75): run again to resume."""
