"""Read gin files and flags into plain statements: find files, follow includes, refuse imports. Run nothing.

gin's own parser reads the text, with values in which `@name` and `%NAME` stay inert. Every mistake that the text alone
shows is reported here, before TensorFlow is imported.
"""

import contextlib
import importlib.util
import pathlib
import re
import tokenize

from gin import config_parser

from tfrobust.commands.configuration.statements import Binding, Macro, Reference, shown
from tfrobust.common.files import expanded, text_of
from tfrobust.common.nearest import nearest
from tfrobust.errors import InputError

_LARGEST_FILE = 1_000_000
_DEEPEST_VALUE = 100
_DEEPEST_INCLUDE = 100
# A value that is a fraction of two numbers, such as 8/255, which gin itself does not read.
# Possessive, so that the time grows with the length of a line and not with its square.
_NUMBER = r"(-?\d{1,40}+(?:\.\d{0,40}+)?(?:[eE][+-]?\d{1,3}+)?)"
_FRACTION = re.compile(
    rf"^([ \t]*+[\w./]++[ \t]*+=[ \t]*+){_NUMBER}[ \t]*+/[ \t]*+{_NUMBER}([ \t]*+(?:#.*)?)$", re.MULTILINE
)
# What gin's parser says, and what the mistake usually is.
_ONE_VALUE = (
    "a value is one number (0.03, or 8/255 alone), one text in quotes, or a list of such; nothing else follows it"
)
_HINTS = {
    "Expected newline": _ONE_VALUE,
    "Expected ','": _ONE_VALUE,
    "Expected ')'": "arguments of an object are settings of their own, such as DATA = @Npz() and Npz.path = 'my.npz'",
    "Unable to parse value": "the value is missing, or a quote is not closed",
}
_PACKAGE = pathlib.Path(__file__).resolve().parents[2]


class _Inert(config_parser.ParserDelegate):
    def configurable_reference(self, scoped_configurable_name, evaluate):
        scope, _, selector = scoped_configurable_name.rpartition("/")
        return Reference(scope, selector, evaluate)

    def macro(self, macro_name):
        return Macro(macro_name)


# ------------------------------------------------------------------------------------------------- finding


def folders() -> list[pathlib.Path]:
    """Return the folders that hold the project's gin files: the checkout's `gin/`, then the installed copy."""
    candidates = []
    if (_PACKAGE.parent / "setup.py").is_file():
        candidates.append(_PACKAGE.parent / "gin")
    installed = importlib.util.find_spec("tfrobust.gin_files")
    if installed is not None:
        candidates.extend(pathlib.Path(path) for path in installed.submodule_search_locations or ())
    return [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]


def is_shipped(binding: Binding) -> bool:
    """Return True if a binding stands in one of the project's own gin files."""
    file = pathlib.Path(binding.origin.rpartition(":")[0]).resolve()
    return not binding.from_flag and any(file.is_relative_to(folder.resolve()) for folder in folders())


def joined_stems(paths: list[str]) -> str:
    """Return the names of gin files without folders and suffix, joined by `_`."""
    return "_".join(pathlib.PurePath(path).stem for path in paths)


def find(path: str, origin: str) -> pathlib.Path:
    """Find a gin file: at the path as given, then under the checkout's gin/, then in the installed copy.

    Args:
        path: `gin/ascl.gin`, `ascl.gin` or any path; it ends with `.gin`.
        origin: file and line or flag that names it, for the message.

    Raises:
        InputError: no such file, with the places searched and the nearest names; or not a `.gin` file.
    """
    if "\0" in path or not path.endswith(".gin"):
        raise InputError(f"{origin}: {shown(path)} is not the name of a gin file, which ends with '.gin'.")
    inside = path[4:] if path.startswith("gin/") else path
    for candidate in [expanded(path), *(folder / inside for folder in folders())]:
        with contextlib.suppress(OSError):  # a name longer than the file system allows
            if candidate.is_file():
                return candidate
    available = {f"gin/{file.relative_to(f).as_posix()}" for f in folders() for file in f.rglob("*.gin")}
    near = ", ".join(nearest(f"gin/{inside}", available))
    places = ", ".join([".", *(str(folder) for folder in folders())])
    hint = f"; nearest: {near}" if near else ""
    raise InputError(f"{origin}: no file {shown(path, 80)}{hint}; searched {shown(places, 120, quote=False)}")


# ------------------------------------------------------------------------------------------------- reading


def read(paths: list[str], params: list[str] | tuple = (), defaults: str | None = None) -> list[Binding]:
    """Read all bindings of a run, in order: the knobs' defaults, the files with their includes, the flags.

    An included file is read once, at its first mention: a second part that includes the same base does not reset what
    was set in between.

    Args:
        paths: the values of --gin_file.
        params: the values of --gin_param.
        defaults: a file below gin/ that is read first if it exists; None for none.

    Raises:
        InputError: a missing file, an import, an include cycle, or text that is not gin.
    """
    seen: set[pathlib.Path] = set()
    bindings = []
    if defaults is not None and any((folder / defaults).is_file() for folder in folders()):
        bindings += _read_file(find(f"gin/{defaults}", "defaults"), (), seen)
    for path in paths:
        bindings += _read_file(find(path, "--gin_file"), (), seen)
    for param in params:
        origin = f"--gin_param={shown(param, 60, quote=False)}"
        for statement in _statements(param, origin):
            if not isinstance(statement, config_parser.BindingStatement):
                raise InputError(f'{origin}: a flag sets one value, such as --gin_param="EPSILON=0.1".')
            bindings.append(_binding(statement, origin, from_flag=True))
    return bindings


