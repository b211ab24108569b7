"""The command `tfrobust completion SHELL`: print the script with which a shell completes the other commands.

    eval "$(tfrobust completion bash)"  # in ~/.bashrc, or zsh in ~/.zshrc

The package shtab writes the script from the commands' flags.
"""

import argparse
import re
import sys

from tfrobust.commands import failures
from tfrobust.commands.__main__ import COMMANDS, module
from tfrobust.commands.configuration import files
from tfrobust.commands.flags import Parser
from tfrobust.errors import InputError

SHELLS = ("bash", "zsh")

# Gin files of the package and in the folder, and names of macros. shtab gives bash file names if it reads "_file".
_GIN = {
    "bash": """\
_tfrobust_gin_files() {{ compgen -W '{files}' -- "$1"; compgen -f -X '!*.gin' -- "$1"; compgen -d -S / -- "$1"; }}
_tfrobust_macros() {{ compgen -W '{macros}' -- "$1"; }}
""",
    "zsh": """\
_tfrobust_gin_files() {{ compadd -- {files}; _files -g '*.gin' }}
_tfrobust_macros() {{ compadd -S '' -- {macros} }}
""",
}
# bash makes three words of `--flag=value`, and shtab expects two.
_BASH = """
_tfrobust() {
    local all=("${COMP_WORDS[@]}") last=$COMP_CWORD place
    local COMP_WORDS=() COMP_CWORD=$last
    for (( place = 0; place < ${#all[@]}; place++ )); do
        if [[ "${all[place]}" != "=" ]]; then
            COMP_WORDS+=("${all[place]}")
        elif (( place == last )); then
            COMP_WORDS+=("")
        elif (( place < last )); then
            (( COMP_CWORD-- ))
        fi
    done
    _shtab_tfrobust
    [[ "${COMPREPLY[0]}" != *= ]] || compopt -o nospace 2> /dev/null
}
complete -o bashdefault -F _tfrobust tfrobust
"""
# As eval "$(...)" at the end of .zshrc needs it.
_ZSH = "autoload -Uz compinit && compinit\n"


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("completion", "Print the script with which a shell completes the commands of tfrobust.")
    flags.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash or zsh")
    return flags


def script(shell: str) -> str:
    """Return the script that completes every command, its flags and their values.

    Args:
        shell: one of `SHELLS`.

    Raises:
        InputError: the package shtab is not installed.
    """
    try:
        import shtab
    except ImportError:
        raise InputError("completion needs the package shtab: pip install 'tfrobust[completion]'") from None
    every = argparse.ArgumentParser("tfrobust")
    commands = every.add_subparsers()
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, parents=[module(name).parser()], add_help=False)
        for action in command._actions:
            _complete(action, shell, shtab)
    names = [
        f"gin/{path.relative_to(folder).as_posix()}" for folder in files.folders() for path in folder.rglob("*.gin")
    ]
    words = {"files": " ".join(sorted(set(names))), "macros": " ".join(f"{name}=" for name in _macros())}
    text = shtab.complete(every, shell, preamble=_GIN[shell].format(**words))
    return f"{text}\n{_BASH}" if shell == "bash" else f"{_ZSH}{text}"


def _complete(action: argparse.Action, shell: str, shtab) -> None:
    """Set how a flag's values are completed, which its name and metavar say."""
    metavar = str(action.metavar or "")
    if action.dest == "gin_file":
        action.complete = {shell: "_tfrobust_gin_files"}
    elif action.dest == "gin_param":
        action.complete = {shell: "_tfrobust_macros"}
    elif re.search("FILE|NPZ|PATH", metavar):
        action.complete = shtab.FILE
    elif "DIR" in metavar:
        action.complete = shtab.DIRECTORY
    if shell == "zsh" and action.nargs != 0:  # zsh then accepts both `--flag=value` and `--flag value`
        action.option_strings = [f"{flag}=" if flag.startswith("--") else flag for flag in action.option_strings]


def _macros() -> list[str]:
    """Return the names of the macros in `gin/base/knobs.gin`."""
    paths = [folder / "base" / "knobs.gin" for folder in files.folders()]
    text = next((path.read_text("utf-8") for path in paths if path.is_file()), "")
    return re.findall(r"^([A-Z][A-Z0-9_]*) *=", text, re.MULTILINE)


def run(flags: argparse.Namespace) -> None:
    """Print the script."""
    print(script(flags.shell), end="")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
