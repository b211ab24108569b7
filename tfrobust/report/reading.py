"""Display names and number formats of measurements, shared by console, Markdown, HTML and comparison."""

import dataclasses
import re

from tfrobust.common.console import duration
from tfrobust.common.nearest import nearest
from tfrobust.common.norm_table import NORMS
from tfrobust.report import identities
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement

_FRAMES = identities.FRAMES
_ATTACK_ID = re.compile(
    rf"^attack\.(?P<attack>.+?)_(?P<norm>linf|l2|l1|l0)_(?P<epsilon>[0-9][0-9.e+-]*?){_FRAMES}"
    r"(?:\.(?P<member>[a-z][a-z0-9_]*))?\.(?P<what>accuracy|drop|median_distance)$"
)

_CERTIFIED_ID = re.compile(rf"^certified\.(?P<norm>linf|l2|l1|l0)_(?P<epsilon>[0-9][0-9.e+-]*?){_FRAMES}\.accuracy$")
# Of a smoothed classifier; "uniform_sigma" is the deviation of uniform noise.
_SMOOTHING_ID = re.compile(
    r"^smoothing\.(?P<noise>(?:uniform_)?sigma)_(?P<sigma>[0-9][0-9.e+-]*?)"
    r"\.(?:(?P<norm>l2|l1)_(?P<radius>[0-9][0-9.e+-]*)\.accuracy|(?P<what>acr|abstention))$"
)
_SMOOTHING_NUMBERS = {"acr": "average certified radius (ACR)", "abstention": "abstentions"}
# Calibration under an attack.
_CALIBRATION_ID = re.compile(
    r"^calibration\.(?P<attack>.+?)_(?P<norm>linf|l2|l1|l0)_(?P<epsilon>[0-9][0-9.e+-]*?)"
    rf"{_FRAMES}\.(?P<what>[a-z]+)$"
)
_SHIFT_ID = re.compile(r"^shift\.(?P<set>[a-z0-9_]+)\.(?P<what>accuracy|ece|rms|aurra)$")
_SHIFTED_SETS = {"imagenet_r": "ImageNet-R", "imagenet_a": "ImageNet-A"}
_SHIFT_NUMBERS = {"ece": "calibration error (ECE)", "rms": "calibration error (RMS)", "aurra": "AURRA"}

# Prefix of the ids of another model's accuracies.
REFERENCE = "reference."
NORM_NAMES = {norm.name: norm.label for norm in NORMS.values()}
_ATTACK_KEY = re.compile(rf"^(?P<attack>.+)_(?P<norm>linf|l2|l1|l0)(?:_(?P<epsilon>[0-9][0-9.e+-]*))?{_FRAMES}$")

# Parts of attack names, as patterns, with their spelling in the literature. In all other names "_" becomes a space.
_SPELLINGS = {
    r"^transfer_": "transfer of ",
    r"(?<![a-z])(fgsm|a?pgd|fab)(?![a-z])": lambda match: match[0].upper(),
    r"(?<=[A-Z])_(ce|dlr|t)(?![a-z])": lambda match: f"-{match[1].upper()}",
    r"(?<=PGD)(?=[0-9])": "-",
    "autoattack": "AutoAttack",
    "multi_targeted": "multi-targeted",
    "prox_log_barrier": "proximal log-barrier",
    r"^square(?![a-z])": "Square",
}

# The numbers that models are compared by, in display order, as patterns of ids. Other numbers follow the headlines of
# their kind (the first part of the id); kinds that are not named here come last.
_HEADLINES = (
    r"accuracy\.clean",
    # Of an ensemble as a whole.
    r"attack\..+_(linf|l2|l1|l0)_[0-9][0-9.e+-]*(_per_frame)?(_max_frames_[0-9]+)?\.accuracy",
    r"attack\..+\.median_distance",
    r"certified\..+\.accuracy",
    r"smoothing\..+\.accuracy",
    r"smoothing\..+\.acr",
    r"corruption\.(mean\.accuracy|mce)",
    r"stability\.(mean\.flip_probability|mfr)",
    r"noise\..+\.accuracy",
    r"shift\..+\.accuracy",
    r"calibration\.(ece|rms)",
    r"conformal\..+\.(coverage|size)",
    r"ood\..+\.auroc",
    r"geometry\.(r_div|inter_intra_ratio)",
    r"sensitivity\.(agreement|tokens\.correlation)",
)
_KINDS = tuple(dict.fromkeys(re.match("[a-z]+", pattern)[0] for pattern in _HEADLINES))

