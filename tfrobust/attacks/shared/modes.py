"""Batch-norm modes while adversarial examples are generated, and models as functions `inputs -> logits`.

inference: moving statistics (the default). batch: statistics of the batch; moving statistics are not updated. train:
statistics of the batch, and every attack step updates the moving statistics, as in the released ASCL code.
"""

import contextlib
import contextvars
import logging
import math
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import keras_private, probabilities

_log = logging.getLogger(__name__)

MODES = ("inference", "batch", "train")
# The policy of `reduced_precision`, and the layers that follow it so far.
_REDUCED: contextvars.ContextVar[tuple[str, list]] = contextvars.ContextVar("reduced")


def check_mode(mode: str, model=None) -> str:
    """Raise ValueError if a mode is unknown or cannot work with the model.

    Args:
        mode: 'inference', 'batch' or 'train'.
        model: a Keras model whose layers are searched for synchronized batch norm, or None.

    Returns:
        mode.

    Raises:
        ValueError: unknown mode; 'train' with synchronized batch norm; 'batch' with it on several replicas: its
            statistics would have to be gathered inside the attack's loop, where no collective operation can run.
    """
    if mode not in MODES:
        raise InputError(
            f"Unknown batch-norm mode {mode!r} for generating adversarial examples; it is one of {list(MODES)}."
        )
    layers = () if mode == "inference" or model is None else keras_private.all_layers(model)
    if not any(getattr(layer, "synchronized", False) for layer in layers):
        return mode
    if mode == "train" or tf.distribute.get_strategy().num_replicas_in_sync > 1:
        raise InputError(
            f"Batch-norm mode {mode!r} cannot gather statistics inside an attack: set synchronized=False on "
            "the batch-norm layers that have it, or generate the adversarial examples in mode 'inference'."
        )
    return mode


def forward_in_mode(function, mode: str) -> Callable:
    """Return a forward pass with one argument, in a batch-norm mode.

    Args:
        function: (inputs, training=bool) -> anything, often logits: a function, a Keras model or a method.
        mode: 'inference', 'batch' or 'train'.

    Returns:
        inputs -> the output of `function`.

    Raises:
        ValueError: as `check_mode`.
    """
    owner = function if isinstance(function, keras.Layer) else getattr(function, "__self__", None)
    check_mode(mode, owner if isinstance(owner, keras.Layer) else None)
    layers = (owner,) if isinstance(owner, keras.Layer) else ()

    def forward(inputs):
        with following_precision(*layers):
            if mode == "batch":
                return _without_updates(function, inputs, training=True)
            return function(inputs, training=mode == "train")

    return forward


@contextlib.contextmanager
def reduced_precision(policy: str) -> Iterator[list]:
    """Let models compute in another precision inside the context, while they are called or traced.

    Args:
        policy: name of a Keras dtype policy, such as "mixed_bfloat16".

    Yields:
        A list of the layers that do so; it is empty if no model was called, or none with float32 layers.
    """
    layers: list[keras.Layer] = []
    token = _REDUCED.set((policy, layers))
    try:
        yield layers
    finally:
        _REDUCED.reset(token)


@contextlib.contextmanager
def following_precision(*models: keras.Layer) -> Iterator[None]:
    """Give the float32 layers of models the policy of a surrounding `reduced_precision` until the context exits.

    Variables keep their values and their type; Keras casts them when a layer uses them.

    Args:
        *models: Keras models or layers; their inner layers follow, too.
    """
    policy, followers = _REDUCED.get(("", []))
    layers = {id(layer): layer for model in models for layer in keras_private.all_layers(model)} if policy else {}
    originals = [(layer, layer.dtype_policy) for layer in layers.values()]
    originals = [(layer, original) for layer, original in originals if original.name == "float32"]
    followers += [layer for layer, _ in originals]
    try:
        for layer, _ in originals:
            layer.dtype_policy = policy
        yield
    finally:
        for layer, original in originals:
            layer.dtype_policy = original


def as_predict(model) -> Callable:
    """Return a Keras model or function as `inputs -> logits`, float32, in inference mode, without variable updates.

    Args:
        model: a built Keras model or layer (called with training=False, inside a scope that drops every assignment), or
            a function. Either may return a dict of one output, or with the key 'logits'.

    Returns:
        float32 [b, ...] -> float32 [b, k].

    Raises:
        TypeError: neither a Keras model nor callable.
        ValueError: the model is not built; or, when called, its output is not logits [b, k], k >= 2.
    """
    if not callable(model):
        raise TypeError(f"An attack needs a Keras model or a function inputs -> logits, not {type(model).__name__}.")
    if isinstance(model, keras.Layer) and not model.built:
        raise InputError(f"The Keras model {model.name!r} is not built: call it once on a batch before attacking it.")

    function = model if isinstance(model, keras.Layer) else in_graph(model)

    def predict(inputs):
        if isinstance(model, keras.Layer):
            with following_precision(model):
                outputs = _without_updates(model, inputs, training=False)
        else:
            outputs = function(inputs)
        return checked_logits(outputs)

    return predict


