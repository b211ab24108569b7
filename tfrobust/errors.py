"""The errors with a meaning of their own. Each command ends with the exit code that belongs to it."""


class InputError(ValueError):
    """Wrong usage, configuration or input (exit code 2). The message is one sentence of at most 300 characters."""

    # An error inside a tf.function comes out as one of the same class only if it is made as a plain Exception is.
    __init__ = Exception.__init__


class RefusedByGate(Exception):
    """A threshold of the configuration was missed, so nothing is published (exit code 3)."""


class StopRequested(Exception):
    """SIGTERM or Ctrl-C arrived and the work so far is saved (exit code 75): run again to resume."""
