"""The sections on training: selected pairs, and losses and accuracies by epoch."""

from collections.abc import Callable
from functools import partial

from tfrobust.report import reading
from tfrobust.report.blocks import Block, Figure, columns_table, plots
from tfrobust.report.blocks.plots import Line
from tfrobust.report.schema import Report
from tfrobust.report.sections.base import Section, columns_of

# Series -> (prefix of its figures' ids, suffix of their captions), for runs with two stages.
_HISTORIES = {"pretraining.history": ("pretraining-", ", first stage"), "training.history": ("", "")}


class Pairs(Section):
    """Positives and negatives per anchor, and the false negatives found, by epoch."""

    anchor = "pairs"
    heading = "Selected pairs"
    sentence = "The numbers of positive and negative pairs per anchor during training."
    lead = "The images that attract and repel each anchor, by the selection rule."

    def blocks(self) -> list[Block]:
        """Return the plots."""
        return _of_each_history(self.report, _pairs)


class History(Section):
    """Loss terms and accuracies by epoch."""

    anchor = "history"
    heading = "Training"
    lead = "Values logged after each epoch, on training and validation images."

    @property
    def sentence(self) -> str:
        """The final and the best validation accuracy."""
        columns = columns_of(self.report, "training.history")
        name = next((one for one in ("val_robust_accuracy", "val_clean_accuracy") if one in columns), None)
        rows = zip(columns.get("epoch", ()), columns.get(name, ()), strict=False)
        known = [(value, epoch) for epoch, value in rows if isinstance(value, (int, float)) and epoch is not None]
        if not known:
            return ""
        last, (best, epoch) = known[-1][0], max(known, key=lambda pair: pair[0])
        last, best = (reading.quantity(value, "fraction") for value in (last, best))
        return f"The {reading.nice(name)} ended at {last}; its best was {best} after epoch {epoch}."

    def blocks(self) -> list[Block]:
        """Return the plots."""
        return _of_each_history(self.report, _progress)


def _of_each_history(report: Report, figures: Callable) -> list[Figure]:
    found = []
    for identity, (prefix, stage) in _HISTORIES.items():
        columns = columns_of(report, identity, "epoch")
        if columns:
            found += [
                _figure(columns, f"{prefix}{name}", f"{caption}{stage}", chosen, axes)
                for name, caption, chosen, axes in figures(columns, reading.history_groups(columns))
                if chosen
            ]
    return found


def _figure(columns: dict, identity: str, caption: str, chosen: dict[str, str], axes: dict) -> Figure:
    """Return a plot against the epoch of the chosen columns, by name and legend entry, with its numbers."""
    lines = [Line(text, columns["epoch"], columns[name]) for name, text in chosen.items()]
    draw = partial(plots.curves, lines=lines, x_label="epoch", **axes)
    return Figure(identity, caption, draw, columns_table(columns, ["epoch", *chosen]))


def _pairs(columns: dict, groups: dict):
    """Yield (identity, caption, columns, axes) of the plots of pairs."""
    for kind in ("positives", "negatives"):
        names = sorted((name for name in groups["pairs"] if kind in name), key=lambda name: "adversarial" in name)
        chosen = {name: reading.nice(name).replace(f"{kind} ", "") for name in names}
        yield f"pairs-{kind}", f"{kind.capitalize()} per anchor", chosen, {"y_label": f"{kind} per anchor"}
    axes = {"y_label": "share", "percent": True}
    yield "pairs-shares", "False negatives found, true ones removed", _nice(groups["shares"]), axes


def _progress(columns: dict, groups: dict):
    """Yield (identity, caption, columns, axes) of the plots of losses and accuracies."""
    values = [value for name in groups["losses"] for value in columns[name] if isinstance(value, (int, float))]
    wide = bool(values) and min(values) > 0 and max(values) > 50 * min(values)
    axes = {"y_label": "mean per example", "logarithmic": wide}
    yield "history-losses", "Loss and its terms", _nice(groups["losses"]), axes
    axes = {"y_label": "accuracy", "percent": True}
    yield "history-accuracy", "Accuracy during training", _nice(groups["accuracy"]), axes


def _nice(names: list[str]) -> dict[str, str]:
    return {name: reading.nice(name) for name in names}