def in_graph(function: Callable) -> Callable:
    """Return a function of tensors, also for one that computes outside TensorFlow, such as `predict_proba` of others.

    A function that works on values and not in a graph is called by `tf.numpy_function`. It then is a black box without
    gradients, of which a warning is logged once.

    Args:
        function: inputs [b, ...] -> outputs [b, k], or a dict of one output, or with the key 'logits'.

    Returns:
        inputs [b, ...] -> outputs [b, k].
    """
    warned: list[bool] = []

    def on_values(inputs) -> np.ndarray:
        with tf.init_scope():
            return np.asarray(logits_of(function(tf.constant(inputs))), np.float32)

    def predict(inputs):
        if tf.executing_eagerly() and not isinstance(inputs, np.ndarray):
            return logits_of(function(inputs))
        try:
            return logits_of(function(inputs))
        except Exception as error:
            example = np.zeros([1, *inputs.shape[1:]], inputs.dtype.as_numpy_dtype)
            try:
                outputs = on_values(example)
            except Exception:  # noqa: BLE001 - the function fails in any case
                raise error from None
        if not warned:
            warned.append(True)
            _log.warning(
                "The function of the model does not compute in TensorFlow: it is a black box, without gradients."
            )
        result = tf.numpy_function(on_values, [inputs], tf.float32)
        return tf.ensure_shape(result, [inputs.shape[0], *outputs.shape[1:]])

    return predict


def video_predict(predict: Callable, clips: int) -> Callable:
    """Return a function of videos, for attacks on all clips of a video jointly.

    A video is one long clip: the frames of all its clips, one clip after the other. Its outputs are the logarithms of
    the softmax probabilities, averaged over its clips. Attacks treat them as logits, whose softmax is that mean. Each
    clip is perturbed separately, also where clips share frames.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = robust.attacks.video_predict(lambda clips: clips[:, 0, 0, 0], clips=2)
        >>> video = np.array([[2.0, 0.0], [0.0, 1.0]], "float32").reshape(1, 2, 1, 1, 2)  # two clips of one frame
        >>> print(np.exp(predict(video)).round(3))  # the mean of (0.881, 0.119) and (0.269, 0.731)
        [[0.575 0.425]]

    Args:
        predict: clips [b, t, h, w, c] -> logits [b, k], or a built Keras model; see `as_predict`.
        clips: number of clips of each video, m >= 1.

    Returns:
        float32 [b, m t, h, w, c] -> float32 [b, k], <= 0.

    Raises:
        ValueError: (when called) frames that are not those of so many clips; or as `as_predict`.
    """
    predict = as_predict(predict)

    def of_videos(videos):
        videos = tf.convert_to_tensor(videos)
        if videos.shape.rank != 5 or videos.shape[1] % clips:
            raise InputError(f"Videos of {clips} clips are [b, {clips} t, h, w, c]; these have shape {videos.shape}.")
        logits = predict(tf.reshape(videos, [-1, videos.shape[1] // clips, *videos.shape[2:]]))
        logs = tf.reshape(tf.nn.log_softmax(logits), [-1, clips, logits.shape[-1]])
        return tf.reduce_logsumexp(logs, axis=1) - math.log(clips)

    return of_videos


def checked_logits(outputs) -> tf.Tensor:
    """Return the logits of `logits_of` as float32 [b, k]; raise ValueError if they are not [b, k], k >= 2."""
    logits = tf.cast(logits_of(outputs), tf.float32)
    if logits.shape.rank not in (2, None) or logits.shape[-1] in (0, 1):
        raise InputError(
            f"An attack needs logits [b, k] with k >= 2 classes; the model returns {logits.shape}. "
            f"{probabilities.OF_ONE_OUTPUT}"
        )
    return logits


def logits_of(outputs):
    """Return the output that an attack uses: a model's only output, or the one named 'logits'.

    Args:
        outputs: a tensor, or a dict of tensors.

    Raises:
        ValueError: several outputs, none of them with that name; or a list of outputs.
    """
    if isinstance(outputs, dict):
        if "logits" not in outputs and len(outputs) != 1:
            raise InputError(f"The model returns the outputs {sorted(outputs)}; an attack needs one named 'logits'.")
        return outputs["logits"] if "logits" in outputs else next(iter(outputs.values()))
    if isinstance(outputs, (list, tuple)):
        raise InputError(
            f"The model returns {len(outputs)} outputs without names; let it return a dict with one named 'logits'."
        )
    return outputs


def _without_updates(function: Callable, inputs, training: bool):
    # Inside the scope, assignments go to a table that is discarded; variables are read as usual.
    with keras.StatelessScope():
        return function(inputs, training=training)