def _read_file(path: pathlib.Path, above: tuple[pathlib.Path, ...], seen: set) -> list[Binding]:
    seen.add(path.resolve())
    bindings = []
    for statement in _statements(_text(path), str(path)):
        origin = f"{path}:{statement.location.line_num}"
        if isinstance(statement, config_parser.ImportStatement):
            raise InputError(
                f"{origin}: a gin file must not import; objects of tfrobust and Keras are found by name, those of "
                f"your own module by the flag --gin_import={statement.module}"
            )
        if isinstance(statement, config_parser.IncludeStatement):
            included = find(statement.filename, origin)
            chain = (*above, path)
            if included.resolve() in [file.resolve() for file in chain]:
                names = " > ".join(file.name for file in (*chain, included))
                raise InputError(
                    f"{origin}: the files include each other in a circle: {shown(names, 120, quote=False)}"
                )
            if len(chain) > _DEEPEST_INCLUDE:
                raise InputError(f"{origin}: more than {_DEEPEST_INCLUDE} files include one another.")
            if included.resolve() not in seen:
                bindings += _read_file(included, chain, seen)
        elif isinstance(statement, config_parser.BindingStatement):
            bindings.append(_binding(statement, origin))
    return bindings


def _binding(statement, origin: str, from_flag: bool = False) -> Binding:
    scope, selector, argument, value, _ = statement
    # gin splits NAME into ('', 'NAME', ''); a dotted name always has an argument.
    return Binding(scope, selector, argument, value, origin, from_flag)


def _text(path: pathlib.Path) -> str:
    if path.stat().st_size > _LARGEST_FILE:
        raise InputError(f"{path}: larger than {_LARGEST_FILE} bytes, the limit for a gin file.")
    text = text_of(path.read_bytes(), path)
    if "\0" in text:
        raise InputError(f"{path}: not a text file.")
    return text


def _statements(text: str, origin: str) -> list:
    statements = []
    try:
        parser = config_parser.ConfigParser(_FRACTION.sub(_quotient, text), _Inert())
        while (statement := parser.parse_statement()) is not None:
            statements.append(statement)
    except SyntaxError as error:
        raise _syntax_error(error, origin) from None
    except RecursionError:
        raise InputError(f"{origin}: values are nested too deeply.") from None
    except (tokenize.TokenError, StopIteration):
        raise InputError(f"{origin}: ends inside a value; is a bracket or a quote not closed?") from None
    except Exception as error:  # gin's parser may raise anything on malicious input
        reason = str(error) or type(error).__name__
        raise InputError(f"{origin}: {shown(reason, 150, quote=False)}") from None
    for statement in statements:
        _check_value(getattr(statement, "value", None), origin)
    return statements


def _quotient(statement: re.Match) -> str:
    """Return a statement with the quotient in place of its fraction; unchanged if its denominator is 0."""
    name, numerator, denominator, rest = statement.groups()
    return f"{name}{float(numerator) / float(denominator)!r}{rest}" if float(denominator) else statement[0]


def _check_value(value, origin: str) -> None:
    """Refuse values that are nested too deeply or hold null characters; iterative, since recursion has a limit."""
    level, depth = [value], 0
    while level:
        if depth > _DEEPEST_VALUE:
            raise InputError(f"{origin}: values are nested too deeply.")
        if any(isinstance(item, str) and "\0" in item for item in level):
            raise InputError(f"{origin}: a text has a null character, which names and paths must not have.")
        level = [item for container in level for item in _items(container)]
        depth += 1


def _items(value) -> list:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return list(value) if isinstance(value, (list, tuple)) else []


def _syntax_error(error: SyntaxError, origin: str) -> InputError:
    if error.lineno and not origin.startswith("--gin_param"):
        origin = f"{origin}:{error.lineno}"
    word = re.search(r"Failed to parse token '(.*)'", error.msg, re.DOTALL)
    if "expected ':' or '='" in error.msg:
        return InputError(f"{origin}: a setting is written NAME = value, such as EPSILON = 0.1.")
    if word is None:
        reason = error.msg.splitlines()[0]
        hint = next((hint for start, hint in _HINTS.items() if reason.startswith(start)), reason)
        return InputError(f"{origin}: {shown(hint, 150, quote=False)}")
    token = word.group(1)
    if token.lower() in ("true", "false", "none"):
        return InputError(f"{origin}: {token} is not a value; write {token.capitalize()}.")
    if token.isidentifier():
        return InputError(
            f"{origin}: {shown(token)} is a bare word; write '{token[:40]}' for text, @{token[:40]} for an "
            f"object, %{token[:40]} for a macro."
        )
    return InputError(f"{origin}: cannot read the value {shown(token)}")
