"""An export of a model of clips: `clips` in place of images, checked by a clean process and served over both wires."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from serving.helpers import serving

from tfrobust.commands import query
from tfrobust.errors import InputError
from tfrobust.models.heads.linear import LinearHead
from tfrobust.security import saved_models
from tfrobust.serving.client import Client
from tfrobust.serving.export import assets, golden, probe, verify

SHAPE = (3, 8, 8, 1)


@pytest.fixture(scope="module")
def parts():
    convolution = keras.layers.Conv3D(2, 3, activation="relu", padding="same")
    encoder = keras.Sequential([keras.Input(SHAPE), convolution, keras.layers.GlobalAveragePooling3D()])
    head = LinearHead(2)
    head.build((None, 2))
    return {"encoder": encoder, "head": head, "image_shape": SHAPE}


@pytest.fixture(scope="module")
def published(parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    assets.assemble(folder / "staged", **parts)
    assets.assemble(folder / "final", **parts, report_json="{}", evaluated=folder / "staged", name="moves")
    return folder / "final"


@pytest.mark.first
def test_the_endpoints_take_clips_and_give_what_the_parts_give(published, parts):
    assert saved_models.scan(published) == []
    loaded = tf.saved_model.load(str(published))
    assert set(loaded.signatures) == {"serving_default", "robustness_report"}
    ((name, specification),) = loaded.signatures["serving_default"].structured_input_signature[1].items()
    assert name == "clips" and specification.dtype == tf.float32 and specification.shape.as_list() == [None, *SHAPE]
    clips = tf.constant(golden.golden_images(SHAPE, 5))
    outputs = loaded.signatures["serving_default"](clips=clips)
    np.testing.assert_allclose(outputs["logits"], parts["head"](parts["encoder"](clips)), rtol=1e-5, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError):
        loaded.signatures["serving_default"](clips=clips[:, :-1])
    assert probe.check_signatures(loaded.signatures, SHAPE) == []
    assert "expected 'clips' float32 [None, 4, 8, 8, 1]" in probe.check_signatures(loaded.signatures, (4, 8, 8, 1))[0]


def test_a_clean_process_verifies_it(published):
    result = verify.verify(published)
    assert result.passed, result.problems
    records = probe.replay_records(published, tf.saved_model.load(str(published)).signatures)
    assert [name for name, _ in records] == ["serving_default", "robustness_report"]


def test_clips_are_served_over_both_wires(published, tmp_path, capsys):
    response = golden.read(published)
    clips = response["clips"]
    with serving("moves", published, 1, tmp_path) as server:
        for url in (server.rest_url, server.grpc_url):
            with Client(url, "moves") as client:
                assert probe.differences(response, client.predict(clips)) == []
                answer = client.predict(golden.golden_pixels(SHAPE)[0])
                np.testing.assert_allclose(answer["logits"], response["logits"][:1], rtol=1e-5, atol=1e-6)
                with pytest.raises(InputError, match=r"reaches from 0 to .*; the model takes clips float32 \[b, 3, 8"):
                    client.predict(clips * 3)
        np.savez(tmp_path / "x.npz", clips=clips[0])
        np.save(tmp_path / "y.npy", clips[0])
        flags = [f"--url={server.rest_url}", "--model=moves", "--format=json"]
        query.run(query.parser().parse_args([*flags, f"--image={tmp_path / 'x.npz'}"]))
        assert capsys.readouterr().out.count('"predicted"') == 1
        with pytest.raises(InputError, match="takes the array of 3 rows as 1 examples; one clip has five axes"):
            query.run(query.parser().parse_args([*flags, f"--image={tmp_path / 'y.npy'}"]))
