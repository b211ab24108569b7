"""The folder of a run."""

import json

import keras
import pytest

from tfrobust.errors import InputError
from tfrobust.ops import configured
from tfrobust.training import workdir

TRAINING = {"method": {"class_name": "ASCL", "config": {"temperature": 0.07, "weights": [1, 2]}}, "epochs": 4}


def changed(**top) -> dict:
    return json.loads(json.dumps(TRAINING)) | top


def test_a_fresh_and_an_empty_folder_become_a_run(tmp_path):
    for folder in (tmp_path / "a" / "b", tmp_path):
        assert workdir.owner(folder) == ""
        assert workdir.open_workdir(str(folder), TRAINING) == folder
        assert json.loads((folder / "training.json").read_text()) == TRAINING
        assert len(workdir.owner(folder)) == 32
    assert workdir.owner(tmp_path) != workdir.owner(tmp_path / "a" / "b")


def test_the_same_configuration_is_taken_up_again(tmp_path):
    workdir.open_workdir(str(tmp_path), changed(sizes=(1, 2)))
    before = workdir.owner(tmp_path)
    assert workdir.open_workdir(str(tmp_path), changed(sizes=(1, 2)), must_exist=True) == tmp_path
    assert workdir.owner(tmp_path) == before


def test_a_half_made_folder_is_finished_and_keeps_its_owner(tmp_path):
    """The owner is written first: a kill between the two files must not make another publisher of it."""
    workdir.open_workdir(str(tmp_path), TRAINING)
    before = workdir.owner(tmp_path)
    (tmp_path / "training.json").unlink()
    workdir.open_workdir(str(tmp_path), changed(epochs=5))
    assert workdir.owner(tmp_path) == before


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (changed(epochs=5), "epochs is 4 there and 5 here"),
        (
            changed(method={"class_name": "ASCL", "config": {"temperature": 0.2, "weights": [1, 2]}}),
            "method.config.temperature is 0.07 there and 0.2 here",
        ),
        (changed(batch=3), "batch is null there and 3 here"),
        (changed(text="x" * 5000), "text is null"),
    ],
)
def test_another_configuration_is_refused_with_the_difference_and_nothing_changes(tmp_path, other, part):
    workdir.open_workdir(str(tmp_path), TRAINING)
    with pytest.raises(InputError, match=part) as caught:
        workdir.open_workdir(str(tmp_path), other)
    assert len(str(caught.value)) <= 300 and str(tmp_path) in str(caught.value)
    assert json.loads((tmp_path / "training.json").read_text()) == TRAINING


def test_what_is_no_run_is_refused_where_one_must_be(tmp_path):
    with pytest.raises(InputError, match="holds no training run"):
        workdir.open_workdir(str(tmp_path / "none"), TRAINING, must_exist=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        workdir.open_workdir(str(tmp_path / "file"), TRAINING)
    (tmp_path / "training.json").write_text('{"epochs": ')
    with pytest.raises(InputError, match="cannot be read"):
        workdir.open_workdir(str(tmp_path), TRAINING)


def test_names_that_keras_counts_up_make_no_difference_but_arguments_do():
    def described(units: int, rate: float) -> dict:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units), keras.layers.Dropout(0.5)])
        return workdir.canonical(configured.serialize({"model": model, "optimizer": keras.optimizers.SGD(rate)}))

    first = described(3, 0.1)
    assert described(3, 0.1) == first, "the second model's layers are called dense_1, ..."
    assert described(4, 0.1) != first and described(3, 0.2) != first
