"""The gate: requirements that a model must meet before it is published, or before a build continues."""

from __future__ import annotations

import dataclasses
import decimal
import math
import operator
import pathlib
import re
from collections.abc import Callable, Sequence

import keras

from tfrobust.common.configured import Configured
from tfrobust.common.outside import LocalPath
from tfrobust.errors import InputError
from tfrobust.report import catalog, parts, protocol, reading
from tfrobust.report.catalog.outputs import COST
from tfrobust.report.comparison import reports as compare
from tfrobust.report.difference import outcomes
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement

_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_IDENTITY = r"\w+(?:\.[\w+-]+)+"
_NUMBER = r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?"
_PARTS = r"(?:(min|max) over (classes|groups) of )?"
_THRESHOLD = re.compile(rf"(?:(low|high) of )?{_PARTS}({_IDENTITY}) *(>=|<=|>|<) *(-?{_NUMBER})( *%)?")
_NO_FINDING = re.compile(r"no doctor (fail|warn)")
_NO_WORSE = re.compile(rf"(?:({_IDENTITY}) )?no worse than (\S.*) by more than ({_NUMBER})( ?%)?")
_FORMS = (
    "'accuracy.clean >= 0.9', 'low of accuracy.clean >= 0.9', 'min over classes of accuracy.clean >= 0.5', "
    "'accuracy.class.shirt >= 0.5', 'calibration.rms <= 0.05', 'no doctor fail', "
    "'[ID] no worse than PATH by more than 0.01'"
)
_DOCTORS_REMEDY = "evaluate with gin/eval/standard.gin, or add @Doctor() with Doctor.attack to EVALUATORS"


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate(Configured):
    """Requirements on a report, one line each. A number that was not measured does not pass.

    The lines, by example:

        attack.autoattack_linf_0.2.accuracy >= 0.5      also <=, >, <; fractions as such, or '50 %'
        low of accuracy.clean >= 0.97                   the lower (or 'high of': upper) end of the 95 % interval
        attack.pgd_linf_0.2.class.shirt >= 0.1          a class by its name or number, or `.group.` and a group
        min over classes of accuracy.clean >= 0.5       also 'max over', 'over groups of', 'low of min over ...'; it
                                                        fails if a class of the data was not measured
        no doctor fail                                  'no doctor warn' allows neither fail nor warn
        no worse than exported/x/3 by more than 0.01    every main number there whose better direction is known
        accuracy.clean no worse than exported/x by more than 0.01

    A number that a time budget made a bound never passes. Neither does a fraction with a limit that no fraction can
    miss, such as 5 for 5 %. `no worse` fails if the two numbers do not come from the same data and the same protocol,
    and if one of the two reports lacks the number: at another epsilon, it has another id.

    Attributes:
        require: the lines.

    Raises:
        InputError (a ValueError): a line has none of these forms.
    """

    require: tuple[LocalPath, ...] = ()

    def __post_init__(self):
        if not isinstance(self.require, (str, tuple, list)):
            raise InputError(f"Gate.require is {str(self.require)[:80]!r}; give lines like {_FORMS}.")
        lines = (self.require,) if isinstance(self.require, str) else tuple(self.require)
        lines = tuple(line.strip() if isinstance(line, str) else line for line in lines)
        object.__setattr__(self, "require", lines)
        for line in self.require:
            _checked(line)

    def check_references(self) -> None:
        """Check, before hours of training, that the reports named by `no worse than` lines exist.

        Raises:
            InputError (a ValueError): there is no report at a path.
        """
        for line in self.require:
            match = _NO_WORSE.fullmatch(line)
            if match:
                _reference(match[2])

    def check_measured(self, ids: Sequence[str], *, has_doctor: bool) -> None:
        """Check, before hours of training, that an evaluation measures what the lines require.

        Args:
            ids: of the measurements of its evaluators. Those by class or group come with that over all examples.
            has_doctor: True if the doctor is among the evaluators.

        Raises:
            InputError (a ValueError): the evaluation does not give a number that a line names, or lacks the doctor.
        """
        for line in self.require:
            for identity in re.findall(rf"\b(?=[A-Za-z]){_IDENTITY}", line.partition("no worse")[0]):
                is_cost = identity.startswith(f"{COST.family.name}.")
                if not (identity in ids or is_cost or any(parts.is_part_of(identity, total) for total in ids)):
                    near = reading.similar_ids(identity, ids)
                    raise InputError(f"Gate.require has {identity}, which this evaluation lacks; nearest: {near}")
            if _NO_FINDING.fullmatch(line) and not has_doctor:
                raise InputError(f"Gate.require has {line!r}, and EVALUATORS has no @Doctor(): {_DOCTORS_REMEDY}.")

    def failures(self, report: Report) -> list[str]:
        """Return the requirements that a report misses, each as "<line>: <the actual state>"; empty if it passes.

        Raises:
            InputError (a ValueError): there is no report at the path of a `no worse than` line.
        """
        missed = ((line, fault) for line in self.require for fault in _checked(line)(report))
        return [f"{line}: {fault}" for line, fault in missed]


