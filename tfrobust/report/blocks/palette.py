"""Colors by role, one for light and one for dark mode: plots name a role, the page defines its color.

A plot is drawn with placeholder colors. `as_variables` turns each into `var(--role)`, so that one inline SVG is correct
in both modes. Together with the dash and marker that `plots` gives each series, the ten series colors remain
distinguishable for color-blind readers.
"""

import re

# One color per meaning, the same in all plots.
MEANINGS = {
    "clean": ("#0b62c4", "#6cb2ff"),
    "attacked": ("#c2530a", "#ffa35c"),
    "certified": ("#2f7d3b", "#7fd18b"),
    "unknown": ("#8b93a0", "#8f98a5"),
}
# role -> (light, dark)
ROLES = {
    "ink": ("#33383f", "#c9ced6"),
    "faint": ("#d9dde3", "#3a4149"),
    "strong": ("#111418", "#f4f6f8"),
    **MEANINGS,
    "series-0": ("#0b62c4", "#6cb2ff"),
    "series-1": ("#c2530a", "#ffa35c"),
    "series-2": ("#0c8374", "#4fd1bd"),
    "series-3": ("#b0307f", "#f48ac8"),
    "series-4": ("#937000", "#e6c34a"),
    "series-5": ("#6a4bc4", "#b6a0ff"),
    "series-6": ("#3a96c4", "#93dbff"),
    "series-7": ("#7a4a2b", "#d6a684"),
    "series-8": ("#4d8a1f", "#a4d871"),
    "series-9": ("#6b7280", "#b7bdc8"),
    "level-0": ("#c3d4e8", "#2b4566"),
    "level-1": ("#9fbbda", "#3d5878"),
    "level-2": ("#7aa0cb", "#566d85"),
    "level-3": ("#5785bb", "#71838c"),
    "level-4": ("#3c6aa8", "#8f9c86"),
    "level-5": ("#2a528f", "#b0b477"),
    "level-6": ("#1b3b73", "#d4cd68"),
    "level-7": ("#0e2653", "#fdea4e"),
}
SERIES_COUNT = 10
# Of plots whose series have none of the meanings; the colors that look like these come last.
_ORDER = (2, 3, 5, 4, 6, 7, 9, 8, 0, 1)
# In legend entries.
_WORDS = {
    "clean": r"\b(clean|natural|no attack)\b",
    "attacked": r"\b(attack|attacked|adversarial|robust)\b|^under ",
    "certified": r"\bcertified\b",
    "unknown": r"\bunknown\b",
}
LEVEL_COUNT = 8

_NAMES = list(ROLES)
# The last two digits number the role. matplotlib writes a color as text, so that it can be found again in the SVG.
_PLACEHOLDER = re.compile(r"(fill|stroke|stop-color): #0af5([0-9a-f]{2})")


def series(number: int) -> str:
    """Return the role of the series at a place, for plots whose series have no meaning of their own."""
    return f"series-{_ORDER[number % SERIES_COUNT]}"


def meaning(text: str) -> str:
    """Return the role that a legend entry means: "attacked" for "under PGD-20, L∞ ε = 0.2"; "" for most."""
    return next((role for role, pattern in _WORDS.items() if re.search(pattern, text, re.IGNORECASE)), "")


def placeholder(role: str) -> str:
    """Return the placeholder color with which a plot is drawn for this role."""
    return f"#0af5{_NAMES.index(role):02x}"


def as_variables(svg: str) -> str:
    """Replace every placeholder color in the SVG by its CSS variable."""

    def replace(match):
        position = int(match[2], 16)
        if position >= len(_NAMES):
            return match[0]
        return f"{match[1]}: var(--{_NAMES[position]})"

    return _PLACEHOLDER.sub(replace, svg)


def declarations(dark: bool) -> str:
    """Return the CSS declarations of all roles for one mode."""
    return "".join(f"--{role}:{pair[dark]};" for role, pair in ROLES.items())
