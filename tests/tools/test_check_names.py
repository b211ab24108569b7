"""The count of names that say nothing: what binds a name, what is vague, and the limits."""

import check_names as tool
import pytest
import stored


@pytest.mark.parametrize(("source", "names"), stored.cases(__file__, "bound_names", globals(), "tables.toml")["rows"])
def test_what_binds_a_name(source, names):
    assert set(tool.bound_names(source)) == names


def test_a_name_is_vague_as_a_whole_without_its_underscores():
    assert all(map(tool.is_vague, ("found", "_found", "__kept", "OWN", "Place")))
    assert not any(map(tool.is_vague, ("found_rows", "ones", "placement", "_", "known_values")))


@pytest.mark.parametrize(("rows", "status", "verdict"), [(999, 0, "ok"), (333, 0, "ok"), (332, 1, "above")])
def test_a_folder_fails_above_its_limit(tmp_path, capsys, rows, status, verdict):
    (tmp_path / "tfrobust" / "data" / "formats").mkdir(parents=True)
    (tmp_path / "tfrobust" / "data" / "a.py").write_text("row = 1\n" * rows)
    (tmp_path / "tfrobust" / "data" / "formats" / "b.py").write_text("found = 1\n")
    assert tool.main([str(tmp_path)]) == status
    (line, worst) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{verdict:5} tfrobust/data: {100 / (rows + 1):.2f} %, limit 0.3 %")
    assert worst.split() == ["tfrobust/data/formats/b.py:", "1", "of", "1"]