def _checked(line: str) -> Callable[[Report], list[str]]:
    """Return the check of a line: a function from a report to the list of its faults."""
    for pattern, check in ((_THRESHOLD, _threshold), (_NO_FINDING, _no_finding), (_NO_WORSE, _no_worse)):
        match = pattern.fullmatch(line) if isinstance(line, str) else None
        if match:
            if pattern is not _NO_FINDING and match.groups()[-2] is not None:
                _limit(*match.groups()[-2:])
            return lambda report, check=check, match=match: check(match, report)
    raise InputError(f"Gate.require has {str(line)[:80]!r}; a line is one of {_FORMS}.")


def _threshold(match: re.Match, report: Report) -> list[str]:
    end, extreme, kind, identity, sign, number, percent = match.groups()
    if extreme is not None:
        return _extreme(match, report)
    fault = _fault(identity, report)
    return [fault] if fault else _compare(_measured(identity, report), end, sign, number, percent)


def _extreme(match: re.Match, report: Report) -> list[str]:
    """Check the class or group whose number is smallest or largest."""
    end, extreme, kind, identity, *limit = match.groups()
    members = parts.of(report, identity, kind)
    if not members:
        measured = [m.id for m in report.measurements if parts.of(report, m.id, kind)]
        remainder = f"it has those of {', '.join(measured[:5])}" if measured else f"it has no {kind} at all"
        return [f"its {kind} were not measured; {remainder}"]
    lacking = parts.unmeasured(report, identity, kind)
    if lacking:
        return [f"{', '.join(lacking[:5])}: it was not measured"]
    faults = [f"{part.name}: it has no interval" for part in members if end and getattr(part.accuracy, end) is None]
    faults += [f"{part.name}: {fault}" for part in members if (fault := _fault_of(part.accuracy))]
    if faults:
        return faults[:1]
    chosen = {"min": min, "max": max}[extreme](members, key=lambda part: getattr(part.accuracy, end or "value"))
    return [f"{chosen.name}: {fault}" for fault in _compare(chosen.accuracy, end, *limit)]


def _compare(measured: Measurement, end: str | None, sign: str, number: str, percent: str | None) -> list[str]:
    value = getattr(measured, end) if end else measured.value
    if value is None:
        return ["it has no interval"]
    if (end == "low" and value > measured.value + 1e-9) or (end == "high" and value < measured.value - 1e-9):
        return [f"it is {measured.value:.6g}, outside its own interval"]
    limit = _limit(number, percent)
    if _is_share(measured) and (sign == "<=" and limit == 1 and not percent or sign in ("<=", "<") and limit > 1):
        return ["it is a fraction, which is never above 1" + ("" if percent else f"; for per cent, write {number} %")]
    if _is_share(measured) and limit < 0 and sign in (">=", ">") and not catalog.read(measured).quantity.signed:
        return ["it is a fraction, which is never below 0"]
    holds = _OPERATORS[sign](value, limit)
    beyond = _is_share(measured) and limit > 1 and not percent
    return [] if holds else [f"it is {value:.6g}" + (f", a fraction; for per cent, write {number} %" if beyond else "")]


def _no_finding(match: re.Match, report: Report) -> list[str]:
    refused = ("fail",) if match[1] == "fail" else ("fail", "warn")
    findings = [f"{f.check} ({f.verdict}): {f.evidence}" for f in report.doctor if f.verdict in refused]
    if not reading.has_doctor(report):
        return [*findings, f"the doctor did not run: {_DOCTORS_REMEDY}"]
    return findings


def _no_worse(match: re.Match, report: Report) -> list[str]:
    identity, path, number, percent = match.groups()
    other, allowed = _reference(path), _limit(number, percent)
    if not protocol.same_data([report, other]):
        return ["it was evaluated on other data"]
    if identity:
        return _compared(identity, report, other, allowed)
    main = [m.id for m in reading.main_measurements(other) if _direction(m.id, other) and m.value is not None]
    if not main:
        return ["the other report has no main number with a known better direction"]
    return [f"{main_id}: {fault}" for main_id in main for fault in _compared(main_id, report, other, allowed)]


