"""Check that every object of the facade is listed, registered, and restored from its config."""

import types

import keras
import numpy as np
import pytest

from conformance import facade
from tfrobust import keras as robust
from tfrobust.evaluation.engine import loading
from tfrobust.training.callbacks.deployable import deployable_variables


def test_every_row_is_of_something_offered_and_kinds_are_found():
    assert set(facade.ROWS) | set(facade.CALLBACKS) <= set(facade.CLASSES_OFFERED)
    assert all(facade.names(kind) for kind in facade.KINDS)


def test_names_are_listed_in_order_and_real_keras_is_not_hidden():
    offered = [getattr(robust, name) for name in robust.__all__]
    for module in [robust, *(item for item in offered if isinstance(item, types.ModuleType))]:
        assert module.__all__ == sorted(module.__all__) and len(set(module.__all__)) == len(module.__all__)
    assert robust.__name__ == "tfrobust.keras" and keras.__name__ == "keras"


# Callbacks are made anew for each training; two masks are a tuple.
CONFIGURED = [
    name
    for name, cls in facade.CLASSES_OFFERED.items()
    if facade.kind_of(cls) != "callback" and name not in (*facade.ABSTRACT, "PairMasks")
]


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_class_is_registered_and_comes_back_from_its_config(name):
    instance = facade.instance(name)
    assert keras.saving.get_registered_name(type(instance)) == f"tfrobust>{name}"
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(instance), safe_mode=True)
    assert type(copy) is type(instance)
    assert copy.get_config() == instance.get_config()
    assert type(instance).from_config(instance.get_config()).get_config() == instance.get_config()


# Its own branch, a projection and a head of its own: the others are built as one of these.
@pytest.mark.parametrize("name", ["ACL", "BYOL", "ManifoldMixup", "SupervisedContrastive"])
def test_a_method_is_judged_as_it_stands_and_from_its_file(name, tmp_path):
    images, _ = facade.data()
    method = facade.instance(name)
    method.build((None, *facade.SHAPE))
    robust.save_model(method, tmp_path / "model.keras")
    expected = method(images)
    for judged in (loading.from_keras(method), loading.load(tmp_path / "model.keras")):
        assert judged.image_shape == facade.SHAPE and judged.class_count == facade.CLASSES
        np.testing.assert_allclose(judged.logits(images), expected, atol=1e-5)
        np.testing.assert_allclose(judged.embedding(images), method.embed(images), atol=1e-5)
        deployable = [*method.encoder.variables, *method.head.variables]
        assert judged.parameters == sum(int(np.prod(variable.shape)) for variable in deployable)


def test_a_method_that_fit_has_built_is_evaluated_in_one_line():
    images, labels = facade.data()
    method = facade.instance("AdversarialTraining")
    method.compile(keras.optimizers.Adam(1e-2), metrics=["accuracy"], run_eagerly=True)
    method.fit(images, labels, verbose=0)
    outcome = robust.evaluate(method, images, labels, epsilon=0.05, steps=2)
    report = {measurement.id: measurement.value for measurement in outcome.measurements}
    clean = np.mean(method.predict(images, verbose=0).argmax(-1) == labels)
    assert report["accuracy.clean"] == pytest.approx(clean)
    assert report["attack.pgd_linf_0.05.accuracy"] <= report["accuracy.clean"]


class Patches(keras.Model):
    """A user's own model that happens to use our words: a layer `embed`, an `encoder`, a `head`, and more between."""

    def __init__(self):
        super().__init__()
        self.embed = keras.layers.Dense(4)
        self.encoder, self.neck = keras.layers.Flatten(), keras.layers.Dense(5)
        self.head = keras.layers.Dense(facade.CLASSES)

    def call(self, images):
        return self.head(self.neck(self.encoder(self.embed(images))))


def test_a_users_model_with_our_attribute_names_is_taken_whole():
    images, labels = facade.data()
    model = Patches()
    facade.compiled(model, run_eagerly=True)
    watch = facade.CALLBACKS["RobustAccuracy"](None)
    history = model.fit(images, labels, verbose=0, callbacks=[watch]).history
    assert {"val_clean_accuracy", "val_robust_accuracy"} <= set(history) and "val_r_div" not in history
    judged = loading.from_keras(model)
    assert judged.embedding is None and judged.parameters == model.count_params()
    assert len(deployable_variables(model)) == len(model.variables) == 6
