"""The record of the accuracy over several threat models."""

from tfrobust.report.catalog.record import Family, Quantity, Record
from tfrobust.report.catalog.spelling import attack_name, ball, budget_of, text


def _label(settings: dict, quantity: Quantity) -> str:
    budgets = [budget_of(threat) for threat in settings["threats"]]
    return f"{quantity.label} of {', '.join(budgets[:-1])} and {budgets[-1]}, {attack_name(settings['label'])}"


UNION = Record(
    family=Family(name="union", place=12),
    prefix=lambda settings: "_".join([f"union.{text(settings['label'])}", *map(ball, settings["threats"])]),
    quantities={"accuracy": Quantity(label="Union", better=1, headline=0)},
    label=_label,
    must_agree=("attacks", "member_efforts", "sample", "votes"),
    radii="several norms",
)
