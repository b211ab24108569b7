"""Shell completion of the commands' flags, generated from the flags themselves and from the gin files."""

from __future__ import annotations

import argparse
import re

from tfrobust.commands.configuration import files

SHELLS = ("bash", "zsh")

# In bash "=" separates words, so the word to complete is the value alone. In zsh the word includes the flag, for which
# `compgen -f` finds no file.
_SCRIPT = """\
# Completes `python -m tfrobust.{command}`. To have it: eval "$(python -m tfrobust.{command} --completion={shell})"
{opening}_tfrobust_{command}() {{
    local IFS=$'\\n'
    case "$1" in
{cases}
    *) [[ "$2" == -* ]] || _tfrobust_paths "$2" ""
       [[ "$2" != -* ]] || COMPREPLY=( $(compgen -W '{flags}' -- "$2") ) ;;
    esac
}}
case " $_tfrobust_commands " in *" {command} "*) ;; *) _tfrobust_commands="$_tfrobust_commands {command}" ;; esac
_tfrobust_paths() {{ # folders that begin with $1, and files that also end with $2
    local entry
    for entry in "$1"*; do
        if [[ -d "$entry" ]]; then
            COMPREPLY+=( "$entry/" )
        elif [[ -e "$entry" && "$entry" == *"$2" ]]; then
            COMPREPLY+=( "$entry" )
        fi
    done
}}
_tfrobust() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" flag="" prefix="" place
    COMPREPLY=()
    [[ "${{COMP_WORDS[1]}}" == -m && $COMP_CWORD -gt 2 ]] || return 0
    case " $_tfrobust_commands " in *" ${{COMP_WORDS[2]#tfrobust.}} "*) ;; *) return 0 ;; esac
    if [[ "$word" == "=" ]]; then
        flag="$before" word=""
    elif [[ "$before" == "=" ]]; then
        flag="${{COMP_WORDS[COMP_CWORD-2]}}"
    elif [[ "$word" == --*=* ]]; then
        flag="${{word%%=*}}" prefix="${{word%%=*}}=" word="${{word#*=}}"
    elif [[ "$before" == --* ]]; then
        flag="$before"
    fi
    "_tfrobust_${{COMP_WORDS[2]#tfrobust.}}" "$flag" "$word"
    for (( place = 0; place < ${{#COMPREPLY[@]}}; place++ )); do
        COMPREPLY[place]="$prefix${{COMPREPLY[place]}}"
    done
    [[ "${{COMPREPLY[0]}}" != *[=/] ]] || compopt -o nospace 2> /dev/null
    return 0
}}
complete -o default -F _tfrobust python python3
"""
_OPENINGS = {"bash": "", "zsh": "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"}


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the shell script that completes the flags of a command and their values.

    Args:
        parser: the command's parser; its `prog` ends with the command's module, for example `tfrobust.train`.
        shell: 'bash' or 'zsh'.

    Returns:
        Text of functions and of one `complete`; the scripts of several commands can be evaluated one after another.
    """
    cases, flags = [], []
    for action in parser._actions:
        for flag in action.option_strings:
            takes_value = action.nargs != 0
            flags.append(f"{flag}=" if takes_value and flag.startswith("--") else flag)
            if takes_value:
                cases.append(f"    {flag}) {_values(action)} ;;")
    command = parser.prog.rpartition(".")[2]
    parts = {"cases": "\n".join(cases), "flags": "\n".join(flags), "opening": _OPENINGS[shell]}
    return _SCRIPT.format(command=command, shell=shell, **parts)


def _values(action: argparse.Action) -> str:
    """Return the line of shell that offers the values of a flag, which are inferred from its name and metavar."""
    if action.choices:
        return _words(action.choices)
    if action.dest == "gin_file":
        found = {f"gin/{path.relative_to(folder).as_posix()}" for folder in files.folders() for path in _gin(folder)}
        return f'{_words(sorted(found))}; _tfrobust_paths "$2" .gin'
    if action.dest == "gin_param":
        return _words([f"{name}=" for name in _knobs()])
    metavar = str(action.metavar or "")
    if re.search(r"FILE|NPZ|PATH", metavar):
        return '_tfrobust_paths "$2" ""'
    return '_tfrobust_paths "$2" /' if "DIR" in metavar else ":"


def _words(words) -> str:
    lines = "\n".join(words)
    return f"COMPREPLY=( $(compgen -W '{lines}' -- \"$2\") )"


def _gin(folder) -> list:
    return list(folder.rglob("*.gin"))


def _knobs() -> list[str]:
    """Return the names of the macros in `gin/base/knobs.gin`."""
    paths = [folder / "base" / "knobs.gin" for folder in files.folders()]
    text = next((path.read_text("utf-8") for path in paths if path.is_file()), "")
    return re.findall(r"^([A-Z][A-Z0-9_]*) *=", text, re.MULTILINE)
