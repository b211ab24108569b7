"""Base class of the training methods: its parts, its forward pass, and the hooks that a method implements."""

import contextlib
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.kinds import OF_PIXELS
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses.gradient_penalty import GradientPenalty
from tfrobust.methods.shared import freezing, layer_losses, projections
from tfrobust.methods.shared.entrances import Entrances
from tfrobust.methods.shared.step import Steps
from tfrobust.methods.shared.term_metrics import TermMetrics
from tfrobust.methods.shared.terms import Terms
from tfrobust.methods.shared.whole_models import WholeModels, check_parts, splitting
from tfrobust.ops import distribution, randomness
from tfrobust.structs import Batch, Context


@keras.saving.register_keras_serializable(package="tfrobust")
class Method(Configured, WholeModels, Entrances, Steps, Terms, TermMetrics, keras.Model):
    """An encoder, a head, and a way to train them.

    A subclass names its `terms`, makes views outside the weight tape (`make_views`) and returns the per-example values
    of the terms inside it (`loss_terms`). The base class weights the terms, averages them over the global batch,
    differentiates, applies the gradients and logs. `call` is the deployed path and nothing else: its output is what is
    served. `build(input_shape)` creates the variables. Losses that layers add in their calls (`add_loss`,
    `activity_regularizer`) are added up over all passes of encoder and head in a step, and logged as `regularization`.

    Example:
        >>> import keras
        >>> from tfrobust import keras as robust
        >>> @keras.saving.register_keras_serializable(package="mine")
        ... class Confident(robust.methods.Method):
        ...     terms = ("margin",)
        ...
        ...     def loss_terms(self, views, batch, context):
        ...         _, logits = self.propagate(views["images"])
        ...         return {"margin": robust.losses.margin(logits, batch.labels)}, logits
        >>> Confident(robust.models.DigitsCNN(), robust.models.LinearHead(10)).terms
        ('margin',)

    Args:
        encoder: images [b, h, w, c] -> embedding [b, d]; an encoder of this library or any Keras model.
        head: embedding [b, d] -> logits [b, k]; left out, the last dense layer of `encoder`, a whole classifier.
        term_weights: weight by term name, a number or a schedule of the step. Other terms keep their default weights.
        penalty: penalty on input gradients (`Tikhonov`), added to the loss as one more term.
        clip_norm: largest global norm of the gradients, > 0. They are clipped after the reduction over replicas; those
            of `clipped_apart` are clipped by a norm of their own. None does not clip.
        clip_each: clip the gradient of each variable by its own norm, as in DINO.
        encoder_rate: factor of the learning rate of the encoder, > 0: a pre-trained encoder changes less with 0.1.
            Decoupled weight decay is multiplied, too.
        seed: seed of all random numbers of the training.
        name: Keras name.

    Attributes of a subclass:
        terms: names of its own trained terms, used as log names, gin keys and report keys.
        observations: names of per-example values that are logged every epoch and never trained.
        default_weights: weight by term, where it is not 1.
        host_view_names: names of the views that `host_views` returns.
        differentiable_views: the views with respect to which a penalty differentiates.
        learned_views: names of the views whose gradients `update_views` gets.
        least_batch: the smallest global batch from which the method can learn.
        updates_per_step: updates of the weights in one step of the training loop.
        no_accumulation: why the optimizer must not accumulate gradients, as a verb and its object; "" if it may.
        kinds: names of the kinds of examples that the method accepts: "images", "clips" (float32 [b, t, h, w, c] in
            place of images), "text" (tokens, int32 [b, length]).
        needs_labels: whether a batch without labels is refused at once.
    """

    terms: tuple[str, ...] = ()
    observations: tuple[str, ...] = ()
    default_weights: dict[str, float] = {}
    host_view_names: tuple[str, ...] = ()
    differentiable_views: tuple[str, ...] = ("images",)
    learned_views: tuple[str, ...] = ()
    least_batch: int = 1
    updates_per_step: int = 1
    no_accumulation: str = ""
    kinds: tuple[str, ...] = OF_PIXELS
    needs_labels: bool = True

    @splitting
    def __init__(
        self,
        encoder: keras.layers.Layer,
        head: keras.layers.Layer,
        *,
        term_weights: dict | None = None,
        penalty: GradientPenalty | None = None,
        clip_norm: float | None = None,
        clip_each: bool = False,
        encoder_rate: float = 1.0,
        seed: int = 0,
        name: str | None = None,
        **kwargs,
    ):
        check_parts(self, encoder, kwargs)
        super().__init__(name=name, **kwargs)
        self.encoder = encoder
        self.head = head
        self.term_weights = term_weights
        self.penalty = penalty
        self.clip_norm = clip_norm
        self.clip_each = clip_each
        self.encoder_rate = encoder_rate
        self.seed = seed
        if not 0 < encoder_rate < float("inf"):
            raise InputError(
                f"encoder_rate of {type(self).__name__} is {encoder_rate}: it must be positive and finite."
            )
        if clip_norm is not None and clip_norm <= 0:
            raise InputError(f"clip_norm of {type(self).__name__} is {clip_norm}: it must be positive or None.")
        if clip_each and clip_norm is None:
            raise InputError(f"clip_each of {type(self).__name__} has no effect without clip_norm.")
        # A step counter of its own: `optimizer.iterations` does not advance on skipped float16 steps.
        self.step = self.add_weight(
            name="step", shape=(), dtype="int64", initializer="zeros", trainable=False, aggregation="only_first_replica"
        )
        self.total = keras.metrics.Mean(name="loss")
        self.means: dict[str, keras.metrics.Mean] = {}

    # ------------------------------------------------------------------------------------------- building

    def build(self, input_shape=None):
        """Build all parts, once.

        Args:
            input_shape: (batch or None, h, w, c), (batch or None, t, h, w, c) for clips, or (batch or None, length) for
                tokens.
        """
        if self.built:
            return
        self._example_shape = tuple(input_shape)[1:]
        embedding_dim, self._class_count = projections.build(self, (None, *self._example_shape))
        self.build_parts(self._example_shape, embedding_dim)
        self._make_metrics()
        self.built = True

    def build_parts(self, example_shape: tuple[int, ...], embedding_dim: int) -> None:
        """Build the parts that are not deployed (hook).

        Examples are a projector, a predictor or a target network.

        Args:
            example_shape: (h, w, c), (t, h, w, c) for clips, or (length,) for tokens.
            embedding_dim: d, features of the embedding.
        """

    @property
    def trainable(self) -> bool:
        """True if anything is trained; copies of the encoder stay frozen when it is set to True."""
        return keras.Model.trainable.fget(self)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.Model.trainable.fset(self, value)
        if self.built:
            self.freeze_copies()

    @property
    def trainable_variables(self) -> list:
        """The variables that a step updates, without those of a head that no term trains."""
        variables = super().trainable_variables
        if getattr(self, "probe", True):
            return variables
        # Not by `head.trainable`, which would freeze the head for the next method that gets it, too.
        of_head = set(map(id, self.head.variables))
        return [variable for variable in variables if id(variable) not in of_head]

    def freeze_copies(self) -> None:
        """Freeze the parts that no gradient updates, such as copies of the encoder (hook)."""

    def check_ready(self, example_shape: tuple[int, ...], class_count: int) -> None:
        """Check the parts against the data before a run creates its folder (hook).

        Args:
            example_shape: (h, w, c), (t, h, w, c) for clips, or (length,) for tokens.
            class_count: k, classes of the data.

        Raises:
            ValueError: a part that is missing or does not fit such examples.
        """

    def compute_output_shape(self, input_shape):
        """Return the shape of the logits, (b, k)."""
        return projections.output_shape(self.head, projections.output_shape(self.encoder, input_shape))

    # -------------------------------------------------------------------------------------------- forward

    def call(self, inputs, training=None):
        """Compute the logits of examples.

        Args:
            inputs: images [b, h, w, c] or clips [b, t, h, w, c] in [0, 1], or tokens [b, length], or a dict batch that
                holds them under `images`.
            training: as in `propagate`; None is inference, also for layers of the encoder that are random by default.

        Returns:
            Logits, float32 [b, k].
        """
        inputs = inputs["images"] if isinstance(inputs, dict) else inputs
        # Keras's augmentation layers take None for training, so that an export would be stochastic.
        return self.propagate(inputs, training=False if training is None else training)[1]

    def propagate(self, inputs: tf.Tensor, *, training: bool | None = True, **keywords) -> tuple[tf.Tensor, tf.Tensor]:
        """Run one forward pass through encoder and head.

        Args:
            inputs: images, float [b, h, w, c], clips, float [b, t, h, w, c], or tokens, int32 [b, length].
            training: whether batch norm uses the statistics of the batch.
            **keywords: `branch` and `at_stage`, for encoders that accept them.

        Returns:
            Embedding [b, d] and logits, float32 [b, k].
        """
        # A frozen encoder runs as it will be served: its statistics do not change, and dropout is off.
        embedding = self.encoder(inputs, training=training and self.encoder.trainable, **keywords)
        layer_losses.record(self.encoder)
        logits = self.head(embedding, training=training)
        layer_losses.record(self.head)
        return embedding, tf.cast(logits, tf.float32)

    def propagate_views(self, *views: tf.Tensor, forward: str) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Run training-mode passes of several views [b, ...].

        Args:
            *views: examples, equally many in each view.
            forward: "separate" runs one pass per view, so that batch norm sees each view alone. "joint" runs one pass
                of the stacked views.

        Returns:
            One (embedding [b, d], logits [b, k]) per view.
        """
        if forward == "separate":
            return [self.propagate(view) for view in views]
        stacked = self.propagate(tf.concat(views, axis=0))
        return list(zip(*(tf.split(part, len(views)) for part in stacked), strict=True))

    def embed(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the penultimate features [b, d] of examples in inference mode."""
        return self.encoder(inputs, training=False)

    # ---------------------------------------------------------------------------------------------- hooks

    def host_views(self, images: tf.Tensor, key: tf.Tensor) -> dict:
        """Compute further views that need no weights, in the input pipeline (hook).

        Args:
            images: float32 [b, h, w, c], after the augmentation of the recipe.
            key: int32 [b, 2], one per example; [2] for a whole batch if `extra_views` makes the views.

        Returns:
            A dict from `host_view_names` to tensors [b, ...], which the pipeline puts into `batch.extra`.
        """
        return {}

    def extra_views(self, batch: Batch, context: Context) -> dict:
        """Return the `host_views` of a batch.

        They come from the pipeline, or are computed here for a plain `fit` on (x, y).
        """
        if all(name in batch.extra for name in self.host_view_names):
            return {name: batch.extra[name] for name in self.host_view_names}
        key = randomness.fold(context.key, "host_views")
        return self.on_unit_pixels(lambda images: self.host_views(images, key), batch.images)

    def on_unit_pixels(self, change: Callable, images: tf.Tensor):
        """Apply an augmentation, which is made for pixels in [0, 1], to images within `pixel_bounds`.

        Args:
            change: images in [0, 1] -> a nest of such images.
            images: float32 [b, ...] within `pixel_bounds`; or tokens, which have the bounds [0, 1].

        Returns:
            The nest, within `pixel_bounds`.
        """
        low, high = self.pixel_bounds
        if (low, high) == (0.0, 1.0):
            return change(images)  # without rounding
        changed = change(self.unit_pixels(images))
        return tf.nest.map_structure(lambda view: low + (high - low) * view, changed)

    def unit_pixels(self, images: tf.Tensor) -> tf.Tensor:
        """Map images within `pixel_bounds` to [0, 1]."""
        low, high = self.pixel_bounds
        return images if (low, high) == (0.0, 1.0) else (images - low) / (high - low)

    def make_views(self, batch: Batch, context: Context) -> dict:
        """Compute the named views [b, ...] outside the weight tape (hook).

        The base class stops the gradients of the views.
        """
        return {"images": batch.images}

    def loss_terms(self, views: dict, batch: Batch, context: Context) -> tuple[dict, tf.Tensor | None]:
        """Compute the terms inside the weight tape (hook).

        Args:
            views: the output of `make_views`, gradients stopped.
            batch: the batch.
            context: key, step and rows of this step.

        Returns:
            A dict from each term or observation to its per-example values [b], and the logits [b, k] of the images or
            None.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement loss_terms.")

    @property
    def radius_ramp(self) -> tuple[Callable, float] | None:
        """The schedule from 0 to 1 that the radius follows and the final radius, or None if it is constant (hook)."""
        adversary = getattr(self, "adversary", None)
        if adversary is None or getattr(adversary, "ramp", None) is None:
            return None
        return adversary.ramp, adversary.attack.threat.epsilon

    @property
    def differentiable_terms(self) -> tuple[str, ...]:
        """The terms that a penalty differentiates unless it names its own."""
        return self.terms

    @property
    def clipped_apart(self) -> list:
        """The variables whose gradients `clip_norm` clips by a norm of their own.

        Their size then has no influence on the scale of the other gradients.
        """
        return []

    def update_views(self, views: dict, gradients: dict, context: Context) -> None:
        """Update state by the gradients of the loss with respect to the `learned_views` (hook)."""

    def around_update(self, differentiate: Callable) -> contextlib.AbstractContextManager:
        """Return the context in which a step differentiates and applies the gradients (hook).

        Args:
            differentiate: () -> (terms, logits, losses, gradients) of this batch at the current weights.
        """
        return contextlib.nullcontext()

    def apply_gradients(self, gradients: list) -> None:
        """Update `trainable_variables` by their gradients (hook)."""
        replicas, _ = distribution.replica()
        if replicas > 1 and hasattr(self.optimizer, "inner_optimizer") and self.clip_norm is None:
            # A loss scale asks one replica whether the gradients are finite: each must have those of all.
            gradients = [g if g is None else distribution.global_sum(g) / replicas for g in gradients]
        with freezing.scaled_updates(self.encoder.trainable_variables, self.encoder_rate):
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))

    def after_update(self) -> None:
        """Update momentum encoders, centers or prototypes after the weights (hook)."""

    def start(self) -> None:
        """Prepare for the first step (hook): the encoder may have been given weights after `build`."""

    def finish(self) -> None:
        """Give the encoder the weights that are handed to a second stage (hook); by default they are its own."""

    @property
    def passes_per_step(self) -> int:
        """Forward and backward passes over the batch in one step, for cost estimates."""
        adversary = getattr(self, "adversary", None)
        return 1 if adversary is None else adversary.attack.steps + 2


FORWARDS = ("separate", "joint")


def checked_forward(forward: str) -> str:
    """Return `forward`; raise ValueError unless it is one of `FORWARDS`."""
    return require_choice(forward, "forward", FORWARDS)
