"""The limits of the guide on safety are those of the code."""

import pathlib

import pytest

import tfrobust
from tfrobust.commands import query
from tfrobust.commands.configuration import binding as checks
from tfrobust.common import files
from tfrobust.data import checks as data_checks
from tfrobust.data import spec
from tfrobust.data.sources import cifar, stanford_sentiment, tfds
from tfrobust.models.weights import weight_files
from tfrobust.report import schema
from tfrobust.security import (
    archives,
    flatbuffer,
    litert_files,
    memory,
    picture_files,
    program_files,
    program_graph,
    program_sizes,
    rehearsal,
    rehearsal_process,
    variable_index,
)
from tfrobust.security import pickles as restricted_pickle
from tfrobust.serving import hub_files
from tfrobust.serving.client import transport
from tfrobust.serving.export import saved_model as export
from tfrobust.serving.server import development

GUIDE = (pathlib.Path(tfrobust.__file__).parent / "guides" / "safety.md").read_text("utf-8")
_SMALL_PARTS = [largest for _, largest in program_files._SMALL_PARTS.values()]

# The beginning of a row -> the numbers in it, in its order.
LIMITS = {
    "SavedModel: `saved_model.pb`": (
        f"{program_files._LARGEST_PROGRAM >> 20} MiB",
        f"{program_files._MOST_GRAPHS} graphs",
        f"{program_graph._MOST_NODES:,} nodes",
        f"{program_files.MOST_PARTS:,} parts",
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
    "SavedModel: files": (f"{program_files._MOST_FILES:,}", f"{program_files._DEEPEST_FOLDER} deep"),
    "SavedModel: memory": (
        f"{rehearsal.LARGEST >> 30} GiB",
        f"{rehearsal._TIMES_FILES} times",
        f"{rehearsal._TIMES_BATCH} times",
        f"{rehearsal._PER_PROCESSOR >> 20} MiB",
        f"{memory._SHARE:.0%}".replace("%", " %"),
    ),
    "SavedModel: time": (f"{rehearsal.SECONDS} s", f"{rehearsal_process.CALL_SECONDS} s"),
    "SavedModel: arguments": (f"{program_sizes.MOST_STRUCTURE:,}", f"{program_sizes.MOST_STRUCTURES:,}"),
    "LiteRT: examples": (f"{litert_files.MOST_AT_A_TIME}",),
    "LiteRT: file": (f"{litert_files.LARGEST >> 20} MiB",),
    "LiteRT: parts": (f"{flatbuffer.MOST_TABLES:,}", f"{flatbuffer.MOST_NUMBERS:,}", f"{flatbuffer._MOST_TIMES} times"),
    "LiteRT: subgraphs": (f"{litert_files.MOST_SUBGRAPHS};", f"{litert_files.MOST_TENSORS:,} of each"),
    "LiteRT: a shape": (f"{litert_files.MOST_DIMENSIONS} dimensions", f"{litert_files.LARGEST_TENSORS >> 30} GiB"),
    "report: measurements": (f"{schema._LONGEST_LIST:,}",),
    "report: size": (f"{schema._LONGEST_TEXT >> 20} MiB", f"{schema._DEEPEST} deep"),
    "`robustness_report`": (f"{export.MOST_REPORTS} requests",),
    "`.keras`, `.npz`: parts": (f"{archives._MOST_PARTS:,}", f"{archives._LARGEST_LIST >> 20} MiB"),
    "`.keras`, `.npz`: growth": (f"{archives._MOST_GROWTH} times", f"{archives._LARGEST_UNASKED >> 20} MiB"),
    "`.keras`: a JSON part": (f"{archives._LARGEST_JSON >> 20} MiB",),
    "archives of CIFAR": (
        f"{archives._LARGEST_TAR >> 30} GiB",
        f"{cifar.LARGEST_FILE >> 20} MiB",
        f"{restricted_pickle.MOST_OPERATIONS:,} operations",
    ),
    "images and clips": (f"2^{picture_files.LARGEST.bit_length() - 1}",),
    "pictures": (f"{spec._LARGEST_FILE >> 20} MiB", f"2^{picture_files.LARGEST.bit_length() - 1}"),
    "weights in": (f"{weight_files.LARGEST_LIST >> 20} MiB",),
    "data: classes": (f"2^{data_checks.MOST_CLASSES.bit_length() - 1}", f"{tfds._LARGEST_TEXT >> 20} MiB"),
    "vocabularies": (f"{files.LARGEST_TEXT >> 20} MiB", f"{stanford_sentiment.LARGEST_FILE >> 20} MiB"),
    "data that a source computes": (f"{data_checks.MOST_GENERATED >> 30} GiB",),
    "Hugging Face Hub: list": (f"{hub_files.LARGEST_LIST >> 20} MiB", f"{hub_files.MOST_FILES:,}"),
    "Hugging Face Hub: time": (f"{hub_files.SILENT_SECONDS:g} s", f"{hub_files.WINDOW_BYTES >> 10} KiB"),
    "gin: whole numbers": (f"-{checks._LARGEST_WHOLE}", f"{checks._LARGEST_WHOLE}"),
    "development server": (
        f"{development.LARGEST_REQUEST >> 20} MiB",
        f"{development.MOST_VALUES:,}",
        f"{development.LARGEST_HEADERS >> 10} KiB",
        f"{development.MOST_CONNECTIONS};",
        f"{development.LONGEST_SILENCE} s",
    ),
    "`query`": (f"{transport.LARGEST_RESPONSE >> 20} MiB", f"{query.parser().get_default('timeout'):g} s"),
}


@pytest.mark.parametrize("beginning", LIMITS)
def test_the_guide_says_what_the_code_does(beginning):
    (row,) = [line for line in GUIDE.splitlines() if line.startswith(f"| {beginning}")]
    position = row.index("|", 1)
    for limit in LIMITS[beginning]:
        position = row.index(limit, position) + len(limit)
