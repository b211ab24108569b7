"""The sections on the protocol: settings of training and attacks, model and data, cost, configuration."""

from tfrobust.report import reading
from tfrobust.report.blocks import Block, Code, Table, pairs
from tfrobust.report.sections.base import Section, joined


class Protocol(Section):
    """The settings of training and attacks."""

    anchor = "protocol"
    heading = "Protocol"
    lead = "The settings, for reproducing the results."

    @property
    def sentence(self) -> str:
        """The method of training and the strongest attack."""
        training = self.report.training
        parts = [f"with {training['method']}"] if isinstance(training.get("method"), str) else []
        parts += [f"for {training['epochs']} epochs"] if isinstance(training.get("epochs"), int) else []
        worst = reading.strongest(reading.attack_rows(self.report.measurements))
        trained = f"trained {' '.join(parts)}" if parts else ""
        attacked = f"attacked by {worst.name} with {worst.effort}" if worst and worst.effort else ""
        return joined([", ".join(filter(None, (trained, attacked)))])

    def blocks(self) -> list[Block]:
        """Return a table of the settings of training, and one of the attacks'."""
        found = []
        if self.report.training:
            small, large = reading.by_size(self.report.training)
            found.append(pairs(_named(reading.flat(small)), "Training"))
            found += [
                pairs(reading.flat(value), f"Training {reading.nice(name)}", collapsed=True)
                for name, value in large.items()
            ]
        rows = reading.attack_rows(self.report.measurements)
        settings = {row.title: dict(reading.flat(row.accuracy.settings)) for row in rows}
        names = dict.fromkeys(name for own in settings.values() for name in own)
        cells = [[reading.nice(name), *(own.get(name) for own in settings.values())] for name in names]
        if settings:
            found.append(Table(["Setting", *settings], cells, texts=len(settings) + 1, title="Attacks"))
        return found


class Identity(Section):
    """Names, sizes and hashes of model and data, and the environment."""

    anchor = "identity"
    heading = "Model and data"

    @property
    def lead(self) -> str:
        """The purpose of the hashes."""
        return f"Hashes tie these numbers to these weights and these {reading.examples_of(self.report.data)}."

    @property
    def sentence(self) -> str:
        """The data that the model was evaluated on."""
        size, data = self.report.data.get("test_size"), self.report.data["name"]
        examples = reading.examples_of(self.report.data)
        return f"Evaluated on {f'{size} ' if size else ''}test {examples} of {data}."

    def blocks(self) -> list[Block]:
        """Return the table of names and hashes, and further tables."""
        model, data = (
            {name: part[name] for name in sorted(part, key=_order)} for part in (self.report.model, self.report.data)
        )
        classes = data.pop("class_names", None)
        data, large = reading.by_size(data)
        if classes:
            data["classes"] = ", ".join(classes[:40]) + (f", ... ({len(classes)})" if len(classes) > 40 else "")
        rows = {f"model {name}": value for name, value in model.items()}
        rows |= {f"data {name}" if name != "classes" else name: value for name, value in data.items()}
        found = [pairs(_named(reading.flat({**rows, "run sha256": self.report.run_sha256})))]
        found += [
            pairs(reading.flat(value), f"Data {reading.nice(name)}", collapsed=True) for name, value in large.items()
        ]
        environment = reading.flat(self.report.environment)
        return [*found, *([pairs(environment, "Environment", collapsed=True)] if environment else [])]


def _order(name: str) -> tuple[int, str]:
    first = ("name", "version", "parameters", "weights_sha256", "train_size", "validation_size", "test_size")
    return (first.index(name) if name in first else len(first), name)


class Cost(Section):
    """The costs."""

    anchor = "cost"
    heading = "Cost"

    @property
    def sentence(self) -> str:
        """The first costs."""
        return joined(f"{name} {value}" for name, value in reading.cost_rows(self.report)[:3])

    def blocks(self) -> list[Block]:
        """Return the table of costs."""
        rows = reading.cost_rows(self.report)
        return [pairs(rows)] if rows else []


class Configuration(Section):
    """The operative configuration."""

    anchor = "configuration"
    heading = "Configuration"
    sentence = "The settings of this run, for reproducing it."

    def blocks(self) -> list[Block]:
        """Return the configuration as text."""
        text = self.report.configuration
        return [Code("Operative gin configuration", text)] if text.strip() else []


def _named(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(reading.nice(name), value) for name, value in rows]
