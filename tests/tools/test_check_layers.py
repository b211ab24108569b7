"""The layer check finds import circles. What it says of single imports is in tests/test_repository.py."""

import check_layers
import pytest
import stored


@pytest.fixture
def faults(tmp_path):
    """Return the faults of a library of the given modules: path below tfrobust/ -> text."""

    def faults_of(modules):
        for path, text in modules.items():
            file = tmp_path / "tfrobust" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return check_layers.faults(tmp_path)

    return faults_of


@pytest.mark.parametrize(("modules", "circle"), stored.cases(__file__, "circles", globals(), "tables.toml")["rows"])
def test_a_circle_inside_a_layer_is_found(faults, modules, circle):
    (fault,) = faults({f"losses/{name}.py": text for name, text in modules.items()})
    assert fault.endswith(f":1: import circle {circle}")


def test_imports_for_type_checkers_and_of_other_packages_make_no_circle(faults):
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tfrobust.losses import a"
    assert (
        faults({"losses/a.py": "from tfrobust.losses import b", "losses/b.py": f"{typed}\nimport keras.losses.a"}) == []
    )
