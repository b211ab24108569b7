"""The limits of the guide on safety are those of the code; limits.toml says which is where."""

import importlib
import pathlib
import tomllib

import pytest
import stored

import tfrobust
from tfrobust.security import program_files, program_sizes

GUIDE = (pathlib.Path(tfrobust.__file__).parent / "guides" / "safety.md").read_text("utf-8")
MODULES = stored.text(globals(), "modules").split()
NAMES = {name.rpartition(".")[2]: importlib.import_module(f"tfrobust.{name}") for name in MODULES}
NAMES["_SMALL_PARTS"] = [largest for _, largest in program_files._SMALL_PARTS.values()]
LIMITS = tomllib.loads(pathlib.Path(__file__).with_name("limits.toml").read_text("utf-8"))
LIMITS["SavedModel: constants"] += [f" {size}" for size in dict.fromkeys(program_sizes._ELEMENT_SIZES.values())]


@pytest.mark.parametrize("beginning", LIMITS)
def test_the_guide_says_what_the_code_does(beginning):
    (row,) = [line for line in GUIDE.splitlines() if line.startswith(f"| {beginning}")]
    position = row.index("|", 1)
    for template in LIMITS[beginning]:
        limit = eval(f"f{template!r}", NAMES.copy())
        position = row.index(limit, position) + len(limit)
