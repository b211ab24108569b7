import keras
import numpy as np
import pytest

from tfrobust.serving import assets

IMAGE_SHAPE = (8, 8, 1)
REPORT = '{"schema": "tfrobust/robustness_report/1", "threat": "holds against …"}'


def make_parts(channels=1, seed=0):
    """A small encoder and head with weights, and batch norm statistics, that are not the initial ones."""
    images = keras.Input((8, 8, channels))
    hidden = keras.layers.Conv2D(4, 3, padding="same")(images)
    hidden = keras.layers.ReLU()(keras.layers.BatchNormalization()(hidden))
    hidden = keras.layers.Dropout(0.5, seed=1)(keras.layers.GlobalAveragePooling2D()(hidden))
    encoder = keras.Model(images, keras.layers.Dense(5)(hidden))
    head = keras.layers.Dense(3)
    head.build((None, 5))
    random = np.random.RandomState(seed)
    for variable in [*encoder.weights, *head.weights]:
        values = random.uniform(-0.8, 0.8, variable.shape)
        variable.assign(np.abs(values) if "variance" in variable.name else values)
    return encoder, head


@pytest.fixture(scope="session")
def parts():
    return make_parts()


@pytest.fixture(scope="session")
def arguments(parts):
    encoder, head = parts
    return dict(encoder=encoder, head=head, image_shape=IMAGE_SHAPE, class_names=("a", "b", "c"))


@pytest.fixture(scope="session")
def staged(arguments, tmp_path_factory):
    directory = tmp_path_factory.mktemp("staged") / "model"
    assets.assemble(directory, **arguments)
    return directory


@pytest.fixture(scope="session")
def attached(arguments, staged, tmp_path_factory):
    directory = tmp_path_factory.mktemp("attached") / "model"
    reports = dict(report_json=REPORT, report_html="<p>report</p>", report_markdown="# report")
    assets.assemble(directory, **arguments, **reports, judged=staged, name="small")
    return directory
