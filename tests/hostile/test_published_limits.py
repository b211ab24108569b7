"""The limits of the guide on safety are those of the code."""

import pathlib

import pytest

import tfrobust
from tfrobust.ops import program_files, program_graph, program_sizes, rehearsal, variable_index
from tfrobust.report import schema

GUIDE = (pathlib.Path(tfrobust.__file__).parent / "guides" / "safety.md").read_text("utf-8")
_SMALL_PARTS = [largest for _, largest in program_files._SMALL_PARTS.values()]

# The beginning of a row -> the numbers in it, in its order.
LIMITS = {
    "SavedModel: `saved_model.pb`": (
        f"{program_files._LARGEST_PROGRAM >> 20} MiB",
        f"{program_files._MOST_GRAPHS} graphs",
        f"{program_graph._MOST_NODES:,} nodes",
        f"{program_sizes._MOST_MESSAGES:,} constants",
    ),
    "SavedModel: constants": (
        f"{program_sizes.LARGEST_CONSTANTS >> 30} GiB",
        *(f" {size}" for size in dict.fromkeys(program_sizes._ELEMENT_SIZES.values())),
    ),
    "SavedModel: a declared shape": (
        f"{program_sizes.MOST_DIMENSIONS} dimensions",
        f"2^{program_sizes.MOST_ELEMENTS.bit_length() - 1} elements",
    ),
    "SavedModel: operations": (f"{program_sizes._MOST_OPERATIONS:,}",),
    "SavedModel: calls": (f"{program_sizes._MOST_CALLS_DEEP} deep",),
    "SavedModel: objects": (f"{program_sizes._MOST_OBJECTS:,}", f"{program_sizes._MOST_OBJECTS_DEEP} steps"),
    "SavedModel: `variables.index`": (f"{variable_index.LARGEST_INDEX >> 20} MiB",),
    "SavedModel: `fingerprint.pb`": (f"{_SMALL_PARTS[0] >> 10} KiB", f"{_SMALL_PARTS[1] >> 20} MiB"),
    "SavedModel: files": (f"{program_files._MOST_FILES:,}",),
    "SavedModel: memory": (f"{rehearsal.LARGEST >> 30} GiB", f"{rehearsal._TIMES_FILES} times"),
    "SavedModel: time": (f"{rehearsal.SECONDS} s",),
    "report: measurements": (f"{schema._LONGEST_LIST:,}",),
}


@pytest.mark.parametrize("beginning", LIMITS)
def test_the_guide_says_what_the_code_does(beginning):
    (row,) = [line for line in GUIDE.splitlines() if line.startswith(f"| {beginning}")]
    place = row.index("|", 1)
    for limit in LIMITS[beginning]:
        place = row.index(limit, place) + len(limit)