# Number of corruptions in the benchmark's means. A label names the count where fewer were measured.
_CORRUPTIONS = {"corruption.mean.accuracy": 15, "corruption.mean_without_noise.accuracy": 12}
# Measurements that contain frost, if frost was measured.
_FROST_ID = re.compile(r"corruption\.(frost\..+|(mean|mean_without_noise|mean_weather)\.accuracy|mce|relative_mce)")
_GENERATED_FROST = "textures of tfrobust"
_FROST_NOTE = (
    "Frost is generated: its textures are darker than the benchmark's photographs, which lowers the mean of an image "
    "of 224x224 pixels by 13 to 24 gray levels."
)

# APGD-T in AutoAttack: its steps, and the smallest number of its targets (that of L1).
_STRONG = {"steps": 100, "targets": 5}


@dataclasses.dataclass(frozen=True)
class AttackRow:
    """The accuracy under one attack (or one member of an ensemble), with its relative drop if measured."""

    attack: str
    norm: str
    epsilon: str
    frames: str
    member: str | None
    accuracy: Measurement
    drop: Measurement | None

    @property
    def name(self) -> str:
        """The attack's display name: "multi-targeted PGD"."""
        return attack_name(self.attack, self.accuracy.settings)

    @property
    def budget(self) -> str:
        """The norm and size of the perturbation: "L∞ ε = 0.2", "L2 ε = 1 per frame, in at most 2 frames"."""
        return _budget(self.norm, self.epsilon, self.frames)

    @property
    def title(self) -> str:
        """The attack and its budget: "PGD-100, L∞ ε = 0.2"."""
        return f"{self.name}, {self.budget}"

    @property
    def effort(self) -> str:
        """Steps, restarts and queries, as `effort` formats them."""
        return effort(self.accuracy.settings)

    @property
    def is_upper_bound(self) -> bool:
        """True if a time budget ended the attack."""
        return self.accuracy.settings.get("bound") == "upper"

    @property
    def is_strong(self) -> bool:
        """True for AutoAttack, and for APGD-T with AutoAttack's effort; False if a time budget ended the attack."""
        settings = self.accuracy.settings
        name = str(settings.get("attack", self.attack))
        if self.is_upper_bound or name != "apgd_t":
            return not self.is_upper_bound and name.startswith("autoattack")
        counts = [(settings.get(setting), least) for setting, least in _STRONG.items()]
        return all(isinstance(count, (int, float)) and count >= least for count, least in counts)


def effort(settings: dict) -> str:
    """Format steps, restarts and queries as far as an attack's settings have them: "100 steps, 1 restart"."""
    members = settings.get("member_efforts")
    if "members" in settings and isinstance(members, list):
        return ", ".join(attack_name(str(member)) for member in members)
    parts = []
    for name in ("steps", "restarts", "queries"):
        count = settings.get(name)
        if isinstance(count, (int, float)) and not isinstance(count, bool):
            parts.append(f"{count:g} {name if count != 1 else name.rstrip('s')}")
    return ", ".join(parts)


def attack_name(name: str, settings: dict | None = None) -> str:
    """Return the display name of an attack: "multi-targeted PGD" for "multi_targeted_pgd", "PGD-100" for "pgd".

    Args:
        name: the attack's part of an id.
        settings: of a measurement or series; a name of plain PGD then has its steps.
    """
    steps = (settings or {}).get("steps")
    if name == "pgd" and isinstance(steps, int) and not isinstance(steps, bool):
        name = f"pgd{steps}"
    for pattern, spelling in _SPELLINGS.items():
        name = re.sub(pattern, spelling, name)
    return name.replace("_", " ")


def attack_caption(key: str, settings: dict | None = None) -> str:
    """Return the display name of an attack and its norm or budget: "PGD, L∞ ε = 0.2" for "pgd_linf_0.2"."""
    match = _ATTACK_KEY.match(key)
    return f"{attack_name(match['attack'], settings)}, {_budget(*match.group(*_BUDGET))}" if match else key


_BUDGET = ("norm", "epsilon", "frames")


def _budget(norm: str, epsilon: str | None, frames: str = "") -> str:
    size = f" ε = {epsilon}" if epsilon else ""
    per_frame = " per frame" if frames.startswith("_per_frame") else ""
    _, _, count = frames.partition("_max_frames_")
    return f"{NORM_NAMES[norm]}{size}{per_frame}{',' * bool(per_frame and count)}" + (
        f" in at most {count} frame{'s' * (count != '1')}" if count else ""
    )


