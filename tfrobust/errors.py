"""Errors with an exit code of their own."""

# Characters of a message: a name or a text out of a file, which the message quotes, has any length.
LONGEST = 300


def cut(message: str) -> str:
    """Return the first 300 characters of a message."""
    return message[:LONGEST]


class _Sentence(Exception):
    """An error whose message is one sentence, shown with at most 300 characters wherever it was raised."""

    def __str__(self) -> str:
        message = super().__str__()
        # Keras and tf.function raise the error again with lines of their own, and the sentence somewhere among them;
        # `commands.failures` takes it out of these.
        return message if "\n" in message else cut(message)


class InputError(_Sentence, ValueError):
    """Wrong usage, configuration or input (exit code 2). The message is one sentence of at most 300 characters."""

    # tf.function re-raises an error as the same class only if the class has the constructor of Exception.
    __init__ = Exception.__init__


class Failure(_Sentence):
    """The work failed although program and input may be right (exit code 1). The message is one sentence."""


class RefusedByGate(_Sentence):
    """A model misses a requirement, or nothing decided that it replaces the newest version (exit code 3)."""


class StopRequested(Exception):
    """SIGTERM or Ctrl-C arrived and the work so far is saved (exit code 75): run again to resume."""
