"""The console script `tfrobust`, also `python -m tfrobust`: its first word is the command."""

import importlib
import pathlib
import sys

from tfrobust.commands import failures
from tfrobust.commands.configuration.files import folders
from tfrobust.commands.configuration.statements import shown
from tfrobust.common.nearest import nearest

# The file of a command has its name, with an underscore for a hyphen.
COMMANDS = {
    "train": "train a robust model, evaluate it and publish it with its report",
    "evaluate": "measure how robust a model is",
    "export": "publish the trained model of a workdir",
    "publish": "publish the model of a workdir that waits for a decision, or a withdrawn version",
    "withdraw": "take a published version out of service",
    "compare": "compare reports",
    "query": "query a model that TensorFlow Serving serves",
    "gate": "refuse a model whose report misses a requirement",
    "serve": "serve exports with TensorFlow Serving",
    "share": "upload an export with its report and a model card to the Hugging Face Hub",
    "new-method": "create the files of a new method",
    "completion": "print the script with which a shell completes the commands",
}


def module(command: str):
    """Import the module of a command, and return it."""
    return importlib.import_module(f"tfrobust.commands.{command.replace('-', '_')}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the first word names; return its exit code.

    Args:
        arguments: instead of sys.argv[1:].
    """
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name == "--version":
        return module("train").main(["--version"])
    if name in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        print("usage: tfrobust COMMAND [--help] ..., or tfrobust --version\n\ncommands:")
        print("\n".join(f"  {command:{width}}  {summary}" for command, summary in COMMANDS.items()))
        print(f"\nguides:    {pathlib.Path(__file__).resolve().parents[1] / 'guides'}\ngin files: {folders()[0]}")
        return failures.DONE
    if name not in COMMANDS:
        near = ", ".join(nearest(name, COMMANDS, count=1) or COMMANDS)
        print(f"error: there is no command {shown(name)}; nearest: {near}", file=sys.stderr)
        return failures.WRONG_INPUT
    return module(name).main(rest)


if __name__ == "__main__":
    sys.exit(main())