def attack_rows(measurements, members: bool = False) -> list[AttackRow]:
    """Return the attacks of a report in the order measured; members of ensembles only if `members`."""
    pairs = {}
    for measurement in measurements:
        match = _ATTACK_ID.match(measurement.id)
        if match and (members or not match["member"]):
            key = match.group("attack", *_BUDGET, "member")
            pairs.setdefault(key, {})[match["what"]] = measurement
    return [AttackRow(*key, pair["accuracy"], pair.get("drop")) for key, pair in pairs.items() if "accuracy" in pair]


@dataclasses.dataclass(frozen=True)
class Bracket:
    """The accuracy under all attacks within a budget, bounded from both sides.

    Attributes:
        certified: the lower bound, which holds against every attack.
        attacked: the row of the strongest attack measured, the upper bound; None without any.
    """

    certified: Measurement
    attacked: AttackRow | None

    @property
    def budget(self) -> str:
        """The norm and size of the perturbation: "L∞ ε = 0.2"."""
        return _budget(*_CERTIFIED_ID.match(self.certified.id).group(*_BUDGET))


def brackets(measurements) -> list[Bracket]:
    """Return a bracket per certified accuracy, in the order measured."""
    rows = [row for row in attack_rows(measurements) if row.accuracy.value is not None]
    certified = [m for m in measurements if m.value is not None and _CERTIFIED_ID.match(m.id)]
    parts = [(m, _CERTIFIED_ID.match(m.id).group(*_BUDGET)) for m in certified]
    return [
        Bracket(
            m, strongest([row for row in rows if (row.norm, row.epsilon, row.frames) == key and row.accuracy.n == m.n])
        )
        for m, key in parts
    ]


def examples_of(data: dict) -> str:
    """Return the kind of examples in a report's `data`: "images", "clips" or "sentences"."""
    return "sentences" if data.get("vocabulary_size") else "clips" if data.get("kind") == "clips" else "images"


def strongest(rows: list[AttackRow]) -> AttackRow | None:
    """Return the attack with the lowest accuracy; None if none was measured."""
    measured = [row for row in rows if row.accuracy.value is not None]
    return min(measured, key=lambda row: row.accuracy.value, default=None)


def compared_with(attack: AttackRow, rows: list[AttackRow]) -> list[AttackRow]:
    """Return the attacks, itself among them, that ran on the same images: accuracies on others say nothing about it."""
    return [row for row in rows if row.accuracy.value is not None and row.accuracy.n == attack.accuracy.n]


def weakly_attacked(measurements) -> list[str]:
    """Return the budgets within which attacks were run, but none was as strong as APGD-T or AutoAttack.

    On the digits, accuracies under APGD-T are close to AutoAttack's, and those under PGD several points higher.
    """
    rows = [row for row in attack_rows(measurements, members=True) if row.accuracy.value is not None]
    strong = {row.budget for row in rows if row.is_strong}
    return [budget for budget in dict.fromkeys(row.budget for row in rows) if budget not in strong]


def sort_key(identity: str) -> tuple[int, int]:
    """Return the sort key of a measurement id: by kind, and within a kind the headlines before the rest."""
    kind = identity.split(".")[0]
    ranks = (rank for rank, pattern in enumerate(_HEADLINES) if re.fullmatch(pattern, identity))
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS), next(ranks, len(_HEADLINES))


def in_order(report: Report) -> list[Measurement]:
    """Return all measurements except costs: clean, attacks, corruptions, stability, noise, shifts, calibration, ...

    Those that were not possible are not among them either: `unmeasured` gives their reasons.
    """
    measurements = (m for m in report.measurements if not m.id.startswith("cost.") and "reason" not in m.settings)
    return sorted(measurements, key=lambda m: sort_key(m.id))


def unmeasured(report: Report) -> list[tuple[str, str]]:
    """Return the name of each measurement that was requested and not possible, and the reason."""
    measurements = (m for m in report.measurements if isinstance(m.settings.get("reason"), str))
    return [(label(m), m.settings["reason"]) for m in sorted(measurements, key=lambda m: sort_key(m.id))]


def not_measured_lines(report: Report) -> list[str]:
    """Return a line for each measurement that was requested and not possible."""
    return [f"not measured: {name}: {reason}" for name, reason in unmeasured(report)]


def main_measurements(report: Report) -> list[Measurement]:
    """Return the headlines among the measurements, in order."""
    return [m for m in in_order(report) if sort_key(m.id)[1] < len(_HEADLINES)]


