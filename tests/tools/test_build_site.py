"""The sources of the documentation site: pages, links and docstrings. `.ci/run` builds it from them."""

import inspect
import pathlib
import re

import build_site
import pytest
import stored

from tfrobust import keras as robust

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATHS = build_site.page_paths()


@pytest.fixture
def site(monkeypatch):
    """Return a function that loads a module of tools/site, which the builder imports by their names."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "site"))
    return lambda name: __import__(name)


# ---------------------------------------------------------------------------------------------------- pages


def test_every_public_name_has_a_page_and_no_two_differ_by_case_alone(site):
    texts = site("api").pages()
    names = site("api").names(texts)
    for area in robust.__all__:
        item = getattr(robust, area)
        assert f"robust.{area}" in names
        for name in getattr(item, "__all__", ()) if inspect.ismodule(item) else ():
            assert re.search(rf"^   (~robust\.\w+\.)?{name}$", texts[f"api/{area}"], re.MULTILINE), (area, name)
            home = re.search(rf"^   ~robust\.(\w+)\.{name}$", texts[f"api/{area}"], re.MULTILINE)
            assert f"robust.{home[1] if home else area}.{name}" in names
    assert len({text.lower() for text in texts}) == len(texts)
    assert "   ~robust.losses.Tikhonov" in texts["api/methods"] and "api/methods/Tikhonov" not in texts
    assert ".. option:: --gin_file FILE" in texts["commands"]
    for name in ("experiment.train", "experiment.evaluate", "first_stage.Pretraining"):
        assert f":: tfrobust.runs.{name}\n" in texts["api/run"]
    assert "Source" not in texts["api/run"] and ".report.gate.Gate" in texts["api/run"]


def test_every_guide_and_notebook_is_in_the_contents():
    contents = build_site._contents(PATHS)
    guides = [*ROOT.glob("tfrobust/guides/*.md"), *ROOT.glob("tfrobust/guides/**/*.ipynb")]
    assert len(guides) > 15
    for path in guides:
        name = path.relative_to(ROOT / "tfrobust").with_suffix("").as_posix()
        assert contents.count(f"\n{name}\n") == 1, name


@pytest.mark.parametrize("source, text, expected", stored.rows(globals(), "a_link_leads_to_the_page_of_the_site"))
def test_a_link_leads_to_the_page_of_the_site(source, text, expected):
    assert build_site.rewritten(text, source, PATHS, set(), {"robust.attacks.PGD"}) == expected


def test_the_sources_hold_every_file_that_they_link_to():
    files = build_site.sources({"api/index": "API", "api/attacks": "attacks", "commands": "Commands"}, set())
    page = files["files/gin/papers/ascl/shared.gin.md"].decode()
    assert "nosearch: true" in page and "``````gin\n" in page
    for name, content in files.items():
        for target in re.findall(
            r"\]\(([^)\s:#]+\.\w+)[)#]", build_site._CODE.sub("", content.decode("utf-8", "replace"))
        ):
            path = pathlib.PurePosixPath(*pathlib.PurePosixPath(name).parent.parts, target)
            resolved = build_site.posixpath.normpath(str(path))
            assert resolved in files or resolved.startswith("api/"), (name, target)


def test_only_changed_files_are_written_and_others_deleted(tmp_path):
    build_site.write({"a/b.md": b"1", "c.md": b"2"}, tmp_path)
    before = (tmp_path / "c.md").stat().st_mtime_ns
    build_site.write({"a/d.md": b"3", "c.md": b"2"}, tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*.md")) == ["c.md", "d.md"]
    assert (tmp_path / "c.md").stat().st_mtime_ns == before


# ----------------------------------------------------------------------------------------------- docstrings


@pytest.mark.parametrize("text, expected", stored.rows(globals(), "a_docstring_becomes_restructured_text"))
def test_a_docstring_becomes_restructured_text(site, text, expected):
    assert "\n".join(site("docstrings").converted(text.splitlines())).rstrip("\n") == expected


def test_annotations_lose_their_marks_and_sections_of_arguments_are_collected(site):
    docstrings = site("docstrings")
    marked = "(path: Annotated[str, <object object at 0x7f01>] = '', other: ForwardRef('Plan') = None)"
    assert docstrings._without_marks(marked) == "(path: str = '', other: Plan = None)"
    assert {"Draw", "Attributes of a subclass"} <= set(docstrings.titles_of_arguments(ROOT / "tfrobust"))
    assert docstrings.public_name(robust.attacks.PGD) == "robust.attacks.PGD" and not docstrings.public_name(object)