def _compared(identity: str, report: Report, other: Report, allowed: float) -> list[str]:
    direction = _direction(identity, report, other)
    if not direction:
        return ["its better direction is unknown; write a threshold"]
    fault, there = _fault(identity, report), _fault(identity, other)
    if fault or there:
        return [fault or f"in the other report {there}"]
    measurement, reference = _measured(identity, report), _measured(identity, other)
    if allowed >= 1 and _is_share(measurement):
        return [f"it is a fraction, which is never worse by more than 1; for per cent, write {allowed:g} %"]
    unlike = protocol.differences(measurement, reference)
    totals = [(parts.total_of(side, identity), side) for side in (report, other)]
    if protocol.drawn_by(*totals[0]) != protocol.drawn_by(*totals[1]):
        unlike = [*unlike, "the seed that drew the images"]
    if unlike:
        return [f"the protocols differ in {', '.join(unlike)}"]
    worse_by = direction * (reference.value - measurement.value)
    # The tolerance lets a loss of exactly the allowed amount pass despite rounding.
    return [] if worse_by <= allowed + 1e-9 else [f"it is {measurement.value:.6g}, there {reference.value:.6g}"]


def _limit(number: str, percent: str | None) -> float:
    """Return the limit of a line exactly in decimal: 57.3 % is 0.573."""
    try:
        limit = float(decimal.Decimal(number) / (100 if percent else 1))
    except decimal.DecimalException:  # an exponent of twenty digits
        limit = math.inf
    if not math.isfinite(limit):
        raise InputError(f"Gate.require has the limit {number[:40]}, which is no number of 64 bits.")
    return limit


def _direction(identity: str, *reports: Report) -> int:
    """Return 1 if more is better, -1 if less is, and 0 if unknown, as for distances."""
    if any(parts.find(report, identity) for report in reports):
        return 1
    measured = filter(None, (report.get(identity) for report in reports))
    return catalog.read(next(measured, Measurement(identity, None))).quantity.better


def _fault(identity: str, report: Report) -> str:
    """Return why a number cannot be relied on, or "" if it can."""
    measured = _measured(identity, report)
    if measured is None and len(parts.find(report, identity)) > 1:
        is_number = identity.rpartition(".")[2].isdecimal()
        other = "it is the name of one and the number of another: rename them"
        return f"several classes or groups have this name; {other if is_number else 'write the number of the class'}"
    if measured is None:
        ids = [m.id for m in report.measurements if not reading.is_cost(m)] + parts.ids(report)
        return f"it was not measured; nearest: {reading.similar_ids(identity, ids)}"
    fault = _fault_of(measured)
    if fault:
        return fault
    if report.get_series(f"outcomes.{identity}") is not None and not outcomes(identity, report):
        return f"it is {measured.value:.6g}, which disagrees with the outcomes per image in the report"
    return ""


def _measured(identity: str, report: Report) -> Measurement | None:
    """Return a measurement, or the number of a single class or group; None without one, or with several."""
    members = parts.find(report, identity)
    if len(members) > 1:
        return None
    return report.get(identity) or (members[0] if members else None)


def _fault_of(measured: Measurement) -> str:
    """Return what is wrong with a number by itself, or ""."""
    if measured.value is None or not math.isfinite(measured.value):
        return "its value is unknown"
    entry = catalog.read(measured)
    if entry.name in ("clean", "accuracy") and not measured.unit.startswith("fraction"):
        return f"its unit is {measured.unit[:20]!r}, not a fraction"
    if "bound" in measured.settings:
        return f"a time budget ended its attack, so it is only a bound ({measured.settings['bound']})"
    # A drop is below 0 if the change improves accuracy, a conversion's change if it costs accuracy.
    if measured.unit == "fraction" and not entry.quantity.signed and not -1e-9 <= measured.value <= 1 + 1e-9:
        return f"it is {measured.value:.6g}, but a fraction lies in [0, 1]"
    return ""


def _is_share(measurement: Measurement) -> bool:
    """Return True if the unit confines the value to [0, 1]: "fraction of the baseline's error" does not."""
    return measurement.unit in ("fraction", "fraction of clean")


def _reference(path: str) -> Report:
    try:
        reports = compare.load_reports([pathlib.Path(path)])
    except (OSError, ValueError) as error:
        raise InputError(f"Gate.require: {error}") from error
    if not reports:
        raise InputError(f"Gate.require: there is no robustness report at {path}.")
    return reports[0][1]
