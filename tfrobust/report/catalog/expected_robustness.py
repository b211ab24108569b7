"""The record of the expected robustness."""

from tfrobust.report.catalog.record import Family, Quantity, Record
from tfrobust.report.catalog.spelling import attack_caption, attack_key

EXPECTED = Record(
    family=Family(name="expected_robustness", place=15),
    prefix=lambda settings: f"expected_robustness.{attack_key(settings)}",
    quantities={"accuracy": Quantity(label="Expected robustness (mean over radii)", better=1, headline=0)},
    label=lambda settings, quantity: f"{quantity.label}, {attack_caption(settings, steps=True)}",
    radii="a range of radii",
)