def label(measurement: Measurement, *, details: bool = True) -> str:
    """Return the display name of a measurement, which follows from its id and settings; the id if none does.

    Args:
        measurement: any.
        details: True to name the steps of PGD, the baseline, generated frost, and the number of corruptions if it is
            smaller than the benchmark's.
    """
    name = _name_of(measurement.id, measurement.settings if details else {})
    if name and details:
        baseline, frost = measurement.settings.get("baseline"), frost_word(measurement)
        count, full_count = measurement.settings.get("corruptions"), _CORRUPTIONS.get(measurement.id, 0)
        few = f"{count} of {full_count}" if isinstance(count, int) and count < full_count else ""
        return ", ".join(filter(None, (name, f"against {baseline}" if baseline else few, frost and f"{frost} frost")))
    return name or measurement.id


def frost_word(measurement: Measurement) -> str:
    """Return "generated" for a measurement on images with generated frost in place of the benchmark's; "" otherwise."""
    generated = measurement.settings.get("frost") == _GENERATED_FROST and _FROST_ID.fullmatch(measurement.id)
    return "generated" if generated else ""


def _name_of(identity: str, settings: dict) -> str:
    """Return the display name that follows from an id and settings; "" if none does."""
    if identity.startswith(REFERENCE):
        name = _name_of(identity.removeprefix(REFERENCE), settings)
        return name and f"{name}, of {settings.get('reference', 'the reference')}"
    if match := _ATTACK_ID.match(identity):
        member = f" ({attack_name(match['member'])})" if match["member"] else ""
        name = attack_name(match["attack"], settings) + member
        if match["what"] == "median_distance":  # does not depend on epsilon
            return f"{name}, {_budget(match['norm'], None)}, median distance"
        suffix = ", relative drop" if match["what"] == "drop" else ""
        return f"{name}, {_budget(*match.group(*_BUDGET))}{suffix}"
    if match := _CERTIFIED_ID.match(identity):
        return f"Certified accuracy, {_budget(*match.group(*_BUDGET))}"
    if match := _SMOOTHING_ID.match(identity):
        measure = _SMOOTHING_NUMBERS.get(match["what"]) or (
            f"certified accuracy, {NORM_NAMES[match['norm']]} r = {match['radius']}"
        )
        return f"{smoothed_name(match['noise'], match['sigma'])}, {measure}"
    if match := _SHIFT_ID.match(identity):
        measure = _SHIFT_NUMBERS.get(match["what"], match["what"])
        return f"{_SHIFTED_SETS.get(match['set'], nice(match['set']))}, {measure}"
    if parts := identities.conformal_parts(identity):
        attack, score, level, measure = parts
        under = f" under {attack_caption(attack, settings)}" if attack else ""
        return f"{score.upper()} sets for {share(float(level))}, {identities.CONFORMAL_NUMBERS[measure]}{under}"
    if parts := identities.ood_parts(identity):
        return identities.ood_label(*parts)
    if match := _CALIBRATION_ID.match(identity):
        measure = identities.LABELS.get(f"calibration.{match['what']}", match["what"])
        return f"{measure} under {attack_name(match['attack'], settings)}, {_budget(*match.group(*_BUDGET))}"
    return identities.LABELS.get(identity, "")


@dataclasses.dataclass(frozen=True)
class Smoothed:
    """The measurements of one smoothed classifier: a certified accuracy per radius, in ascending order, and the rest.

    Attributes:
        key: its part of the ids, "sigma_0.25".
        name: its display name.
        norm: of the radii, "L2".
        accuracies: radius -> certified accuracy.
        summaries: "acr", "abstention" -> measurement.
    """

    key: str
    name: str
    norm: str
    accuracies: dict[float, Measurement]
    summaries: dict[str, Measurement]


def smoothed(measurements) -> list[Smoothed]:
    """Return a row per smoothed classifier, in the order measured."""
    by_key: dict[tuple[str, str], Smoothed] = {}
    for measurement in measurements:
        match = _SMOOTHING_ID.match(measurement.id)
        if not match or measurement.value is None:
            continue
        key = match.group("noise", "sigma")
        row = by_key.setdefault(key, Smoothed("_".join(key), smoothed_name(*key), "", {}, {}))
        if match["what"]:
            row.summaries[match["what"]] = measurement
        else:
            row.accuracies[float(match["radius"])] = measurement
            by_key[key] = dataclasses.replace(row, norm=NORM_NAMES[match["norm"]])
    rows = [row for row in by_key.values() if row.accuracies]
    return [dataclasses.replace(row, accuracies=dict(sorted(row.accuracies.items()))) for row in rows]


