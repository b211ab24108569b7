"""The layers of an export, made again from its report: the same bounds, and reasons where that fails."""

import copy
import dataclasses
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.certification import certify
from tfrobust.evaluation.engine import loading
from tfrobust.keras import models
from tfrobust.runs import exported_layers
from tfrobust.runs.artifact import described
from tfrobust.serving.export.saved_model import write_saved_model

SHAPE = (8, 8, 1)
IMAGES = np.random.default_rng(0).uniform(size=(4, *SHAPE)).astype(np.float32)
PARTS = {
    "cnn": lambda: (models.CNN(((4,), (6,)), dense=(5,), pixel_mean=(0.5,), pixel_std=(0.25,)), models.LinearHead(3)),
    "normalized": lambda: (models.DigitsCNN(), models.MLPHead(3, hidden=7)),
    "residual": lambda: (models.WideResNet(10, 1), models.LinearHead(3)),
}


def parts_of(name: str) -> tuple:
    """Encoder and head with weights, and statistics, that are not the initial ones; and what a report says of them."""
    keras.utils.set_random_seed(0)
    encoder, head = PARTS[name]()
    head(encoder(tf.constant(IMAGES)))
    for variable in [*encoder.variables, *head.variables]:
        variable.assign(variable + 0.1 * np.random.default_rng(1).uniform(size=variable.shape))
    method = {"class_name": "ReportedMethod", "config": {"encoder": described(encoder), "head": described(head)}}
    return encoder, head, SimpleNamespace(training={"configuration": {"method": method}})


def predictor_of(encoder, head):
    values = [variable.numpy() for variable in [*encoder.variables, *head.variables]]
    predictor = loading.from_keras(keras.Sequential([keras.Input(SHAPE), encoder, head]))
    return dataclasses.replace(predictor, network=None, no_network="", variables=lambda: values)


@pytest.mark.parametrize("name", PARTS)
def test_the_layers_have_the_bounds_of_the_model(name):
    encoder, head, report = parts_of(name)
    again = exported_layers.with_layers(predictor_of(encoder, head), report)
    model = keras.Sequential([keras.Input(SHAPE), encoder, head])
    labels = model(IMAGES, training=False).numpy().argmax(-1)
    assert certify.reproduces(again.network, IMAGES, model(IMAGES, training=False).numpy())
    bounds = [certify.certified_margins(network, IMAGES, labels, epsilon=0.01) for network in (again.network, model)]
    np.testing.assert_allclose(*bounds, rtol=1e-9)


def test_the_variables_of_a_saved_model_have_the_order_of_its_layers(tmp_path):
    encoder, head, report = parts_of("cnn")
    write_saved_model(tmp_path, encoder=encoder, head=head, image_shape=SHAPE)
    predictor = loading.from_saved_model(str(tmp_path))
    again = exported_layers.with_layers(predictor, report)
    assert certify.reproduces(again.network, IMAGES, predictor.logits(IMAGES).numpy())
    assert again.is_file and exported_layers.with_layers(predictor, None) is predictor
    assert "bounds need the model's .keras file" in predictor.no_network


@pytest.mark.parametrize("change, reason", stored.rows(globals(), "a_report_of_another_model_gives_a_reason"))
def test_a_report_of_another_model_gives_a_reason(change, reason):
    encoder, head, report = parts_of("cnn")
    predictor, changed = predictor_of(encoder, head), copy.deepcopy(report)
    change(changed.training["configuration"]["method"]["config"])
    again = exported_layers.with_layers(predictor, changed)
    assert again.network is None and "cannot be made again" in again.no_network and reason in again.no_network


def test_layers_without_bounds_are_named(monkeypatch):
    monkeypatch.setitem(PARTS, "transformer", lambda: (models.ViT(4, width=8, depth=1, heads=2), models.LinearHead(3)))
    encoder, head, report = parts_of("transformer")
    again = exported_layers.with_layers(predictor_of(encoder, head), report)
    assert again.network is None and "bounds" in again.no_network and "made again" not in again.no_network
