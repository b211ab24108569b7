"""The loggers of guides/training.md, in their local modes, without network."""

import importlib
import sqlite3

import keras
import numpy as np
import pytest
from printed import GUIDES, blocks

LOGGERS = {"my_mlflow.py": "MLflow", "my_wandb.py": "WandB"}


@pytest.fixture
def logger(request, tmp_path, monkeypatch):
    """An instance of a class of the guide, in an empty folder."""
    pytest.importorskip(request.param.removeprefix("my_").removesuffix(".py"))
    (block,) = [block for block in blocks((GUIDES / "training.md").read_text("utf-8")) if block.name == request.param]
    (tmp_path / block.name).write_text(block.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    module = importlib.import_module(request.param.removesuffix(".py"))
    return getattr(module, LOGGERS[request.param])(run="mine")


@pytest.mark.rest
@pytest.mark.parametrize("logger", LOGGERS, indirect=True)
def test_every_epoch_is_logged_on_this_machine(logger, tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(np.ones((8, 3)), np.ones((8, 1)), epochs=2, verbose=0, callbacks=[logger]).history
    if type(logger).__name__ == "WandB":
        (record,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
        assert record.stat().st_size > 0
        return
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        rows = database.execute("select step, value from metrics where key = 'loss' order by step").fetchall()
    assert rows == [(0, pytest.approx(history["loss"][0])), (1, pytest.approx(history["loss"][1]))]
