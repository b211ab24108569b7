"""gin texts that try to run, read, write or exhaust something; a valid recipe stands below each of them."""

import pathlib
import tomllib

import stored

_TRAIN = "include 'supervised.gin'\n"


def _laughs(levels: int, width: int) -> str:
    lines = [f"M{level} = [{', '.join([f'%M{level + 1}'] * width)}]" for level in range(levels)]
    return "\n".join([*lines, f"M{levels} = 1", "train.callbacks = %M0"])


# Name -> (text, a part of the line it is refused with).
CASES = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text("utf-8"))["cases"]
CASES |= stored.cases(__file__, "gin_texts", globals())


def text(name: str) -> str:
    """The case below a recipe that runs."""
    return _TRAIN + CASES[name][0]
