"""The robustness report: its fields, its JSON form and the rules of a valid document.

JSON is the source; HTML, Markdown and the console table are rendered from it. The schema is
`robustness_report.schema.json`. Within version 1 fields are only ever added: a reader keeps top-level fields it does
not know and ignores unknown nested fields.
"""

import collections
import dataclasses
import functools
import json
import math
import pathlib
import re

from tfrobust.common.files import text_of
from tfrobust.errors import InputError
from tfrobust.report.validator import first_problem, show
from tfrobust.structs import Finding, Measurement, Series

SCHEMA = "tfrobust/robustness_report/1"


# Published next to this module, so that other programs can validate reports too; Draft 2020-12.
SCHEMA_FILE = pathlib.Path(__file__).with_name("robustness_report.schema.json")
JSON_SCHEMA = json.loads(SCHEMA_FILE.read_text("utf-8"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Everything known about the robustness of one model, as plain JSON values.

    NumPy numbers and arrays become Python's, tuples inside dictionaries become lists, NaN and infinity become None, and
    dictionaries are sorted. Therefore `Report.from_json(report.to_json()) == report` always holds and both render
    alike.

    Args:
        model: name, version (None if unpublished), weights_sha256, parameters.
        data: name, fingerprint, train_size, validation_size, test_size; `source` (dict) describes how to load the data
            again, `class_names` names the classes.
        measurements: tuple of Measurement with unique ids.
        doctor: tuple of Finding.
        threat: the threat statement: the attacks that the numbers hold against, and what they do not cover
            (`threat.threat_statement`).
        run_sha256: hash of weights, data and configuration.
        not_measured: sentences (`threat.not_measured`).
        configuration: operative gin text.
        environment: versions and machine by name.
        cost: seconds and other costs by name.
        series: tuple of Series, the curves behind the plots.
        training: training settings: method, epochs, seed, selection, epsilon, batch_norm_mode_of_the_attack, ...
        created: ISO 8601 time, or None.
        other: top-level fields of a later writer that this version does not know; kept unchanged.
    """

    model: dict
    data: dict
    measurements: tuple[Measurement, ...] = ()
    doctor: tuple[Finding, ...] = ()
    threat: str = ""
    run_sha256: str | None = None
    not_measured: tuple[str, ...] = ()
    configuration: str = ""
    environment: dict = dataclasses.field(default_factory=dict)
    cost: dict = dataclasses.field(default_factory=dict)
    series: tuple[Series, ...] = ()
    training: dict = dataclasses.field(default_factory=dict)
    created: str | None = None
    schema: str = SCHEMA
    other: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            plain_value = tuple(plain(item) for item in value) if field.name in _LISTS else plain(value)
            object.__setattr__(self, field.name, plain_value)

    def __getitem__(self, identity: str) -> Measurement:
        """Return the measurement of that id; KeyError names the id."""
        return self._by_id[identity]

    def get(self, identity: str, default=None) -> Measurement | None:
        """Return the measurement of that id, or the default."""
        return self._by_id.get(identity, default)

    @functools.cached_property
    def _by_id(self) -> dict[str, Measurement]:
        return {measurement.id: measurement for measurement in reversed(self.measurements)}

    def get_series(self, identity: str) -> Series | None:
        """Return the series of that id, or None."""
        return next((s for s in self.series if s.id == identity), None)

    def to_dict(self) -> dict:
        """Return the report as plain JSON values, including fields of later writers."""
        document = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "other"}
        for name in _LISTS:
            document[name] = [_as_dict(item) for item in document[name]]
        return {**self.other, **document}

    def to_json(self) -> str:
        """Return JSON text with sorted keys and one line per list of numbers, byte for byte reproducible."""
        text = json.dumps(self.to_dict(), sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
        return _FLAT_LIST.sub(lambda match: _LINE_BREAK.sub(" ", match.group()), text) + "\n"

    def validate(self) -> None:
        """Check the report against JSON_SCHEMA and the rules that a schema cannot express.

        Raises:
            ValueError: one sentence with the JSON path of the first problem.
        """
        check_document(self.to_dict())

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """Parse and validate a report.

        Raises:
            ValueError: the text is no JSON or no valid report of version 1; one sentence with the JSON path.
        """
        if len(text) > _LONGEST_TEXT:
            raise InputError(f"The robustness report has more than {_LONGEST_TEXT} bytes.")
        text = text_of(text, "The robustness report") if isinstance(text, bytes) else text.removeprefix("\ufeff")
        try:
            document = json.loads(text, **_STRICT)
        except (ValueError, RecursionError) as error:
            raise InputError(f"The robustness report is not JSON: {str(error)[:200]}.") from None
        level = [document]
        for _ in range(_DEEPEST):
            level = [item for part in level if isinstance(part, (dict, list)) for item in _items(part)]
        if level:
            raise InputError("The robustness report nests too deeply to be one.")
        return cls._of(document)

    @classmethod
    def _of(cls, document) -> "Report":
        check_document(document)
        fields = {f.name: document[f.name] for f in dataclasses.fields(cls) if f.name in document}
        fields["other"] = {name: value for name, value in document.items() if name not in _FIELDS}
        for name, kind in _LISTS.items():
            fields[name] = tuple(_from_dict(kind, item) for item in fields.get(name, ()))
        return cls(**fields)


_LISTS = {"measurements": Measurement, "doctor": Finding, "series": Series, "not_measured": str}
_LONGEST_LIST = 10_000
_LONGEST_TEXT = 2**24  # bytes; in memory up to 50 times as many
_DEEPEST = 100  # indented JSON is longer by the depth of each value
_FIELDS = frozenset(f.name for f in dataclasses.fields(Report)) - {"other"}
# JSON escapes line breaks inside strings, so a bracket followed by a literal line break always opens a list.
_FLAT_LIST = re.compile(r"\[\n[^\[\]{}]*?\n\s*\]")
_LINE_BREAK = re.compile(r"\n\s*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def check_document(document) -> None:
    """Raise ValueError (one sentence, JSON path) unless parsed JSON is a valid report of version 1."""
    problem = _size_problem(document) or first_problem(document, JSON_SCHEMA) or _rule_problem(document)
    if problem:
        raise InputError(f"Not a valid robustness report: {problem}")


def _size_problem(document) -> str | None:
    """Describe the first list of a report that is too long to be read and shown; None if there is none."""
    for name in _LISTS if isinstance(document, dict) else ():
        if isinstance(document.get(name), list) and len(document[name]) > _LONGEST_LIST:
            return f"$.{name}: it has {len(document[name])} entries, more than {_LONGEST_LIST}."
    return None


def _rule_problem(document: dict) -> str | None:
    """Check the rules that a schema cannot express: unique ids, ordered intervals, equally long columns."""
    for group in ("measurements", "series"):
        seen = set()
        for position, item in enumerate(document.get(group, ())):
            if item["id"] in seen:
                return f"$.{group}[{position}].id: {show(item['id'])} occurs twice."
            seen.add(item["id"])
    for position, item in enumerate(document["measurements"]):
        if item["low"] is not None and item["high"] is not None and item["low"] > item["high"]:
            return f"$.measurements[{position}].low: {show(item['low'])} is above high {show(item['high'])}."
    for position, item in enumerate(document.get("series", ())):
        lengths = {len(column) for column in item["columns"].values()}
        if len(lengths) > 1:
            return f"$.series[{position}].columns: the columns are not equally long ({sorted(lengths)})."
    return None


def plain(value):
    """Convert a value to plain JSON: NumPy becomes Python, tuples become lists, NaN and infinity become None.

    Raises:
        TypeError: the value has no JSON form.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # Lone surrogates cannot be encoded. A report must not contain control characters that a terminal interprets.
        return _CONTROL.sub("\ufffd", value.encode("utf-8", "replace").decode())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {plain(str(name)): plain(value[name]) for name in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (Measurement, Finding, Series)):
        return type(value)(**{name: plain(item) for name, item in _as_dict(value).items()})
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, without importing NumPy
        return plain(value.tolist())
    raise TypeError(f"A report holds JSON values only, not {type(value).__name__}: {str(value)[:100]}.")


def _items(part: dict | list):
    return part.values() if isinstance(part, dict) else part


def _as_dict(item):
    if isinstance(item, str):
        return item
    document = {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    if isinstance(item, Series) and not document["settings"]:
        del document["settings"]  # early reports lack this field and must round-trip byte for byte
    return document


def _from_dict(kind: type, item):
    if kind is str:
        return item
    return kind(**{f.name: item[f.name] for f in dataclasses.fields(kind) if f.name in item})


def _refuse_constant(name: str):
    raise InputError(f"{name} is no JSON number")


def _bounded_integer(text: str) -> int:
    """Parse an integer of at most 64 bits, which later formatting and plotting can convert."""
    if len(text) > 20 or abs(int(text)) >= 2**63:
        raise InputError(f"{text[:40]} is no integer of 64 bits")
    return int(text)


def _real(text: str) -> float:
    if not math.isfinite(float(text)):  # 1e400 is a JSON number, but overflows to infinity
        raise InputError(f"{text[:40]} is no number of 64 bits")
    return float(text)


def _object(pairs: list[tuple]) -> dict:
    """Return an object whose names are distinct: of two values of one name, readers of JSON take either."""
    values = dict(pairs)
    if len(values) < len(pairs):
        twice, _ = collections.Counter(name for name, _ in pairs).most_common(1)[0]
        raise InputError(f"an object has the name {show(twice)} twice")
    return values


_STRICT: dict = {
    "parse_constant": _refuse_constant,
    "parse_int": _bounded_integer,
    "parse_float": _real,
    "object_pairs_hook": _object,
}
