"""The budgets of type errors: a planted error is one too many, and a budget that is too high is named."""

import check_types as tool
import pytest
import stored

TABLE = '[tool.mypy]\nfiles = ["tfrobust"]\n[tool.tfrobust.type_errors]\n"tfrobust/data" = {budget}\n'


def test_a_package_is_a_folder_below_the_root():
    paths = ("tfrobust/saving.py", "tfrobust/ops/norms.py", "tfrobust/report/blocks/text.py")
    assert list(map(tool.package, paths)) == ["tfrobust", "tfrobust/ops", "tfrobust/report"]


@pytest.mark.parametrize("budget, line, status", stored.rows(globals(), "a_planted_error_counts_against_the_budget"))
def test_a_planted_error_counts_against_the_budget(tmp_path, capsys, budget, line, status):
    (tmp_path / "tfrobust" / "data").mkdir(parents=True)
    (tmp_path / "tfrobust" / "data" / "rows.py").write_text('def count() -> int:\n    return "one"\n')
    (tmp_path / "pyproject.toml").write_text(TABLE.format(budget=budget))
    assert tool.main([str(tmp_path)]) == status
    printed = capsys.readouterr().out
    assert printed.rstrip("\n").endswith(line)
    assert ("rows.py:2: error: Incompatible return value type" in printed) == bool(status)


def test_settings_that_mypy_refuses_end_the_check(tmp_path):
    (tmp_path / "pyproject.toml").write_text(TABLE.format(budget=0))
    with pytest.raises(SystemExit, match="mypy failed"):
        tool.main([str(tmp_path)])
