"""The section on utility and sensitivity: its pictures are the pixels of the series, the page stays self-contained."""

import base64
import dataclasses
import io
import pathlib
import re

import numpy as np
import PIL.Image
import pytest
import scipy.stats
from report.synthetic import make_report

from tfrobust.report import compare, section_plots
from tfrobust.report.render import console_table, html, markdown
from tfrobust.structs import Measurement, Series

HEIGHT, WIDTH = 3, 5


def series(pictures=2, channels=1, names=("utility", "sensitivity"), seed=0):
    generator = np.random.default_rng(seed)
    rows, columns = np.indices((HEIGHT, WIDTH)).reshape(2, -1)
    found = {
        "picture": np.repeat(np.arange(pictures), len(rows)).tolist(),
        "label": np.repeat(np.arange(pictures), len(rows)).tolist(),
        "row": rows.tolist() * pictures,
        "column": columns.tolist() * pictures,
    }
    for name in (*(f"channel_{channel}" for channel in range(channels)), *names):
        found[name] = generator.random(pictures * len(rows)).round(3).tolist()
    return Series("sensitivity.maps", "Maps", found)


def report(shown, **changes):
    plain = make_report()
    numbers = [
        Measurement("sensitivity.utility_concentration", 0.62, "ratio", 256, 0.6, 0.64),
        Measurement("sensitivity.agreement", 0.45, "ratio", 256, 0.43, 0.47),
    ]
    extra = () if shown is None else (shown,)
    found = dataclasses.replace(
        plain, series=(*plain.series, *extra), measurements=(*plain.measurements, *numbers), **changes
    )
    found.validate()
    return found


def images(body):
    """The pictures drawn, uint8 [h, w, 3], in order."""
    found = re.findall(r'xlink:href="data:image/png;base64,([^"]*)"', body)
    return [np.asarray(PIL.Image.open(io.BytesIO(base64.b64decode(each))).convert("RGB")) for each in found]


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_show_each_pixel_at_its_place(channels):
    shown = series(channels=channels)
    _, body = section_plots.sensitivity(report(shown))
    drawn = images(body)
    assert len(drawn) == 6 and {picture.shape for picture in drawn} == {(HEIGHT, WIDTH, 3)}
    for number in (0, 1):
        own = slice(number * HEIGHT * WIDTH, (number + 1) * HEIGHT * WIDTH)
        values = [np.reshape(shown.columns[f"channel_{c}"][own], (HEIGHT, WIDTH)) for c in range(channels)]
        expected = np.stack(values * (3 // channels), axis=-1) * 255
        np.testing.assert_allclose(drawn[3 * number].astype(float), expected, atol=1.1)
        for place, name in ((1, "utility"), (2, "sensitivity")):
            # Brighter is more, and the largest value is the brightest colour of all.
            brightness = drawn[3 * number + place].astype(float) @ [0.2126, 0.7152, 0.0722]
            values = shown.columns[name][own]
            assert scipy.stats.spearmanr(brightness.ravel(), values).statistic > 0.99
            assert brightness.argmax() == np.argmax(values) and brightness.max() > 240


def test_class_names_and_a_missing_map():
    _, body = section_plots.sensitivity(report(series(names=("utility",))))
    assert len(images(body)) == 4 and ">class 0<" in body and ">class 1<" in body
    assert ">utility<" in body and ">sensitivity<" not in body
    data = {**make_report().data, "class_names": ["<b>cat</b>", "dog"]}
    _, body = section_plots.sensitivity(report(series(), data=data))
    assert "class &lt;b&gt;cat" in body and ">class dog<" in body and "<b>cat" not in body


def test_numbers_stand_here_and_nowhere_else():
    whole = html(report(None))
    assert whole.count("sensitivity.agreement") == 1 and "0.43 to 0.47" in whole
    assert 'id="sensitivity"' in whole and "Utility-sensitivity agreement" in markdown(report(None))
    assert "Utility-sensitivity agreement" in console_table(report(None))
    assert "Utility-sensitivity agreement" in compare.table([(pathlib.Path("a"), report(None))])
    assert 'id="sensitivity"' not in html(make_report())
    assert section_plots.sensitivity(make_report()) is None


def test_the_page_stays_self_contained_and_the_same():
    whole = html(report(series()))
    assert whole == html(report(series()))
    outside = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", whole)
    assert not re.search(r"(https?:)?//[a-z]", outside) and "<img" not in whole
    identities = re.findall(r'\bid="([^"]+)"', whole)
    assert len(identities) == len(set(identities))
    assert "image-rendering" in whole
