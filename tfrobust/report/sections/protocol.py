"""The sections on the protocol: settings of training and attacks, model and data, cost, configuration."""

from tfrobust.common.console import duration
from tfrobust.report import attack_table, formats, reading
from tfrobust.report.blocks import Block, Code, Table, pairs
from tfrobust.report.catalog import spelling
from tfrobust.report.catalog.outputs import COST
from tfrobust.report.schema import Report
from tfrobust.report.sections.base import Section

# Settings of an attack that its title or the head of the page states.
_IN_THE_TITLE = ("attack", "label", "norm", "epsilon", "interval")


class Protocol(Section):
    """The settings of training and attacks."""

    anchor = "protocol"
    heading = "Protocol"
    lead = "The settings, for reproducing the results."

    def blocks(self) -> list[Block]:
        """Return a table of the settings of training, and one of the attacks'."""
        tables = []
        if self.report.training:
            training = self.report.training
            norm = training.get("norm")
            training = training | (
                {"norm": spelling.NORM_NAMES[norm]} if isinstance(norm, str) and norm in spelling.NORM_NAMES else {}
            )
            small, large = formats.by_size(training)
            tables.append(pairs(_named(formats.flat(small)), "Training"))
            tables += [
                pairs(formats.flat(value), f"Training {formats.nice(name)}", collapsed=True)
                for name, value in large.items()
            ]
        rows = attack_table.attack_rows(self.report.measurements)
        settings = [dict(formats.flat(row.accuracy.settings)) for row in rows]  # two attacks may have one title
        names = dict.fromkeys(
            name for attack_settings in settings for name in attack_settings if name not in _IN_THE_TITLE
        )
        cells = [
            [
                formats.nice(name),
                *(attack_settings.get(name, "-").replace("_", " ") for attack_settings in settings),
            ]
            for name in names
        ]
        if settings:
            tables.append(
                Table(["Setting", *(row.title for row in rows)], cells, texts=len(settings) + 1, title="Attacks")
            )
        return tables


class Identity(Section):
    """Names, sizes and hashes of model and data, and the environment."""

    anchor = "identity"
    heading = "Model and data"

    @property
    def lead(self) -> str:
        """The purpose of the hashes."""
        return f"Hashes tie these numbers to these weights and these {self.examples}."

    def blocks(self) -> list[Block]:
        """Return the table of names and hashes, and further tables."""
        model, data = (
            {name: part[name] for name in sorted(part, key=_order)} for part in (self.report.model, self.report.data)
        )
        classes = data.pop("class_names", None)
        data, large = formats.by_size(data)
        if classes:
            data["classes"] = ", ".join(classes[:40]) + (f", ... ({len(classes)})" if len(classes) > 40 else "")
        rows = {f"model {name}": value for name, value in model.items()}
        rows |= {f"data {name}" if name != "classes" else name: value for name, value in data.items()}
        tables = [pairs(_named(formats.flat({**rows, "run sha256": self.report.run_sha256})))]
        tables += [
            pairs(formats.flat(value), f"Data {formats.nice(name)}", collapsed=True) for name, value in large.items()
        ]
        environment = formats.flat(self.report.environment)
        tables += [pairs(environment, "Environment", collapsed=True)] if environment else []
        ids = [[reading.label(m), m.id] for m in reading.main_measurements(self.report)]
        return [
            *tables,
            *([Table(["Measurement", "Id"], ids, 2, "Ids of the measurements", collapsed=True)] if ids else []),
        ]


def _order(name: str) -> tuple[int, str]:
    first = ("name", "version", "parameters", "weights_sha256", "train_size", "validation_size", "test_size")
    return (first.index(name) if name in first else len(first), name)


class Cost(Section):
    """The costs."""

    anchor = "cost"
    heading = "Cost"

    def blocks(self) -> list[Block]:
        """Return the table of costs."""
        rows = cost_rows(self.report)
        return [pairs(rows)] if rows else []


def cost_rows(report: Report) -> list[tuple[str, str]]:
    """Return the costs, from `report.cost` and from measurements under `cost.`, as (name, text); each name once."""
    entries = {}
    for name, text in formats.flat(report.cost):
        value = report.cost.get(name)
        timed = name.endswith("seconds") and isinstance(value, (int, float))
        entries[_cost_name(name)] = duration(value) if timed else text
    for measurement in report.measurements:
        if reading.is_cost(measurement):
            entries.setdefault(
                _cost_name(measurement.id.removeprefix(f"{COST.family.name}.")), formats.number(measurement)
            )
    return list(entries.items())


def _cost_name(name: str) -> str:
    return name.removesuffix("_seconds").replace("_", " ")


class Configuration(Section):
    """The operative configuration."""

    anchor = "configuration"
    heading = "Configuration"

    def blocks(self) -> list[Block]:
        """Return the configuration as text."""
        text = self.report.configuration
        return [Code("Operative gin configuration", text)] if text.strip() else []


def _named(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(formats.nice(name), value) for name, value in rows]
