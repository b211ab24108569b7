"""Base class of the training methods: hooks, named per-example terms, and one place that reduces them."""

import contextlib
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.kinds import OF_PIXELS
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses.gradient_penalty import GradientPenalty
from tfrobust.methods.shared import even_batches, layer_losses, projections, updates
from tfrobust.methods.shared.entrances import Entrances
from tfrobust.methods.shared.whole_models import WholeModels, check_parts, splitting
from tfrobust.models.shared import foreign
from tfrobust.ops import batch_checks, distribution, randomness
from tfrobust.structs import Batch, Context

_MIXED = "; to train on mixed labels, use robust.methods.Mixup or robust.methods.CutMix, which mix the images too"


@keras.saving.register_keras_serializable(package="tfrobust")
class Method(Configured, WholeModels, Entrances, keras.Model):
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
        self.seed = seed
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

    def _make_metrics(self) -> None:
        unknown = sorted(set(self.term_weights or {}) - set(self.terms))
        if unknown:
            raise InputError(
                f"term_weights of {type(self).__name__} names {unknown}; its terms are {list(self.terms)}."
            )
        if self.penalty is not None:
            self.penalty.check(self.terms)
        names = [*self.all_terms, *self.observations]
        if self.losses:
            names.append("regularization")
        self.means = {name: keras.metrics.Mean(name=name) for name in names}

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
        return self.host_views(batch.images, randomness.fold(context.key, "host_views"))

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
    def all_terms(self) -> tuple[str, ...]:
        """All terms: `terms`, then those of the penalty."""
        return (*self.terms, *(self.penalty.weights if self.penalty is not None else ()))

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

    def evaluate_terms(self, views: dict, batch: Batch, context: Context) -> tuple[dict, tf.Tensor | None]:
        """Compute `loss_terms`, check them, cast them to float32, and add the terms of the penalty.

        Args:
            views: the output of `make_views`.
            batch: the batch.
            context: key, step and rows of this step.

        Returns:
            As `loss_terms`.

        Raises:
            ValueError: a term that is missing, not declared, or not of shape [b].
        """

        def evaluate(views):
            values, logits = self.loss_terms(views, batch, context)
            return self._checked_terms(values, batch.images.shape[0]), logits

        if self.penalty is None:
            return evaluate(views)
        names, declared = self.differentiable_views, set(self.terms)

        def terms_alone(views):
            values, logits = evaluate(views)
            observed = {name: value for name, value in values.items() if name not in declared}
            return {name: values[name] for name in self.terms}, (observed, logits)

        penalty = self.penalty.for_terms(self.differentiable_terms)
        values, (observed, logits) = penalty(terms_alone, views, names, self._weight, context.key)
        return {**values, **observed}, logits

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

    # ----------------------------------------------------------------------------------------------- step

    # As `fit` and the training loop call it. AutoGraph would warn about hooks without a body.
    @tf.autograph.experimental.do_not_convert
    def train_step(self, data):
        """Run one update.

        Args:
            data: a `Batch`, or (x, y[, sample_weight]) as Keras passes it.

        Returns:
            The current value of each metric by name.
        """
        batch = self._ready_batch(data)
        batch = batch._replace(images=even_batches.check_step(batch.images))
        if batch.labels is None and self.needs_labels:
            raise InputError(
                f"{type(self).__name__} needs labels: call fit(images, labels). A method without labels sets "
                "needs_labels = False."
            )
        context = self.context(batch)
        views = tf.nest.map_structure(tf.stop_gradient, self.make_views(batch, context))
        weight = batch.extra.get("sample_weight")
        weight = tf.ones(tf.shape(batch.images)[:1]) if weight is None else tf.cast(weight, tf.float32)
        count = distribution.global_sum(tf.reduce_sum(weight))
        # A batch of weight 0 has no gradient; 0 / 0 would make the weights NaN.
        count = tf.where(tf.equal(count, 0.0), tf.ones_like(count), count)

        def differentiate():
            return self._differentiated(views, batch, context, weight, count)

        updated = updates.completes_update(self.optimizer)
        with self.around_update(differentiate):
            values, logits, losses, gradients = differentiate()
            self.apply_gradients(gradients if self.clip_norm is None else updates.clipped_gradients(self, gradients))
        self.step.assign_add(1)
        updates.after(self, updated)
        self.total.update_state(losses, weight)
        for name, mean in self.means.items():
            if name in values:
                mean.update_state(values[name], weight)
        if logits is not None:
            self.compute_metrics(batch.images, _given_labels(data, batch), logits, weight)
        return self.get_metrics_result()

    def _differentiated(
        self, views: dict, batch: Batch, context: Context, weight: tf.Tensor, count: tf.Tensor
    ) -> tuple:
        """Return the terms, the logits, the loss of each example [b] and the gradients; `count` sums the weights."""
        with tf.GradientTape() as tape:
            tape.watch([views[name] for name in self.learned_views])
            with layer_losses.recorded() as passes:
                values, logits = self.evaluate_terms(views, batch, context)
            losses = tf.add_n([self._weight(name) * values[name] for name in self.all_terms])
            # The only reduction of the library. It divides by the global count, so that gradients can be summed over
            # replicas.
            loss = tf.reduce_sum(weight * losses) / count
            regularization = layer_losses.total(self, passes)
            if regularization is not None:
                loss += regularization / distribution.replica()[0]
                losses += regularization
                values["regularization"] = tf.broadcast_to(regularization, tf.shape(losses))
            scaled = self.optimizer.scale_loss(loss)
        learned = {name: views[name] for name in self.learned_views}
        gradients, of_views = tape.gradient(scaled, (self.trainable_variables, learned))
        self.update_views(views, of_views, context)
        # Dense, also those of foreign embedding tables, so that they can be clipped and summed over replicas.
        gradients = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
        return values, logits, losses, gradients

    def context(self, batch: Batch) -> Context:
        """Return the key, the step and the global rows of this step, for the hooks."""
        key = randomness.make_key(self.seed, "train", self.step)
        rows = distribution.global_rows(tf.shape(batch.images)[0])
        return Context(key, self.update_number(), rows)

    def update_number(self) -> tf.Tensor:
        """Return the number of updates so far, int64, of which schedules are functions.

        It is the number of steps, unless the optimizer accumulates the gradients of several batches.
        """
        count = updates.batches_per_update(getattr(self, "optimizer", None))
        return tf.convert_to_tensor(self.step) if count == 1 else tf.convert_to_tensor(self.step) // count

    @tf.autograph.experimental.do_not_convert
    def test_step(self, data):
        """Evaluate the deployed path on clean examples.

        Args:
            data: as in `train_step`, with labels.

        Returns:
            The cross-entropy as `loss`, and the compiled metrics.
        """
        batch = self._ready_batch(data)
        if batch.labels is None:
            raise InputError(f"{type(self).__name__} needs labels for evaluation: call evaluate(images, labels).")
        logits = self(batch.images, training=False)
        values = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, logits)
        weight = batch.extra.get("sample_weight")
        self.total.update_state(values, weight)
        labels = _given_labels(data, batch)
        return {"loss": self.total.result(), **self.compute_metrics(batch.images, labels, logits, weight)}

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Update the compiled metrics and return them without the terms of the training step."""
        results = super().compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        internal = {"loss", *self.means}
        return {name: value for name, value in results.items() if name not in internal}

    @property
    def metrics(self):
        """The total loss, the terms and the compiled metrics, without Keras's own loss tracker."""
        tracked = [self.total, *self.means.values()] if hasattr(self, "means") else []
        identifiers = {id(metric) for metric in tracked}
        return tracked + [m for m in super().metrics if m.name != "loss" and id(m) not in identifiers]

    def as_batch(self, data) -> Batch:
        """Convert a batch as users pass it to a checked `Batch`.

        Args:
            data: a `Batch`, which is returned unchanged, or (x, y[, sample_weight]). x: images [b, h, w, c], clips
                [b, t, h, w, c], tokens [b, length] of any integer type, a table [b, d], or a dict that holds one of
                these under `images`. y: class ids or one-hot rows.

        Returns:
            A `Batch` with pixels as float32 and tokens and labels as int32.

        Raises:
            ValueError: integer pixels, pixels out of the bounds, or labels that are neither ids nor one-hot.
        """
        if isinstance(data, Batch):
            return data
        images, labels, weight = keras.utils.unpack_x_y_sample_weight(data)
        extra = {} if weight is None else {"sample_weight": tf.reshape(weight, [-1])}
        if isinstance(images, dict):
            extra.update({name: value for name, value in images.items() if name != "images"})
        caller = type(self).__name__
        images = batch_checks.examples_of(images, caller)
        rows, images = distribution.global_rows(tf.shape(images)[0]), tf.convert_to_tensor(images)
        if images.shape.rank != 2:
            batch_checks.check_pixels(images, caller, *self.pixel_bounds)
        images = self._known_tokens(images)
        images = tf.cast(images, tf.int32 if images.dtype.is_integer else tf.float32)
        return Batch(images, None if labels is None else batch_checks.class_ids(labels, caller, _MIXED), rows, extra)

    @property
    def pixel_bounds(self) -> tuple[float, float]:
        """(low, high) of the pixels in a batch: those of the threat model, or [0, 1]."""
        # The attribute `adversary` of a subclass may be something else, such as a discriminator.
        threat = getattr(getattr(getattr(self, "adversary", None), "attack", None), "threat", None)
        return (0.0, 1.0) if threat is None else threat.bounds

    def _ready_batch(self, data) -> Batch:
        """Convert the data of a step with `as_batch` and build the method if necessary.

        Raises:
            ValueError: a label that is no class of the head, or a loss that was compiled in addition to the terms.
        """
        if self.loss is not None:
            raise InputError(f"{type(self).__name__} computes its own loss: remove `loss` from compile.")
        batch = self.as_batch(data)
        if not self.built:
            with tf.init_scope():
                self.build(tuple(batch.images.shape))
        if batch.labels is None or isinstance(data, Batch):
            return batch
        return batch._replace(labels=batch_checks.known_classes(batch.labels, self._class_count, type(self).__name__))

    # -------------------------------------------------------------------------------------------- details

    def weight_of(self, name: str):
        """Return the weight of a term: a number, or a schedule of the step."""
        defaults = {**self.default_weights, **(self.penalty.weights if self.penalty is not None else {})}
        return (self.term_weights or {}).get(name, defaults.get(name, 1.0))

    def _weight(self, name: str):
        weight = self.weight_of(name)
        if isinstance(weight, Callable):
            weight = weight(self.update_number())
        return tf.cast(weight, tf.float32)

    def _checked_terms(self, values: dict, count: int | None) -> dict:
        missing = sorted(set(self.terms) - set(values))
        extra = sorted(set(values) - set(self.terms) - set(self.observations))
        if missing or extra:
            raise InputError(f"loss_terms of {type(self).__name__}: missing {missing}, not declared {extra}.")
        checked = {}
        for name, value in values.items():
            if value.shape.rank != 1 or not tf.TensorShape([count]).is_compatible_with(value.shape):
                raise InputError(
                    f"term {name!r} of {type(self).__name__} has shape {value.shape}; a term is one value "
                    f"per example, [{count}]."
                )
            checked[name] = tf.cast(value, tf.float32)
            if name in self.observations:
                checked[name] = tf.stop_gradient(checked[name])
        return checked

    def _known_tokens(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return inputs unchanged; raise ValueError if they are token ids that the encoder does not have."""
        size = foreign.vocabulary_size(self.encoder) if inputs.shape.rank == 2 and inputs.dtype.is_integer else None
        return inputs if size is None else batch_checks.known_tokens(inputs, size, type(self).__name__)


def _given_labels(data, batch: Batch) -> tf.Tensor:
    """Return the labels in the format that was passed in, by which Keras chooses its metrics."""
    return batch.labels if isinstance(data, Batch) else keras.utils.unpack_x_y_sample_weight(data)[1]


FORWARDS = ("separate", "joint")


def checked_forward(forward: str) -> str:
    """Return `forward`; raise ValueError unless it is one of `FORWARDS`."""
    return require_choice(forward, "forward", FORWARDS)
