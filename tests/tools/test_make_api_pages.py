"""The API pages are current, say nothing of the machine, and their examples run."""

import doctest
import inspect
import pathlib
import re

import pytest

from tfrobust import keras as robust

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(load):
    return load("make_api_pages").make_api_pages


def test_the_pages_are_current(run_tool):
    """In a process of its own, because tests before this one replace parts of classes."""
    ended = run_tool("make_api_pages", "--check")
    assert ended.code == 0, f"{ended.out}run python tools/make_api_pages.py"


def test_the_pages_hold_the_whole_facade_and_nothing_of_the_machine(tool):
    files = tool.page_texts()
    for name in robust.__all__:
        item = getattr(robust, name)
        inside = getattr(item, "__all__", [""])
        page = files["keras.md" if inside == [""] else f"{name}.md"]
        for inner in inside:
            path = f"robust.{name}.{inner}".rstrip(".")
            assert f"## {path}\n" in page or inspect.ismodule(getattr(item, inner, None)), path
    text = "".join(files.values())
    assert not re.search(r"\bat 0x[0-9a-f]+|<(class|function|module|object) ", text)
    assert f"{ROOT}/" not in text and "site-packages" not in text
    assert files == tool.page_texts()


def test_an_example_outside_the_facade_runs_too(tool):
    facade = {id(item) for page in tool.collect().values() for path, item in page.items.items() if "robust." in path}
    for page in tool.collect().values():
        for path, item in page.items.items():
            text = inspect.getdoc(item) or ""
            if id(item) not in facade and ">>> " in text:
                report: list[str] = []
                test = doctest.DocTestParser().get_doctest(text, {}, path, None, None)
                doctest.DocTestRunner(verbose=False).run(test, out=report.append)
                assert not report, "".join(report)


def test_a_stale_a_missing_and_an_orphaned_page_are_found(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "FOLDER", tmp_path)
    files = {"losses.md": "current", "README.md": "current"}
    (tmp_path / "losses.md").write_text("old")
    (tmp_path / "gone.md").write_text("of a module that is no more")
    assert tool.stale(files) == ["README.md", "gone.md", "losses.md"]
    monkeypatch.setattr(tool, "page_texts", lambda: files)
    assert tool.main(["--check"]) == 1 and "losses.md is not current" in capsys.readouterr().out
    assert tool.main([]) == 0 and tool.main(["--check"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "losses.md"]


def test_the_recipes_say_their_terms_stage_by_stage(tool):
    """A table of literals: the terms are the code's, so that the page cannot be its own check."""
    expected = {"trades": "`ce`, `kl`", "fcl": "`ce`, `feature_contrast`", "byol": "`regression`, `probe`; then `ce`"}
    expected["adr"] = "`ce`, `ce_adv`, `local_compactness`, `local_smoothness`, `global_compactness`, "
    expected["adr"] += "`global_smoothness` (weight 0), `confidence`"
    for name, terms in expected.items():
        assert "; then ".join(map(tool.terms_of, tool.built_stages(ROOT / "gin" / f"{name}.gin"))) == terms
    lines = (ROOT / "tfrobust" / "guides" / "api" / "recipes.md").read_text("utf-8").splitlines()
    (trades,) = [line for line in lines if "`gin/trades.gin`" in line and line.startswith("|")]
    assert trades.endswith("| [TRADES](methods.md#robustmethodstrades) | `ce`, `kl` |")
    assert "| TRADES (Zhang et al. 2019), beta = 6 |" in trades


def test_what_another_area_defines_is_described_there(tool):
    pages = tool.collect()
    text = tool.elsewhere("robust.methods.Tikhonov", robust.methods.Tikhonov, pages)
    assert text == "## robust.methods.Tikhonov\n\nSee [robust.losses.Tikhonov](losses.md#robustlossestikhonov)."
    assert not tool.elsewhere("robust.losses.Tikhonov", robust.losses.Tikhonov, pages)
    assert not tool.elsewhere("robust.methods.TRADES", robust.methods.TRADES, pages)


class Base:
    """A base with a hook."""

    def hook(self):
        """Say what it is."""


class Explained(Base):
    """Says what it is: `a_b` * c < d.

        |x| <= 1

    - first
      of two

    Args:
        first: with *stars* | bars,
            on two lines.
        second, third: both.

    Example:
        >>> 1 + 1
        2

    Source: Somebody 2020,
    page 3.
    """

    def __init__(self, first: int, second: "pathlib.Path | None" = None, *, third=Exception, fourth: tuple = (1, "a")):
        """Args:

        first: at the margin.

        Raises:
            ValueError (always): no.
        """

    def hook(self):
        """Say it again."""

    def describe(self, topic):
        """Say something new."""


def test_a_docstring_becomes_markdown(tool):
    text = tool.entry("robust.Explained", Explained)
    assert text.startswith("## robust.Explained\n\n```python\n")
    assert "Explained(first: int, second: Path | None = None, *, third=Exception, fourth: tuple = (1, 'a'))" in text
    assert "Says what it is: `a_b` \\* c &lt; d.\n\n```text\n|x| <= 1\n```\n\n- first of two\n" in text
    assert "| `first` | with \\*stars\\* \\| bars, on two lines. |\n| `second`, `third` | both. |" in text
    assert "```python\n>>> 1 + 1\n2\n```" in text and "**Source:** Somebody 2020, page 3." in text
    assert "| `describe(topic)` | Say something new. |" in text and "hook" not in text
    assert "| `first` | at the margin. |" in text and "| `ValueError (always)` | no. |" in text
