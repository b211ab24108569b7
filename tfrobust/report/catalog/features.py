"""Records of numbers on features and gradients: geometry of the embedding, utility and sensitivity, tokens."""

from __future__ import annotations

from tfrobust.report.catalog.record import Absence, Family, Quantity, Record

_GEOMETRY_FAMILY = Family(name="geometry", place=120)
GEOMETRY = Record(
    family=_GEOMETRY_FAMILY,
    prefix="geometry",
    quantities={
        "r_div": Quantity(label="Relative divergence (R-DIV)", headline=0),
        "intra_class_divergence": Quantity(label="Divergence within a class"),
        "inter_class_divergence": Quantity(label="Divergence between classes"),
        "inter_intra_ratio": Quantity(label="Inter / intra-class distance", headline=0),
        "inter_class_distance": Quantity(label="Distance between classes"),
        "intra_class_distance": Quantity(label="Distance within a class"),
        "alignment": Quantity(label="Alignment"),
        "uniformity": Quantity(label="Uniformity"),
    },
    must_agree=("power", "views", "distance", "sharpness"),
)
# The numbers that the section on divergence shows.
DIVERGENCES = ("r_div", "intra_class_divergence", "inter_class_divergence")
_SENSITIVITY_FAMILY = Family(
    name="sensitivity",
    place=130,
    absences={
        "sentences": Absence(
            sentence=(
                "Agreement between the words that matter to readers and those that matter to the model (sensitivity)."
            ),
            order=-1,
        )
    },
)
SENSITIVITY = Record(
    family=_SENSITIVITY_FAMILY,
    prefix="sensitivity",
    quantities={
        "utility_concentration": Quantity(label="Utility, concentration (Gini)"),
        "sensitivity_concentration": Quantity(label="Sensitivity, concentration (Gini)"),
        "agreement": Quantity(label="Utility-sensitivity agreement (rho)", headline=0),
    },
    must_agree=("measure", "sensitivity", "projections"),
)
TOKENS = Record(
    family=_SENSITIVITY_FAMILY,
    prefix="sensitivity.tokens",
    quantities={
        "correlation": Quantity(
            label="Token sensitivity and strength, correlation in a sentence", better=1, headline=0
        ),
        "pooled_correlation": Quantity(label="Token sensitivity and strength, correlation over all", better=1),
    },
    must_agree=("measure", "neutral"),
)
