"""From a figure of matplotlib to inline SVG.

    with drawing("curve-accuracy", height=3.0) as (figure, output):
        axes = figure.subplots()              # drawn in placeholder colors
    output.text                               # <svg ...>, ids prefixed, colors of the page's light and dark mode

matplotlib is imported when the first plot is drawn. Nothing is random: the same drawing gives the same bytes.
"""

import contextlib
import io
import re
import warnings

from tfrobust.report.blocks.palette import as_variables, placeholder

WIDTH = 4.6  # inches at 72 points: about the width of a phone, so that text stays readable there


class _Output:
    text = ""


@contextlib.contextmanager
def drawing(identity: str, height: float, width: float = WIDTH):
    """Yield a figure in the common style and an object whose `text` becomes its inline SVG on exit."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_style(identity)), warnings.catch_warnings():
        # matplotlib's own font lacks some glyphs, but the browser that shows the SVG has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        output = _Output()
        yield figure, output
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        output.text = _inline(buffer.getvalue(), identity)


def _style(identity: str) -> dict:
    ink, faint = placeholder("ink"), placeholder("faint")
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": identity,
        "text.parse_math": False,
        "font.size": 9.5,
        "axes.labelsize": 9.5,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": faint,
        "grid.linewidth": 0.6,
        "xtick.color": ink,
        "ytick.color": ink,
        "lines.linewidth": 1.8,
        "lines.markersize": 4.0,
    }


def prefix(identity: str) -> str:
    """Return the prefix of all ids in a plot, and of its caption's."""
    return re.sub(r"[^A-Za-z0-9]+", "-", identity).strip("-")


def _inline(svg: str, identity: str) -> str:
    """Return the SVG for inlining in HTML: no prologue, metadata or page-wide style, and prefixed ids."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # A style element inside an inlined SVG would hold for the whole page.
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    # matplotlib breaks the line after the prefix of a picture; a data URL has no spaces.
    svg = svg.replace("base64,\n", "base64,")
    # Without width and height, the page decides the size.
    size = re.search(r'viewBox="([^"]*)"', svg)[1]
    identity_prefix = prefix(identity)
    head = f'<svg viewBox="{size}" role="img" aria-labelledby="{identity_prefix}-caption" class="plot">'
    svg = head + svg[svg.index(">") + 1 :]
    # matplotlib numbers its ids in each figure from the beginning, and a page has many figures.
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{identity_prefix}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{identity_prefix}-\1)", svg)
    svg = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{identity_prefix}-\1"', svg)
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)  # the page's own font
    # The rest makes pages smaller: no comments, no line breaks inside tags, no digits below a hundredth of a point.
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s+(?=[^<>]*>)", " ", svg)
    svg = re.sub(r'(?<=[ "(,-])(\d+\.\d\d)\d+(?=[^<>]*>)', r"\1", svg)
    return as_variables(re.sub(r">\s+<", "><", svg)).strip()
