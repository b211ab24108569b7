"""Export to SavedModel: three endpoints of plain TensorFlow operations, without dependence on tfrobust or Keras."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfrobust.common import fingerprint
from tfrobust.common.files import read_bounded, read_text, write_atomically
from tfrobust.common.kinds import IMAGES, TEXT, kind_of
from tfrobust.data.checks import check_class_names, check_vocabulary
from tfrobust.data.spec import decode_image
from tfrobust.errors import InputError
from tfrobust.ops import keras_private
from tfrobust.security import rehearsal
from tfrobust.serving.export import probe
from tfrobust.serving.export.smoothed import ServedSmoothing, with_entropy

PREDICT = "serving_default"
PREDICT_BYTES = "serving_bytes"
SMOOTHED = probe.SMOOTHED
REPORT = "robustness_report"
# A request of a few bytes returns a whole report per element, so their number is limited, to the batching recipe's
# largest request.
MOST_REPORTS = 256
CLASS_NAMES_FILE = "assets.extra/class_names.json"
VOCABULARY_FILE = "assets.extra/vocabulary.txt"

# Channels that an encoded image can be decoded to: gray, color, color with transparency.
_DECODABLE_CHANNELS = (1, 3, 4)


def write_saved_model(
    directory,
    *,
    encoder,
    head,
    image_shape: Sequence[int],
    class_names: Sequence[str] = (),
    report_json: str = "",
    fit: int | str = "stretch",
    interpolation: str = "bilinear",
    vocabulary: Sequence[str] = (),
    smoothing: ServedSmoothing | None = None,
) -> None:
    """Write encoder and head as a SavedModel with the endpoints of this project.

    `serving_default`: `images` float32 [b, h, w, c] in [0, 1] -> `probabilities` [b, k], `logits` [b, k], `embedding`
    [b, d], all float32.

    `serving_bytes`: `image_bytes` string [b], PNG or JPEG of at most 2^26 pixels, -> the same outputs. Larger images
    are refused before they are decoded. Each image is converted to c channels and resized to h x w as
    `data.spec.decode_image` does (antialiased). The endpoint is left out if c is not 1, 3 or 4.

    `robustness_report`: `request` string [b], ignored, b at most 256 -> `report` string [b], the report's JSON once per
    element.

    `serving_smoothed`, with `smoothing`: `images` as `serving_default` -> `class`, `radius`, `abstain` and `seed` of
    the smoothed classifier, see `smoothed.ServedSmoothing`.

    For clips, `serving_default` takes `clips` float32 [b, t, h, w, c] in [0, 1], and there is no `serving_bytes`.

    For text, `serving_default` takes `tokens` int32 [b, length], and there is no `serving_bytes`. The word of each id
    is in `assets.extra/vocabulary.txt`, one word per line, starting with id 0.

    Args:
        directory: folder of the SavedModel; files of the same names there are overwritten.
        encoder: built Keras model or layer, images -> embedding; called with `training=False`.
        head: built Keras model or layer, embedding -> logits [b, k]; called with `training=False`.
        image_shape: (h, w, c), (t, h, w, c) for clips, or (length,) for text.
        class_names: k names, written to `assets.extra/class_names.json`; may be empty.
        report_json: the report, stored as a constant in the SavedModel.
        fit: how `serving_bytes` fits an image to h x w, see `decode_image`.
        interpolation: of `serving_bytes`, see `decode_image`.
        vocabulary: for text, the word of each id; () for images and clips.
        smoothing: the smoothed classifier to serve, too; None for none.

    Raises:
        ValueError: encoder or head is not built, the head does not return [b, k], the number of class names is not k,
            text has no vocabulary, or text would be smoothed.
    """
    image_shape = tuple(int(size) for size in image_shape)
    kind = kind_of(image_shape)
    if len(image_shape) not in probe.INPUTS or min(image_shape) < 1:
        raise InputError(
            f"image_shape is {image_shape}; it takes (height, width, channels), (frames, height, width, channels) of "
            "clips, or (length,) of text, each at least 1."
        )
    if kind is TEXT:
        check_vocabulary(vocabulary, "the vocabulary of the export")
        if smoothing is not None:
            raise InputError("Tokens cannot be smoothed by noise: leave the smoothed endpoint out.")
    for name, part in (("encoder", encoder), ("head", head)):
        if not part.built:
            raise InputError(f"The {name} has no weights yet; build it, or call it once, before exporting it.")
    forward = forward_function(encoder, head, image_shape)
    classes = _check_outputs(forward, image_shape, class_names)

    archive = keras.export.ExportArchive()
    _track(archive, (encoder, head), is_text=kind is TEXT)
    archive.add_endpoint(PREDICT, forward, input_signature=[_input_specification(image_shape)])
    if kind is IMAGES and image_shape[-1] in _DECODABLE_CHANNELS:
        image_bytes = tf.TensorSpec((None,), tf.string, name="image_bytes")
        forward_bytes = _bytes_function(forward, image_shape, fit, interpolation)
        archive.add_endpoint(PREDICT_BYTES, forward_bytes, input_signature=[image_bytes])
    if smoothing is not None:
        _add_smoothed(archive, smoothing.from_seed(lambda x: forward(x)["logits"], image_shape, classes), image_shape)
    request = tf.TensorSpec((None,), tf.string, name="request")
    archive.add_endpoint(REPORT, _report_function(report_json), input_signature=[request])
    archive.write_out(str(directory), verbose=False)
    texts = {
        CLASS_NAMES_FILE: json.dumps(list(class_names), ensure_ascii=False) + "\n" if class_names else "",
        VOCABULARY_FILE: "".join(f"{word}\n" for word in vocabulary),
    }
    write_texts(directory, texts)
    rehearsal.remember(directory)


def write_texts(directory, texts: dict[str, str]) -> None:
    """Write the texts that are not empty into a version directory, by their names in it."""
    for name, text in texts.items():
        if text:
            path = pathlib.Path(directory, name)
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, text)


def replace_report(directory, report_json: str) -> None:
    """Replace the report that an exported SavedModel returns; its variables and all other nodes are unchanged.

    Args:
        directory: a SavedModel of this project with a report, that passes `security.saved_models.check`.
        report_json: the report in its place.

    Raises:
        InputError: the SavedModel does not return the report of its `assets.extra/robustness_report.json`.
    """
    directory = pathlib.Path(directory)
    program = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())
    before = read_bounded(directory / probe.REPORT_FILE)
    functions = [function for graph in program.meta_graphs for function in graph.graph_def.library.function]
    constants = [node.attr["value"].tensor for owner in functions for node in owner.node_def if node.op == "Const"]
    reports = [constant.string_val for constant in constants if list(constant.string_val) == [before]]
    if not before or not reports:
        raise InputError(f"{directory} does not return the report of its {probe.REPORT_FILE}; export it again.")
    for report in reports:
        report[:] = [report_json.encode()]
    write_atomically(directory / "saved_model.pb", program.SerializeToString(deterministic=True))
    # Hashes of the program as it was; loaders do not need them.
    (directory / "fingerprint.pb").unlink(missing_ok=True)
    rehearsal.remember(directory)


def read_vocabulary(directory) -> tuple[str, ...]:
    """Read the word of each token id from an exported version directory; () for images."""
    path = pathlib.Path(directory, VOCABULARY_FILE)
    if not path.is_file():
        return ()
    # splitlines() would split at characters that occur inside words.
    return tuple(read_text(path).removesuffix("\n").split("\n"))


def _track(archive, parts, *, is_text: bool) -> None:
    """Register the variables of encoder and head with the archive."""
    # `track` also searches for lookup tables, for which it traces the encoder on floats, and those of text take none.
    for part in () if is_text else parts:
        archive.track(part)
    # In place of Keras's variables, which would be stored next to the ones that they wrap.
    for name in ("variables", "trainable_variables", "non_trainable_variables"):
        wrapped = [variable.value for part in parts for variable in getattr(part, name)]
        setattr(keras_private.trackable(archive), name, wrapped)


def _add_smoothed(archive, from_seed: Callable, image_shape: tuple[int, ...]) -> None:
    """Add the endpoint of the smoothed classifier, and the function of its seed, which is no endpoint."""
    images, seed = _input_specification(image_shape), tf.TensorSpec((None, 2), tf.int32, name="seed")
    archive.add_endpoint(SMOOTHED, with_entropy(from_seed), input_signature=[images])
    seeded = tf.function(from_seed, input_signature=[images, seed], autograph=False)
    # An attribute of the loaded object; only `add_endpoint` makes signatures.
    setattr(keras_private.trackable(archive), probe.FROM_SEED, seeded)


def _input_specification(image_shape: tuple[int, ...]) -> tf.TensorSpec:
    kind = kind_of(image_shape)
    return tf.TensorSpec((None, *image_shape), kind.dtype, name=kind.input)


def forward_function(encoder, head, image_shape: Sequence[int]) -> Callable:
    """Return the function of `serving_default`: examples [b, ...] -> dict of probabilities, logits and embedding."""

    def forward(images):
        # A network with global pooling would accept images of a wrong size.
        images = tf.ensure_shape(images, (None, *image_shape))
        embedding = encoder(images, training=False)
        logits = tf.cast(head(embedding, training=False), tf.float32)
        return {
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
            "embedding": tf.cast(embedding, tf.float32),
        }

    return forward


def deployable_sha256(encoder, head) -> str:
    """Return the weights hash of a deployable: `weights_sha256` of the variables of encoder and head, each once."""
    return _variables_sha256([*encoder.variables, *head.variables])


def saved_model_sha256(loaded) -> str:
    """Return the weights hash of a loaded export; it equals that of the encoder and head it was made from."""
    return _variables_sha256(loaded.variables)


def _variables_sha256(variables) -> str:
    once = {id(variable): variable for variable in variables}
    return fingerprint.weights_sha256(variable.numpy() for variable in once.values())


def _bytes_function(forward: Callable, image_shape: tuple[int, ...], fit: int | str, interpolation: str) -> Callable:
    """Return the function of `serving_bytes`, which decodes files as in training and evaluation."""

    def forward_bytes(image_bytes):
        specification = tf.TensorSpec(image_shape, tf.float32)
        return forward(
            tf.map_fn(
                lambda encoded: decode_image(encoded, image_shape, fit, interpolation),
                image_bytes,
                fn_output_signature=specification,
            )
        )

    return forward_bytes


def _report_function(report_json: str) -> Callable:
    def report(request):
        few = tf.debugging.Assert(tf.size(request) <= MOST_REPORTS, ["more reports requested than", MOST_REPORTS])
        with tf.control_dependencies([few]):
            return {"report": tf.fill(tf.shape(request), tf.constant(report_json))}

    return report


def _check_outputs(forward: Callable, image_shape, class_names) -> int:
    """Return the number of classes, or raise ValueError for outputs that cannot be exported."""
    specification = _input_specification(image_shape)
    logits = tf.function(forward, autograph=False).get_concrete_function(specification).output_shapes["logits"]
    if logits.rank != 2:
        raise InputError(f"The head gives logits of shape {logits}; an export needs [batch, classes].")
    if class_names:
        check_class_names(class_names, "the class names of the export")
    if class_names and len(class_names) != logits[-1]:
        raise InputError(f"{len(class_names)} class names were given for {logits[-1]} classes; give one each.")
    return int(logits[-1])