def smoothed_name(noise: str, sigma: str) -> str:
    """Return the display name of a smoothed classifier: "Smoothed by Gaussian noise, σ = 0.25"."""
    return f"Smoothed by {'uniform' if noise.startswith('uniform') else 'Gaussian'} noise, σ = {sigma}"


def origin(measurements) -> str:
    """Describe the sources of images that do not come from the test set; "" where no source is recorded."""
    sources = {m.settings.get("source") for m in measurements}
    sentences = list(map(_origin_of, sorted(source for source in sources if isinstance(source, str))))
    return " ".join(filter(None, [*sentences, _FROST_NOTE if any(map(frost_word, measurements)) else ""]))


def _origin_of(source: str) -> str:
    kind, _, name = source.partition(": ")
    if kind == "published":
        return f"Published images: {name or 'of an unnamed set'}."
    return "Images generated by tfrobust." if kind == "generated" else ""


def number(measurement: Measurement | None) -> str:
    """Format the value with its unit: "63.1 %", "0.482", "41 s"; "-" if unknown, "<= ..." for an upper bound."""
    if measurement is None or measurement.value is None:
        return "-"
    bound = {"upper": "<= ", "lower": ">= "}.get(measurement.settings.get("bound"), "")
    return bound + quantity(measurement.value, measurement.unit)


def named_number(measurement: Measurement) -> tuple[str, str]:
    """Return the display name and the formatted value, with a unit in words appended to the name."""
    value, unit = number(measurement), f" {measurement.unit}"
    in_words = len(unit) > 2 and value.endswith(unit)
    return label(measurement) + (f" ({measurement.unit})" if in_words else ""), value.removesuffix(
        unit if in_words else ""
    )


def interval(measurement: Measurement | None) -> str:
    """Format the 95 % interval in the unit of `number`, without repeating it: "57.9 to 68.0"; "" if unknown."""
    if measurement is None or measurement.low is None or measurement.high is None:
        return ""
    if measurement.unit.startswith("fraction"):
        return " to ".join(per_cents(measurement.low, measurement.high))
    ends = [f"{end:.3g}" for end in (measurement.low, measurement.high)]
    digits = max(len(end.partition(".")[2]) for end in ends)
    if not any("e" in end for end in ends):
        ends = [f"{end:.{digits}f}" for end in (measurement.low, measurement.high)]
    return " to ".join(ends)


def similar_ids(identity: str, known_ids) -> str:
    """Return the known ids most similar to a missing one, joined by commas; the first ones if none is similar."""
    known_ids = sorted(known_id for known_id in known_ids if not known_id.startswith("cost."))
    return ", ".join(nearest(identity, known_ids) or known_ids[:5]) or "none"


def quantity(value: float, unit: str) -> str:
    """Format a number in its unit: fractions in per cent, seconds as a duration, the rest with 3 digits."""
    if unit.startswith("fraction"):
        return f"{per_cent(value)} %"
    if unit in ("s", "second", "seconds"):
        return duration(value)
    return f"{value:.3g} {unit}".rstrip() if unit not in ("ratio", "1") else f"{value:.3g}"


def per_cent(value: float | None) -> str:
    """Format a fraction in per cent as `per_cents` does, usually to one decimal: "63.1"; "-" if unknown."""
    return "-" if value is None else per_cents(value)[0]


def share(value: float | None) -> str:
    """Format a fraction with its unit, "63.1 %"; "-" if unknown."""
    return "-" if value is None else quantity(value, "fraction")


def per_cents(*values: float, sign: str = "") -> list[str]:
    """Format fractions in per cent to one decimal, or to as many (at most four) as distinguish each from 0 and 1.

    All values get the same number of decimals. Four decimals distinguish one in a million. A smaller distance from 0 or
    1 is floating-point error and asks for no more decimals.

    Args:
        *values: fractions of any size.
        sign: "+" to write the sign of positive values too.
    """
    shown = [next((digits for digits in range(1, 5) if _is_distinguished(value, digits)), 1) for value in values]
    return [format(100 * value, f"{sign}.{max(shown)}f") for value in values]


def _is_distinguished(value: float, digits: int) -> bool:
    """Return True if `digits` decimals of the percentage distinguish the fraction from 0 % and 100 %."""
    return abs(value) in (0, 1) or round(abs(100 * value), digits) not in (0, 100)


