"""The base class of encoders from images to an embedding, with a hook at every stage boundary."""

import contextlib
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_whole
from tfrobust.errors import InputError
from tfrobust.models.shared.blocks import ConvolutionStyle, build_chain, run_chain
from tfrobust.models.shared.normalization import check_branch


@keras.saving.register_keras_serializable(package="tfrobust")
class Encoder(Configured, keras.Model):
    """Staged network from pixels in [0, 1] to an embedding; subclasses define the stages.

    hidden_0 = at_stage(0, resized (images - pixel_mean) / pixel_std); hidden_k = at_stage(k, stage_k(hidden_(k-1)));
    embedding = neck(hidden_K). A stem belongs to stage 1. A subclass calls `super().__init__(**kwargs)`, keeps its own
    arguments as attributes and ends its constructor with `self.compose(...)`.

    Methods rely on the attributes `dim` (features of the embedding), `stage_count` (K) and `branches`. An encoder of
    clips sets `input_rank = 5`; its inputs are float [b, t, h, w, c].

    Example:
        >>> import keras, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> @keras.saving.register_keras_serializable(package="mine")
        ... class Perceptron(robust.models.Encoder):
        ...     def __init__(self, units: int = 16, **kwargs):
        ...         super().__init__(**kwargs)
        ...         self.units = units
        ...         stage = [keras.layers.Flatten(), keras.layers.Dense(units, activation="relu")]
        ...         self.compose([stage], [], dim=units)
        >>> Perceptron(pixel_mean=0.5)(tf.ones([2, 8, 8, 1])).shape
        TensorShape([2, 16])

    Args:
        branches: sets of batch-norm variables, >= 1; a forward pass uses the one given by `branch`.
        synchronized: batch statistics over all replicas.
        normalization_momentum: weight of the old moving statistics, in [0, 1).
        normalization_epsilon: added to the variance, > 0.
        pixel_mean: float or one per channel, in pixel units; None subtracts nothing.
        pixel_std: float or one per channel, positive; None is 1.
        resize_to: side in pixels of the squares to which images or frames are resized (bilinear) before the first
            stage, so that a network for large images accepts small ones; None does not resize.

    Raises:
        ValueError: `branches` or `resize_to` below 1, a `pixel_std` that is not positive, numbers of the wrong type, or
            Keras's setting `channels_first`.

    Source: at_stage numbering of NoisyMix (stage 0 is the normalized image).
    """

    input_rank = 4

    def __init__(
        self,
        *,
        branches: int = 1,
        synchronized: bool = False,
        normalization_momentum: float = 0.9,
        normalization_epsilon: float = 1e-5,
        pixel_mean: float | tuple[float, ...] | None = None,
        pixel_std: float | tuple[float, ...] | None = None,
        resize_to: int | None = None,
        name: str | None = None,
        **kwargs,
    ):
        if keras.config.image_data_format() != "channels_last":
            raise InputError(
                f"{type(self).__name__} takes images [b, h, w, c], and keras.json or a script sets channels_first: "
                "call keras.config.set_image_data_format('channels_last') first."
            )
        # Pixels are normalized before the cast to a 16-bit compute type, so Keras must not cast the images.
        super().__init__(name=name, autocast=False, **kwargs)
        self.branches = require_whole(branches, f"{type(self).__name__}.branches")
        self.synchronized = synchronized
        self.normalization_momentum = normalization_momentum
        self.normalization_epsilon = normalization_epsilon
        self.pixel_mean = _per_channel(pixel_mean, "pixel_mean")
        self.pixel_std = _per_channel(pixel_std, "pixel_std")
        if pixel_std is not None and not min(keras.tree.flatten(self.pixel_std)) > 0:
            raise InputError(f"{type(self).__name__}.pixel_std must be positive, got {pixel_std}.")
        self.resize_to = None if resize_to is None else require_whole(resize_to, f"{type(self).__name__}.resize_to")
        self._any_size, self._one_size = 0, None  # number of open `accepting_any_size`, and the spec behind them

    def style(
        self,
        *,
        activation: str = "relu",
        use_bias: bool = True,
        kernel_regularization: float = 0.0,
        symmetric: bool = False,
    ) -> ConvolutionStyle:
        """Return the settings of this encoder's units: its batch-norm settings and the given arguments.

        The arguments are those of `ConvolutionStyle`.
        """
        return ConvolutionStyle(
            activation=activation,
            use_bias=use_bias,
            kernel_regularization=kernel_regularization,
            symmetric=symmetric,
            branches=self.branches,
            momentum=self.normalization_momentum,
            epsilon=self.normalization_epsilon,
            synchronized=self.synchronized,
        )

    def compose(self, stages: Sequence[Sequence], neck: Sequence, *, dim: int, minimum_size: int = 1) -> None:
        """Set the layers of the network. Each must have been created with `dtype=self.dtype_policy`.

        Args:
            stages: K sequences of Keras layers; those with a true attribute `branched` also get `branch`.
            neck: the layers between the last stage and the embedding.
            dim: features of the embedding, >= 1.
            minimum_size: smallest image side in pixels that the network accepts.

        Raises:
            ValueError: several branches are requested, but no layer has any.
        """
        self.stage_layers = [list(stage) for stage in stages]
        self.neck = list(neck)
        self.dim = dim
        self.stage_count = len(self.stage_layers)
        self.minimum_size = minimum_size
        everything = [layer for stage in [*stages, neck] for layer in stage]
        if self.branches > 1 and not any(getattr(layer, "branched", False) for layer in everything):
            raise InputError(
                f"{type(self).__name__} has no batch normalization, so all {self.branches} branches would be "
                "equal; set branches=1."
            )

    def build(self, input_shape):
        """Build the layers for images of one size."""
        shape = tuple(input_shape)
        if self.built:
            self._check_same(shape)
            return
        if not hasattr(self, "stage_layers"):
            raise InputError(f"{type(self).__name__} has no layers: its constructor must call `compose`.")
        hidden = self._stage_shape(shape)
        self._check_shape(hidden)
        for stage in self.stage_layers:
            hidden = build_chain(stage, hidden)
        flattens = any(isinstance(layer, keras.layers.Flatten) for layer in self.neck)
        if flattens and None in hidden[1:]:
            raise InputError(f"{self.name} flattens its last map: build it with a fixed image size, not {shape}.")
        build_chain(self.neck, hidden)
        if not self.trainable:  # restored from a config, before there were layers to freeze
            for layer in (layer for stage in (*self.stage_layers, self.neck) for layer in stage):
                layer.trainable = False
        # From now on Keras refuses images of another size, which global pooling would silently accept. Clips may have
        # any number of frames, because methods train on parts of the clips that they classify.
        self.input_spec = keras.layers.InputSpec(shape=(*[None] * (self.input_rank - 3), *shape[-3:]))

    @contextlib.contextmanager
    def accepting_any_size(self):
        """Accept images of other sizes than those of `build` within the context, for views of several sizes."""
        # Contexts of several replicas overlap: MirroredStrategy pauses one at each synchronization. The last ends all.
        if not self._any_size:
            self._one_size = self.input_spec
        self._any_size += 1
        self.input_spec = keras.layers.InputSpec(shape=(*[None] * (self.input_rank - 1), self.input_spec.shape[-1]))
        try:
            yield
        finally:
            self._any_size -= 1
            if not self._any_size:
                self.input_spec = self._one_size

    def last_stage_shape(self, input_shape) -> tuple:
        """Return the shape of the hidden state after the last stage, before pooling."""
        shape = self._stage_shape(tuple(input_shape))
        for layer in (layer for stage in self.stage_layers for layer in stage):
            shape = tuple(layer.compute_output_shape(shape))
        return shape

    def compute_output_shape(self, input_shape):
        """Return (b, dim)."""
        return (tuple(input_shape)[0], self.dim)

    def call(
        self,
        images: tf.Tensor,
        *,
        training: bool | None = None,
        branch: int = 0,
        at_stage: Callable | None = None,
    ) -> tf.Tensor:
        """Compute the embedding of a batch.

        Args:
            images: float [b, h, w, c] or, for an encoder of clips, [b, t, h, w, c]; pixels in [0, 1].
            training: whether batch norm uses the statistics of the batch, and updates its moving statistics.
            branch: the batch-norm branch, 0 <= branch < branches.
            at_stage: (index, hidden) -> hidden of the same shape, called with index 0 before the stem, then after each
                stage 1..K.

        Returns:
            [b, dim] in the compute dtype of the policy.

        Raises:
            ValueError: images that are not floating point, a branch that does not exist, or an `at_stage` that returns
                nothing or another shape.
        """
        branch = check_branch(branch, self.branches, self.name)
        hidden = self.standardize(images)
        if self.resize_to:
            hidden = self._resize(hidden)
        hidden = _visit(at_stage, 0, hidden)
        for index, stage in enumerate(self.stage_layers, start=1):
            hidden = run_chain(stage, hidden, training=self._stage_training(index, training), branch=branch)
            hidden = _visit(at_stage, index, hidden)
        return run_chain(self.neck, hidden, training=training, branch=branch)

    def _stage_training(self, index: int, training: bool | None) -> bool | None:
        """Return the mode of a stage (hook): frozen stages run in inference mode."""
        return training

    def standardize(self, images: tf.Tensor) -> tf.Tensor:
        """Normalize pixels: (images - pixel_mean) / pixel_std.

        The result is computed in the variables' dtype and cast to the compute dtype.

        Raises:
            ValueError: images that are not floating point.
        """
        if not images.dtype.is_floating:
            raise InputError(f"{self.name} takes float pixels in [0, 1], got {images.dtype.name}; divide bytes by 255.")
        images = tf.cast(images, self.variable_dtype)
        if self.pixel_mean is not None:
            images -= tf.constant(self.pixel_mean, images.dtype)
        if self.pixel_std is not None:
            images /= tf.constant(self.pixel_std, images.dtype)
        return tf.cast(images, self.compute_dtype)

    def _resize(self, images: tf.Tensor) -> tf.Tensor:
        """Resize images, or every frame of clips."""
        frames = tf.reshape(images, [-1, *tf.unstack(tf.shape(images)[-3:])]) if self.input_rank == 5 else images
        resized = tf.cast(tf.image.resize(frames, [self.resize_to] * 2), images.dtype)
        if self.input_rank == 5:
            resized = tf.reshape(resized, [*tf.unstack(tf.shape(images)[:2]), *resized.shape[1:3], images.shape[-1]])
        return tf.ensure_shape(resized, self._stage_shape(tuple(images.shape)))

    def _stage_shape(self, shape: tuple) -> tuple:
        """Return the shape of what the first stage receives for images of a shape."""
        if self.resize_to and len(shape) == self.input_rank:
            return (*shape[:-3], self.resize_to, self.resize_to, shape[-1])
        return shape

    def _check_shape(self, shape: tuple) -> None:
        kind, axes = ("clips", "[b, t, h, w, c]") if self.input_rank == 5 else ("images", "[b, h, w, c]")
        if len(shape) != self.input_rank or shape[-1] is None:
            raise InputError(f"{self.name} takes {kind} {axes} with a known c, got the shape {shape}.")
        if any(side is not None and side < self.minimum_size for side in shape[-3:-1]):
            raise InputError(
                f"{self.name} needs {kind} of at least {self.minimum_size}x{self.minimum_size} pixels, "
                f"got {shape[-3]}x{shape[-2]}."
            )
        for argument in ("pixel_mean", "pixel_std"):
            value = getattr(self, argument)
            if isinstance(value, tuple) and len(value) != shape[-1]:
                raise InputError(f"{self.name}.{argument} has {len(value)} entries for {shape[-1]} channels.")

    def _check_same(self, shape: tuple) -> None:
        built = self.input_spec.shape[1:]
        requested = shape[1:]
        compatible = len(built) == len(requested) and all(
            a is None or b is None or a == b for a, b in zip(built, requested, strict=True)
        )
        if not compatible:
            raise InputError(f"{self.name} was built for images {built} and cannot be rebuilt for {requested}.")


def _visit(at_stage: Callable | None, index: int, hidden: tf.Tensor) -> tf.Tensor:
    if at_stage is None:
        return hidden
    changed = at_stage(index, hidden)
    if changed is None:
        raise InputError(f"at_stage({index}, hidden) returned nothing; it must return the hidden state.")
    # A tf.cond inside at_stage loses the static shape, which the next layer needs.
    return tf.ensure_shape(tf.cast(changed, hidden.dtype), hidden.shape)


def _per_channel(value, name: str):
    if value is None:
        return None
    try:
        return tuple(float(v) for v in value) if isinstance(value, (list, tuple)) else float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number or a tuple of numbers, got {value!r}.") from None
