"""Check the catalogue: ids are written and read by one record each, with and without the settings."""

import pytest
import stored

from tfrobust.report import catalog, reading
from tfrobust.structs import Measurement, Series

PGD = {"attack": "pgd", "norm": "linf", "epsilon": 8 / 255, "steps": 20}
LABELED = PGD | {"label": "pgd20"}
MEMBER = {"attack": "apgd_ce", "ensemble": "autoattack", "norm": "l2", "epsilon": 0.5}
SMOOTHED = {"noise": "uniform", "sigma": 0.25, "norm": "l1"}
SETS = {"score": "lac", "level": 0.9}
FROST = "textures of tfrobust"
KINDS = stored.table(globals(), "kinds")
# What ids cannot tell, and reports of earlier versions did not need to.
NOT_IN_IDS = {"steps", "baseline", "corruptions", "frost", "reference"}


@pytest.mark.parametrize(("identity", "settings", "label", "better"), KINDS, ids=[kind[0] for kind in KINDS])
def test_a_measurement_is_read_by_its_settings_and_in_earlier_reports_by_its_id(identity, settings, label, better):
    written, earlier = (
        Measurement(identity, 0.5, settings=kept)
        for kept in (settings, {name: value for name, value in settings.items() if name in NOT_IN_IDS})
    )
    assert reading.label(written) == reading.label(earlier) == label
    entries = catalog.read(written), catalog.read(earlier)
    assert [entry.quantity.better for entry in entries] == [better] * 2
    assert entries[0].family == entries[1].family == identity.split(".")[0]
    assert entries[0].sort_key == entries[1].sort_key and entries[0].prefix == entries[1].prefix


def test_each_id_has_one_record():
    for identity, settings, *_ in KINDS:
        readers = [record for record in catalog.records() if record.read(identity, settings)]
        assert len(readers) == (identity.split(".")[0] not in ("novel", "reference"))


@pytest.mark.parametrize("settings", stored.rows(globals(), "settings_that_contradict_the_id_do_not_count"))
def test_settings_that_contradict_the_id_do_not_count(settings):
    """Another program may have written them."""
    measurement = Measurement("attack.pgd_linf_0.2.accuracy", 0.5, settings=settings)
    assert reading.label(measurement) == "PGD, L∞ ε = 0.2"


def test_an_id_of_no_known_norm_is_shown_as_it_is():
    settings = {"attack": "pgd", "norm": "l7", "epsilon": 0.2}
    assert reading.label(Measurement("attack.pgd_l7_0.2.accuracy", 0.5, settings=settings)).startswith("attack.")


def test_series_are_read_alike():
    for identity, settings in stored.table(globals(), "series_are_read_alike"):
        written, earlier = (catalog.read(Series(identity, "", {}, kept)) for kept in (settings, {}))
        assert written.record is earlier.record and written.name == earlier.name and written.prefix == earlier.prefix


def test_every_family_has_one_place_and_every_record_its_ids():
    places = {}
    for record in catalog.records():
        assert places.setdefault(record.family.name, record.family.place) == record.family.place
        assert record.quantities and all(isinstance(name, str) for name in record.quantities)
    assert len(set(places.values())) == len(places)
