"""Groups of the columns that a training logs by epoch."""

import re

_HISTORY_GROUPS = (
    ("shares", re.compile(r"negatives_(found|removed)$")),
    ("pairs", re.compile(r"(positives|negatives)")),
    ("accuracy", re.compile(r"accuracy")),
    ("divergence", re.compile(r"(r_div|intra|inter)(_|$)")),
    ("clock", re.compile(r"^(epoch|step)s?$|second|time|learning_rate|norm$|temperature|weight_of|^epsilon$")),
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
