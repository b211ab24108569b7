"""The plan of tools/benchmarks/results_table.py: which rows are trained, by which commands, for which claims."""

import dataclasses
import pathlib
import tomllib

from _recipes import ROOT

from tfrobust.errors import InputError


@dataclasses.dataclass(frozen=True)
class Published:
    """Numbers of others for the setting of a row.

    Attributes:
        source: authors and year; the page has the list of sources.
        setting: what differs from the row, in a few words.
        values: column -> text, such as {"autoattack": "78.5, PGD and MIP, n = 1,000"}.
    """

    source: str
    setting: str
    values: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Row:
    """A training that is repeated with several seeds, or an ensemble or a later evaluation of another row's exports.

    Attributes:
        name: distinct in the plan, and the first part of its files' names.
        label: the row's name in the tables; "" for `name`.
        files: gin files in order; the plan's own follow the first.
        params: values of --gin_param after the plan's; {seed} is the seed, {exported} the folder of the exports.
        seeds: one training each.
        minutes: planned processor time of a training and its evaluation with the first seed.
        thorough: measure later seeds as the first one, without the table's `later_seeds`.
        members: the row whose exports, one for each seed, tools/benchmarks/ensemble.py averages; the ensemble is then
            evaluated with `files` and `params` alone. "" for no ensemble.
        evaluates: the row whose exports, one for each of `seeds`, are evaluated with `files` and `params` alone; the
            tables show the measurements in that row. "" for no later evaluation.
        published: numbers of others.
    """

    name: str
    files: tuple[str, ...]
    minutes: float
    label: str = ""
    members: str = ""
    evaluates: str = ""
    params: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    thorough: bool = False
    published: tuple[Published, ...] = ()

    @property
    def title(self) -> str:
        """The row's name in the tables."""
        return self.label or self.name

    @property
    def source(self) -> str:
        """The row whose exports this row takes; "" for a training."""
        return self.members or self.evaluates


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows that share a data set, a threat model and columns.

    Attributes:
        title: a heading.
        columns: heading -> id of a measurement.
        rows: in order.
        reference: the row that the others are compared with; "" for none.
        files: gin files that follow the first of each row.
        params: values of --gin_param of each row, before the row's.
        later_seeds: values of --gin_param of all seeds but the first, such as fewer images.
        imports: values of --gin_import.
    """

    title: str
    columns: dict[str, str]
    rows: tuple[Row, ...]
    reference: str = ""
    files: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    later_seeds: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    def gin(self, row: Row, seed: int, exported: pathlib.Path) -> tuple[list[str], list[str]]:
        """Return the values of --gin_file and --gin_param of one run."""
        if row.source:
            return list(row.files), list(row.params)
        later = () if row.thorough or seed == row.seeds[0] else self.later_seeds
        params = [*self.params, *later, *row.params]
        filled = [param.replace("{seed}", str(seed)).replace("{exported}", str(exported)) for param in params]
        return [row.files[0], *self.files, *row.files[1:]], [*filled, f"SEED={seed}"]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a paper about two rows.

    Attributes:
        text: the claim in one sentence.
        source: author and year.
        better: a row.
        worse: the row that it is above.
        measurement: an id.
        larger: whether a larger value is better.
    """

    text: str
    source: str
    better: str
    worse: str
    measurement: str
    larger: bool = True


@dataclasses.dataclass(frozen=True)
class Plan:
    """The content of a plan file.

    Attributes:
        output: folder of the stored results.
        work: folder of checkpoints and exports, which can go when the results are there.
        page: the guide whose marked part `results_table.py --write` replaces.
        commands: the guide for commands and stored outcomes, where they are too long for the page; in its folder.
        hours: processor time of all rows together.
        tables: in the order in which they are run and printed.
        claims: in the order in which they are printed.
    """

    output: pathlib.Path
    work: pathlib.Path
    page: pathlib.Path
    commands: pathlib.Path
    hours: float
    tables: tuple[Table, ...]
    claims: tuple[Claim, ...] = ()

    def rows(self) -> dict[str, tuple[Table, Row]]:
        """Return name -> (table, row)."""
        return {row.name: (table, row) for table in self.tables for row in table.rows}


def read(path: pathlib.Path) -> Plan:
    """Read a plan file.

    Raises:
        InputError: it is missing, no TOML, names something unknown, or a row or a claim does not fit the others.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        repeated_rows = content.pop("rows", [])
        values = [table["values"] for table in content["tables"] if "values" in table]
        claims = _claims(content.pop("claims", []), values or [{}])
        tables = tuple(_table(table, repeated_rows) for table in content.pop("tables"))
        content.setdefault("commands", content["page"])
        folders = {name: ROOT / content.pop(name) for name in ("output", "work", "page", "commands")}
        plan = Plan(**folders, **content, tables=tables, claims=claims)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no plan: {error}") from None
    names = [row.name for table in tables for row in table.rows]
    unknown = [name for claim in claims for name in (claim.better, claim.worse) if name not in names]
    unknown += [table.reference for table in tables if table.reference and table.reference not in names]
    trained = [row.name for table in tables for row in table.rows if not row.source]
    unknown += [row.source for table in tables for row in table.rows if row.source and row.source not in trained]
    repeated = [name for name in names if names.count(name) > 1]
    if unknown or repeated:
        raise InputError(f"{path}: {unknown[0]!r} is no row." if unknown else f"{path}: two rows {repeated[0]!r}.")
    rows = plan.rows()
    for _, row in rows.values():
        if row.evaluates and not set(row.seeds) <= set(rows[row.evaluates][1].seeds):
            raise InputError(f"{path}: {row.name!r} evaluates seeds that {row.evaluates!r} does not train.")
    return plan


def _table(content: dict, repeated_rows: list[dict]) -> Table:
    """Return a table, with its own rows or with the plan's, in which a table's `values` replace <name>."""
    values = content.pop("values", {})
    contents = [_filled(row, values) for row in content.pop("rows", repeated_rows)]
    rows = [
        Row(**{**row, "published": tuple(Published(**other) for other in row.get("published", ()))}) for row in contents
    ]
    return Table(**content, rows=tuple(rows))


def _claims(contents: list[dict], values_of_tables: list[dict]) -> tuple[Claim, ...]:
    """Return each claim once; where it has <name>, once with the `values` of each table."""
    filled = [_filled(claim, values) for claim in contents for values in values_of_tables]
    return tuple(Claim(**claim) for number, claim in enumerate(filled) if claim not in filled[:number])


def _filled(content, values: dict[str, str]):
    """Return TOML's content with each <name> in its texts replaced."""
    if isinstance(content, dict):
        return {name: _filled(value, values) for name, value in content.items()}
    if isinstance(content, list):
        return [_filled(value, values) for value in content]
    if isinstance(content, str):
        for name, value in values.items():
            content = content.replace(f"<{name}>", value)
    return content
