"""The page as a browser shows it: light and dark, on a phone, on paper."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import PIL.Image
import pytest
import stored
from report.synthetic import make_report
from report.test_render import hostile_report

from tfrobust.report.comparison import reports as compare
from tfrobust.report.comparison import views
from tfrobust.report.renderers.html import render as render_html
from tfrobust.report.renderers.style import DARK_PAGE, LIGHT_PAGE

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here to render pages with (apt install chromium)")
PHONE, PAPER = 360, 717  # of A4 within the margins of the browser
WIDTHS = (PHONE, PAPER, 768, 1024, 1200, 1440)
# Runs outside of the page, which may run nothing: the page is in frames of several widths.
MEASURE = stored.text(globals(), "measure")


def chromium(folder, *arguments):
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={folder / 'profile'}", "--no-first-run", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture(scope="module")
def page_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    (folder / "report.html").write_text(render_html(make_report()), "utf-8")
    return folder


def measured(folder, page):
    """Measure a page at several widths, by width; at that of paper with the style of paper."""
    printed = page.replace("@media print", "@media all").replace("@media screen", "@media not all")
    frames = [
        f'<iframe style="width:{width}px;height:900px;border:0" '
        f'srcdoc="{html.escape(printed if width == PAPER else page)}"></iframe>'
        for width in WIDTHS
    ]
    (folder / "measure.html").write_text(MEASURE.format(frames="".join(frames)), "utf-8")
    shown = chromium(folder, "--dump-dom", (folder / "measure.html").as_uri())
    measurements = json.loads(html.unescape(re.search(r'data-found="([^"]*)"', shown)[1]))
    assert [*map(int, measurements)] == [*WIDTHS]
    return {int(width): measurement for width, measurement in measurements.items()}


def compared():
    """Two groups of three trainings, and a model of its own: numbers with intervals and deviations."""
    names = [f"{name}-seed{seed}" for name in ("a_method_of_a_long_name", "trades") for seed in range(3)]
    runs = [make_report(name=name, version=1, pgd=0.6 + 0.01 * number) for number, name in enumerate(names)]
    located = [(f"exported/a/folder/deep/below/another/{run.model['name']}/1/report.json", run) for run in runs]
    return views.html(compare.arrange([*located, ("b.json", make_report())], grouped=True))


@pytest.mark.rest
@pytest.mark.parametrize(
    "make", [compared, lambda: render_html(make_report()), lambda: render_html(hostile_report())], ids="cmh"
)
def test_no_column_is_cut_and_nothing_scrolls_sideways(page_folder, make):
    page = make()
    for width, layout in measured(page_folder, page).items():
        assert layout["scroll"] <= width and not layout["wide"], (width, layout["wide"])
        assert layout["plots"] == page.count('class="plot"') > 0 and not layout["empty"] and not layout["small"]
        assert layout["height"] > 1000
        assert width < 1024 or layout["first"] < 900, "the opening fits on the first screen"


@pytest.mark.parametrize(("mode", "page"), [("light", LIGHT_PAGE), ("dark", DARK_PAGE)])
def test_day_and_night(page_folder, mode, page):
    flags = ["--force-dark-mode"] if mode == "dark" else []
    picture = page_folder / f"{mode}.png"
    chromium(
        page_folder,
        *flags,
        "--window-size=1200,2400",
        f"--screenshot={picture}",
        (page_folder / "report.html").as_uri(),
    )
    pixels = np.asarray(PIL.Image.open(picture).convert("RGB")).astype(int)
    expected = [int(page[start : start + 2], 16) for start in (1, 3, 5)]
    assert np.abs(pixels[[5, 5, -5], [5, -5, 5]] - expected).max() <= 2
    # Text and curves stand out: a good part is far from the page in brightness, most of it is not.
    far = np.abs(pixels.mean(axis=2) - np.mean(expected)) > 90
    assert 0.01 < far.mean() < 0.25 and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 100


def test_paper(page_folder):
    chromium(
        page_folder,
        "--no-pdf-header-footer",
        f"--print-to-pdf={page_folder / 'page.pdf'}",
        (page_folder / "report.html").as_uri(),
    )
    document = (page_folder / "page.pdf").read_bytes()
    assert document.startswith(b"%PDF") and 3 <= len(re.findall(rb"/Type\s*/Page\b", document)) <= 14
