"""The lists of the facade are current, and a new public object enters them by itself."""

import make_facade as tool
import pytest
import stored

# A library of a few lines: the bases of the planted classes.
LIBRARY = stored.table(globals(), "library")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return the folder tfrobust/ of a small library, whose facade is current."""
    facade = {f"keras/{name}.py": f'"""The {name}."""' for name in (*tool.AREAS, "__init__")}
    for path, text in {**LIBRARY, **facade}.items():
        file = tmp_path / "tfrobust" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    assert tool.main([]) == 0
    return tmp_path / "tfrobust"


def test_the_lists_are_current():
    assert tool.main(["--check"]) == 0, "run python tools/make_facade.py"


REGISTERED = '@keras.saving.register_keras_serializable(package="tfrobust")\n'
EXAMPLE = '    """Do it.\n\n    Example:\n        >>> 1\n        1\n    """\n'


@pytest.mark.parametrize(
    "path, text, modules", stored.cases(__file__, "planted_objects", globals(), "tables.toml")["rows"]
)
def test_a_planted_object_enters_the_lists_it_belongs_to(checkout, capsys, path, text, modules):
    file = checkout / path
    file.parent.mkdir(parents=True, exist_ok=True)
    capsys.readouterr()
    file.write_text(f"{file.read_text('utf-8') if file.exists() else ''}\n\n{text}\n")
    assert tool.main(["--check"]) == (1 if modules else 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"tfrobust/keras/{name}.py is not current; run python tools/make_facade.py" for name in sorted(modules)
    ]
    assert tool.main([]) == 0 and tool.main(["--check"]) == 0
    for name in ("methods", "attacks", "data", "evaluators", "selections", "losses", "models", "layers"):
        assert ('"Planted"' in (checkout / "keras" / f"{name}.py").read_text("utf-8")) == (name in modules)


def test_the_docstring_of_a_module_is_kept_and_an_orphan_goes(checkout):
    (checkout / "losses" / "planted.py").write_text(f"def Planted():\n{EXAMPLE}")
    losses = checkout / "keras" / "losses.py"
    losses.write_text('"""By hand,\n\nin two parts.\n"""\n')
    (checkout / "keras" / "gone.py").write_text('"""Belong to no area."""\n')
    assert tool.main([]) == 0
    expected = (
        '"""By hand,\n\nin two parts.\n"""\n\nfrom tfrobust.losses.planted import Planted\n\n__all__ = ["Planted"]\n'
    )
    assert losses.read_text("utf-8") == expected
    assert not (checkout / "keras" / "gone.py").exists()


def test_two_objects_of_one_name_and_a_module_without_a_docstring_are_refused(checkout):
    (checkout / "attacks" / "planted.py").write_text("class FGSM(Attack):\n    pass\n")
    with pytest.raises(SystemExit, match="two objects would be offered as FGSM"):
        tool.main([])
    (checkout / "attacks" / "planted.py").unlink()
    (checkout / "keras" / "losses.py").write_text("import keras\n")
    with pytest.raises(SystemExit, match="losses.py has no docstring"):
        tool.main([])