def title(report: Report) -> str:
    """Return model name, version if published, and kind if a file: "ascl_leaked, version 3"."""
    return ", ".join([report.model["name"], *filter(None, (version(report), file_kind(report)))])


def version(report: Report) -> str:
    """Return the version of a published model: "version 3"; "" if it is not published."""
    number = report.model.get("version")
    return f"version {number}" if number is not None else ""


def file_kind(report: Report) -> str:
    """Return the kind of a converted file: "LiteRT file (int8, 125,576 bytes)"; "" for other models."""
    kind, size = report.model.get("kind"), report.model.get("bytes")
    if not isinstance(report.model.get("format"), str):
        return ""
    details = [kind] if isinstance(kind, str) else []
    details += [f"{size:,} bytes"] if isinstance(size, int) else []
    return f"{report.model['format']} file" + (f" ({', '.join(details)})" if details else "")


def footer(report: Report) -> str:
    """Return the note at the end of a rendered report: its source and time."""
    creation = f", made {report.created}" if report.created else ""
    return f"Rendered from robustness_report.json ({report.schema}){creation}."


def doctor_counts(report: Report) -> dict[str, int]:
    """Count the doctor's findings by verdict: fail, warn, pass."""
    verdicts = [finding.verdict for finding in report.doctor]
    return {verdict: verdicts.count(verdict) for verdict in ("fail", "warn", "pass")}


def flat(mapping: dict, prefix: str = "") -> list[tuple[str, str]]:
    """Flatten a nested dictionary to (name, text) rows in its own order: {"a": {"b": 1}} -> ("a.b", "1")."""
    rows = []
    for name, value in mapping.items():
        if isinstance(value, dict) and value:
            rows += flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", words(value)))
    return rows


_NICE = {"val": "validation", "r_div": "R-DIV", "intra": "within a class", "inter": "between classes"}


def nice(name: str) -> str:
    """Return a column or setting name for display: "val_r_div" becomes "validation R-DIV"."""
    for machine, human in _NICE.items():
        name = re.sub(rf"(^|_){machine}(_|$)", rf"\1{human}\2", name)
    return name.replace("_", " ")


def by_size(mapping: dict) -> tuple[dict, dict]:
    """Split into the entries that fit into a table and the nested dictionaries with more than six values."""
    large = {name: value for name, value in mapping.items() if isinstance(value, dict) and len(flat(value)) > 6}
    return {name: value for name, value in mapping.items() if name not in large}, large


def words(value) -> str:
    """Format a JSON value for display: "-" for null, yes / no, 6 significant digits, lists with commas."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ") if abs(value) >= 100_000 else str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(words(item) for item in value)
    return str(value)


def cost_rows(report: Report) -> list[tuple[str, str]]:
    """Return the costs, from `report.cost` and from measurements under `cost.`, as (name, text); each name once."""
    entries = {}
    for name, text in flat(report.cost):
        value = report.cost.get(name)
        timed = name.endswith("seconds") and isinstance(value, (int, float))
        entries[_cost_name(name)] = duration(value) if timed else text
    for measurement in report.measurements:
        if measurement.id.startswith("cost."):
            entries.setdefault(_cost_name(measurement.id.removeprefix("cost.")), number(measurement))
    return list(entries.items())


def _cost_name(name: str) -> str:
    return name.removesuffix("_seconds").replace("_", " ")


_HISTORY_GROUPS = (
    ("shares", re.compile(r"negatives_(found|removed)$")),
    ("pairs", re.compile(r"(positives|negatives)")),
    ("accuracy", re.compile(r"accuracy")),
    ("divergence", re.compile(r"(r_div|intra|inter)(_|$)")),
    ("clock", re.compile(r"^(epoch|step)s?$|second|time|learning_rate|norm$|temperature|weight_of")),
)


def history_groups(columns: dict) -> dict[str, list[str]]:
    """Group the columns of `training.history`: shares, pairs, accuracy, divergence, clock, losses (the rest)."""
    groups = {"shares": [], "pairs": [], "accuracy": [], "divergence": [], "clock": [], "losses": []}
    for name, values in columns.items():
        if not any(isinstance(value, (int, float)) for value in values):
            continue
        group = next((group for group, pattern in _HISTORY_GROUPS if pattern.search(name)), "losses")
        groups[group].append(name)
    groups["losses"].sort(key=lambda name: name != "loss")
    return groups
