"""The sections on training: robust overfitting, selected pairs, and losses and accuracies by epoch."""

from collections.abc import Callable
from functools import partial

from tfrobust.report import formats, history
from tfrobust.report.blocks import Block, Figure, Grid, columns_table, plots
from tfrobust.report.blocks.plots import Line
from tfrobust.report.parts import has_numbers
from tfrobust.report.schema import Report
from tfrobust.report.sections.base import Section, columns_of

# Series -> (prefix of its figures' ids, suffix of their captions), for runs with two stages.
_HISTORIES = {"pretraining.history": ("pretraining-", ", first stage"), "training.history": ("", "")}


_CLEAN, _ROBUST = "val_clean_accuracy", "val_robust_accuracy"


class Epochs(Section):
    """Clean and robust validation accuracy by epoch, for runs that recorded the robust one."""

    anchor = "epochs"
    heading = "Clean and robust accuracy over epochs"

    @property
    def lead(self) -> str:
        """The images, and the meaning of a falling curve."""
        size = self.report.data.get("validation_size")
        examples = f"{size} validation {self.examples}" if size else f"validation {self.examples}"
        return (
            f"Accuracy on {examples} after an epoch. If the robust accuracy falls as training goes on, the model"
            f" overfits to the adversarial {self.examples} of training (robust overfitting)."
        )

    @property
    def sentence(self) -> str:
        """The final and the best robust accuracy."""
        (_, last), (epoch, best) = self._points[-1], self._best
        if len(self._points) == 1:
            return f"The robust accuracy was measured once: {formats.quantity(best, 'fraction')} after epoch {epoch}."
        last, best = (formats.quantity(value, "fraction") for value in (last, best))
        return f"The robust accuracy ended at {last}; its best was {best} after epoch {epoch}."

    def blocks(self) -> list[Block]:
        """Return the plot, unless it would be of a single epoch, and the grid of its numbers."""
        if not self._points:
            return []
        columns = columns_of(self.report, "training.history", "epoch")
        epochs = [row for row, value in enumerate(columns[_ROBUST]) if value is not None]
        epochs = epochs[:: -(-len(epochs) // _MOST_EPOCHS)]
        series = self.report.get_series("training.history")
        names = {name: text for name, text in _SHOWN.items() if has_numbers(series, name)}
        lines = [Line(text, columns["epoch"], columns[name]) for name, text in names.items()]
        axes = {"x_label": "epoch", "y_label": "validation accuracy", "percent": True}
        mark = (self._best[0], f"best robust accuracy, epoch {self._best[0]}")
        draw = partial(plots.curves, lines=lines, mark=mark, **axes)
        rows = [[columns["epoch"][row], *(formats.share(columns[name][row]) for name in names)] for row in epochs]
        grid = Grid(["Epoch", *(text.capitalize() for text in names.values())], rows, texts=0)
        figures = [Figure("epochs-accuracy", "Validation accuracy", draw)] if len(self._points) > 1 else []
        return [*figures, grid]

    @property
    def _points(self) -> list[tuple[int, float]]:
        """The epochs with a measured robust accuracy, and this."""
        series = self.report.get_series("training.history")
        if not has_numbers(series, "epoch", _ROBUST):
            return []
        rows = zip(series.columns["epoch"], series.columns[_ROBUST], strict=True)
        return [row for row in rows if None not in row]

    @property
    def _best(self) -> tuple[int, float]:
        return max(self._points, key=lambda point: point[1])


_SHOWN = {_CLEAN: "clean", _ROBUST: "robust"}
_MOST_EPOCHS = 10


class Pairs(Section):
    """Positives and negatives per anchor, and the false negatives found, by epoch."""

    anchor = "pairs"
    heading = "Selected pairs"

    @property
    def lead(self) -> str:
        """The meaning of a pair."""
        return f"The {self.examples} that attract and repel each anchor, by the selection rule."

    def blocks(self) -> list[Block]:
        """Return the plots."""
        return _of_each_history(self.report, _pairs)


class History(Section):
    """Loss terms and the accuracies that have no section of their own, by epoch."""

    anchor = "history"
    heading = "Training"

    @property
    def lead(self) -> str:
        """The origin of the values."""
        return f"Values logged after each epoch, on training and validation {self.examples}."

    def blocks(self) -> list[Block]:
        """Return the plots."""
        return _of_each_history(self.report, _progress)


def _of_each_history(report: Report, figures: Callable) -> list[Figure]:
    all_figures = []
    for identity, (prefix, stage) in _HISTORIES.items():
        columns = columns_of(report, identity, "epoch")
        if columns:
            all_figures += [
                _figure(columns, f"{prefix}{name}", f"{caption}{stage}", chosen, axes)
                for name, caption, chosen, axes in figures(columns, history.history_groups(columns))
                if chosen
            ]
    return all_figures


def _figure(columns: dict, identity: str, caption: str, chosen: dict[str, str], axes: dict) -> Figure:
    """Return a plot against the epoch of the chosen columns, by name and legend entry, with its numbers."""
    lines = [Line(text, columns["epoch"], columns[name]) for name, text in chosen.items()]
    draw = partial(plots.curves, lines=lines, x_label="epoch", **axes)
    return Figure(identity, caption, draw, columns_table(columns, ["epoch", *chosen]))


def _pairs(columns: dict, groups: dict):
    """Yield (identity, caption, columns, axes) of the plots of pairs."""
    for kind in ("positives", "negatives"):
        names = sorted((name for name in groups["pairs"] if kind in name), key=lambda name: "adversarial" in name)
        chosen = {name: formats.nice(name).replace(f"{kind} ", "") for name in names}
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
    names = [name for name in groups["accuracy"] if _ROBUST not in groups["accuracy"] or name not in _SHOWN]
    yield "history-accuracy", "Accuracy during training", _nice(names), axes


def _nice(names: list[str]) -> dict[str, str]:
    return {name: formats.nice(name) for name in names}
