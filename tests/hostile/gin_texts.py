"""gin texts that try to run, read, write or exhaust something; a valid recipe stands below each of them."""

import pathlib
import tomllib

_TRAIN = "include 'supervised.gin'\n"


def _laughs(levels: int, width: int) -> str:
    lines = [f"M{level} = [{', '.join([f'%M{level + 1}'] * width)}]" for level in range(levels)]
    return "\n".join([*lines, f"M{levels} = 1", "train.callbacks = %M0"])


# Name -> (text, a part of the line it is refused with).
CASES = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text("utf-8"))["cases"] | {
    "include of a very long name": (f"include '{'x' * 5000}.gin'\n", ""),
    "macros in a large circle": ("".join(f"M{i} = %M{(i + 1) % 90}\n" for i in range(90)) + "EPOCHS = %M0\n", "circle"),
    "macros in a long row": (
        "".join(f"M{i} = %M{i + 1}\n" for i in range(5000)) + "M5000 = 1\nEPOCHS = %M0\n",
        "in a circle",
    ),
    "macros that grow": (_laughs(30, 10), "has more than"),
    "brackets without end": ("EPOCHS = " + "[" * 50_000 + "\n", ""),
    "brackets a thousand deep": ("EPOCHS = " + "[" * 1000 + "]" * 1000 + "\n", ""),
    "dictionaries deep": ("EPOCHS = " + "{1: " * 150 + "1" + "}" * 150 + "\n", ""),
    "minus signs": ("EPOCHS = " + "-" * 100_000 + "1\n", ""),
    "a number of many digits": ("EPOCHS = " + "9" * 100_000 + "\n", ""),
    "a hexadecimal number of many digits": ("EPSILON = 0x" + "f" * 100_000 + "\n", ""),
    "that number in a list": ("NORM = [0x" + "f" * 100_000 + "]\n", ""),
    "a path longer than any": (f"train.data = @Npz()\nNpz.path = '{'x' * 5000}'\n", ""),
}


def text(name: str) -> str:
    """The case below a recipe that runs."""
    return _TRAIN + CASES[name][0]
