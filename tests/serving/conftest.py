import shutil
import subprocess

import keras
import numpy as np
import pytest

from tfrobust.report.schema import Report
from tfrobust.serving.export import assets, publish
from tfrobust.serving.server.development import Server
from tfrobust.structs import Measurement

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
    assets.assemble(directory, **arguments, **reports, evaluated=staged, name="small")
    return directory


@pytest.fixture(scope="session")
def report():
    """A valid report, which names the classes."""
    sizes = dict(train_size=None, validation_size=None, test_size=8)
    return Report(
        model={"name": "small", "version": 1, "weights_sha256": None, "parameters": None},
        data={"name": "noise", "fingerprint": None, "class_names": ["cat", "dog", "owl"], **sizes},
        measurements=(Measurement("accuracy.clean", 0.75, n=8, low=0.41, high=0.93),),
        threat="Holds against nobody.",
    )


@pytest.fixture(scope="session")
def exported(arguments, report, tmp_path_factory):
    """The folder of a published model, `small`, with version 1."""
    base = tmp_path_factory.mktemp("exported") / "small"
    staged = tmp_path_factory.mktemp("with_report") / "model"
    assets.assemble(staged, **arguments, report_json=report.to_json(), name="small")
    publish.publish(staged, base, publish.claim(base, "tests"), "tests")
    return base


@pytest.fixture(scope="session")
def server(exported):
    """The development server with `small`, its version 1 labelled `stable`."""
    labels = {"small": {"stable": 1}}
    with Server({"small": exported}, labels, rest_port=0, grpc_port=0, poll_seconds=0) as running:
        yield running


@pytest.fixture(params=["rest", "grpc"])
def url(request, server):
    """Return the development server's address, over REST and over gRPC."""
    return getattr(server, f"{request.param}_url")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Key and certificate, for localhost and 127.0.0.1, as PEM files."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is missing")
    key, certificate_file = (tmp_path_factory.mktemp("tls") / name for name in ("key.pem", "certificate.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", certificate_file], check=True, capture_output=True)
    return key, certificate_file
