"""The contract of a training method: three hooks, named per-example terms, one place that reduces."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.losses.gradient_penalty import GradientPenalty
from tfrobust.methods import batches, parts
from tfrobust.methods.trainer import Trainer
from tfrobust.ops import distribution, inputs, randomness
from tfrobust.ops.configured import Configured
from tfrobust.structs import Batch, Context


@keras.saving.register_keras_serializable(package="tfrobust")
class Method(Configured, Trainer, keras.Model):
    """An encoder, a head, and a way to train them.

    A subclass names its `terms`, makes views outside the weight tape (`make_views`) and returns per-example
    values of the terms inside it (`loss_terms`). The base weights, reduces by the global count, differentiates,
    applies and logs. `call` is the deployable path and nothing else: what it returns is what is served.

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

    Attributes of a subclass:
        terms: names of its own trained terms; they are the log names, the gin keys and the report keys.
        observations: names of per-example values that are logged every epoch, never trained.
        default_weights: weight by term where it is not 1.
        host_view_names: what `host_views` returns.
        differentiable_views: the views that a penalty differentiates by.
        least_batch: the smallest global batch that it learns anything from.
        trains_text: whether it makes sense of tokens, int32 [b, length] in place of images; most move pixels.
        needs_labels: whether a batch without labels is refused at once.
    """

    terms: tuple[str, ...] = ()
    observations: tuple[str, ...] = ()
    default_weights: dict[str, float] = {}
    host_view_names: tuple[str, ...] = ()
    differentiable_views: tuple[str, ...] = ("images",)
    least_batch: int = 1
    trains_text: bool = False
    needs_labels: bool = True

    def __init__(
        self,
        encoder: keras.layers.Layer,
        head: keras.layers.Layer,
        *,
        term_weights: dict | None = None,
        penalty: GradientPenalty | None = None,
        clip_norm: float | None = None,
        seed: int = 0,
        name: str | None = None,
        **kwargs,
    ):
        """Builds the parts' owner; variables are made by `build(images_shape)`.

        Args:
            encoder: images [b, h, w, c] -> embedding [b, d]; an encoder of ours or any Keras model.
            head: embedding [b, d] -> logits [b, k].
            term_weights: weight by term name, a number or a schedule of the step; the others keep their
                defaults.
            penalty: of input gradients (`Tikhonov`), as one more term of the loss.
            clip_norm: largest global norm of the gradients, clipped after their reduction over replicas; those of
                `clipped_apart` by a norm of their own.
            seed: where every random draw of the training starts from.
            name: Keras name.
        """
        super().__init__(name=name, **kwargs)
        self.encoder = encoder
        self.head = head
        self.term_weights = term_weights
        self.penalty = penalty
        self.clip_norm = clip_norm
        self.seed = seed
        if clip_norm is not None and clip_norm <= 0:
            raise InputError(f"clip_norm of {type(self).__name__} is {clip_norm}: it must be positive or None.")
        # The clock. `optimizer.iterations` stands still on skipped float16 steps.
        self.step = self.add_weight(
            name="step", shape=(), dtype="int64", initializer="zeros", trainable=False, aggregation="only_first_replica"
        )
        self.total = keras.metrics.Mean(name="loss")
        self.means: dict[str, keras.metrics.Mean] = {}

    # ------------------------------------------------------------------------------------------- building

    def build(self, input_shape=None):
        """Builds every part, once. `input_shape`: (batch or None, h, w, c)."""
        if self.built:
            return
        images_shape = (None, *tuple(input_shape)[1:])
        embedding_dim, self._class_count = parts.build(self, images_shape)
        self.build_parts(images_shape[1:], embedding_dim)
        self._make_metrics()
        self._image_shape = images_shape[1:]
        self.built = True

    def build_parts(self, image_shape: tuple[int, ...], embedding_dim: int) -> None:
        """Hook: builds parts off the deployable path (projector, predictor, target network)."""

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

    def check_ready(self, image_shape: tuple[int, ...], class_count: int) -> None:
        """Hook, before a run opens its folder: ValueError where a part is missing, or not for such examples."""

    def compute_output_shape(self, input_shape):
        return parts.output_shape(self.head, parts.output_shape(self.encoder, input_shape))

    # -------------------------------------------------------------------------------------------- forward

    def call(self, inputs, training=None):
        """Images [b, h, w, c] in [0, 1], or a dict batch that holds them under `images`, to logits [b, k]."""
        images = inputs["images"] if isinstance(inputs, dict) else inputs
        return self.propagate(images, training=training)[1]

    def propagate(self, images: tf.Tensor, *, training: bool | None = True, **keywords) -> tuple[tf.Tensor, tf.Tensor]:
        """One forward pass.

        Args:
            images: float [b, h, w, c].
            training: what batch norm sees.
            **keywords: `branch`, `at_stage` for the encoders that know them.

        Returns:
            Embedding [b, d] and float32 logits [b, k].
        """
        # A frozen encoder runs as it will be served: nothing in it moves, and dropout is off.
        embedding = self.encoder(images, training=training and self.encoder.trainable, **keywords)
        return embedding, tf.cast(self.head(embedding, training=training), tf.float32)

    def propagate_views(self, *views: tf.Tensor, forward: str) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Training-mode passes of several views [b, ...], each back as (embedding, logits).

        Args:
            *views: images, equally many in each.
            forward: "separate": one pass a view, batch norm sees each alone. "joint": one stacked pass.
        """
        if forward == "separate":
            return [self.propagate(view) for view in views]
        stacked = self.propagate(tf.concat(views, axis=0))
        return list(zip(*(tf.split(part, len(views)) for part in stacked), strict=True))

    def embed(self, images: tf.Tensor) -> tf.Tensor:
        """The penultimate features [b, d] of images, in inference mode."""
        return self.encoder(images, training=False)

    # ---------------------------------------------------------------------------------------------- hooks

    def host_views(self, images: tf.Tensor, key: tf.Tensor) -> dict:
        """Hook, run by the input pipeline ahead of the step: further views that need no weights.

        Args:
            images: float32 [b, h, w, c], as the recipe augmented them.
            key: int32 [b, 2], one per example; [2] for a whole batch, where `extra_views` makes them.

        Returns:
            `host_view_names` -> tensors [b, ...]; the pipeline puts them into `batch.extra`.
        """
        return {}

    def extra_views(self, batch: Batch, context: Context) -> dict:
        """The `host_views` of a batch: the pipeline's, or, from a plain `fit` on (x, y), made here."""
        if all(name in batch.extra for name in self.host_view_names):
            return {name: batch.extra[name] for name in self.host_view_names}
        return self.host_views(batch.images, randomness.fold(context.key, "host_views"))

    def make_views(self, batch: Batch, context: Context) -> dict:
        """Hook, outside the weight tape: named views [b, ...]. They come back with gradients stopped."""
        return {"images": batch.images}

    def loss_terms(self, views: dict, batch: Batch, context: Context) -> tuple[dict, tf.Tensor | None]:
        """Hook, inside the weight tape: ({term or observation: [b]}, logits [b, k] of the images or None)."""
        raise NotImplementedError(f"{type(self).__name__} must say its loss_terms.")

    @property
    def all_terms(self) -> tuple[str, ...]:
        """`terms`, and those of the penalty."""
        return (*self.terms, *(self.penalty.weights if self.penalty is not None else ()))

    @property
    def differentiable_terms(self) -> tuple[str, ...]:
        """The terms that a penalty differentiates where it does not name its own."""
        return self.terms

    @property
    def clipped_apart(self) -> list:
        """The variables whose gradients `clip_norm` clips by themselves, so that they do not shorten the others'."""
        return []

    def evaluate_terms(self, views: dict, batch: Batch, context: Context) -> tuple[dict, tf.Tensor | None]:
        """`loss_terms`, checked, float32, with the terms of the penalty beside them."""

        def evaluate(views):
            values, logits = self.loss_terms(views, batch, context)
            return self._checked(values, batch.images.shape[0]), logits

        if self.penalty is None:
            return evaluate(views)
        names, own = self.differentiable_views, set(self.terms)

        def terms_alone(views):
            values, logits = evaluate(views)
            observed = {name: value for name, value in values.items() if name not in own}
            return {name: values[name] for name in self.terms}, (observed, logits)

        penalty = self.penalty.over(self.differentiable_terms)
        values, (observed, logits) = penalty(terms_alone, views, names, self._weight)
        return {**values, **observed}, logits

    def after_update(self) -> None:
        """Hook after the weights moved: momentum encoders, centres, prototypes."""

    @property
    def passes_per_step(self) -> int:
        """Forward and backward passes over the batch in one step, for estimates."""
        adversary = getattr(self, "adversary", None)
        return 1 if adversary is None else adversary.attack.steps + 2

    # ----------------------------------------------------------------------------------------------- step

    def train_step(self, data):
        """One update. `data`: a `Batch`, or Keras's (x, y[, sample_weight])."""
        batch = self._ready_batch(data)
        if batch.labels is None and self.needs_labels:
            raise InputError(
                f"{type(self).__name__} learns from labels: fit(images, labels). A method that needs none sets "
                "needs_labels = False."
            )
        context = self.context(batch)
        views = tf.nest.map_structure(tf.stop_gradient, self.make_views(batch, context))
        weight = batch.extra.get("sample_weight")
        weight = tf.ones(tf.shape(batch.images)[:1]) if weight is None else tf.cast(weight, tf.float32)
        count = distribution.global_sum(tf.reduce_sum(weight))
        # A batch of weight 0 teaches nothing; 0 / 0 would destroy the model.
        count = tf.where(tf.equal(count, 0.0), tf.ones_like(count), count)
        with tf.GradientTape() as tape:
            values, logits = self.evaluate_terms(views, batch, context)
            each = tf.add_n([self._weight(name) * values[name] for name in self.all_terms])
            # The only reduction of the library: by the global count, so that gradients may be summed.
            loss = tf.reduce_sum(weight * each) / count
            penalties = self.losses
            if penalties:
                regularization = tf.add_n([tf.cast(penalty, tf.float32) for penalty in penalties])
                loss += regularization / distribution.replica()[0]
                each += regularization
                values["regularization"] = tf.broadcast_to(regularization, tf.shape(each))
            scaled = self.optimizer.scale_loss(loss)
        self._apply(tape.gradient(scaled, self.trainable_variables))
        self.step.assign_add(1)
        self.after_update()
        self.total.update_state(each, weight)
        for name, mean in self.means.items():
            if name in values:
                mean.update_state(values[name], weight)
        if logits is not None:
            self.compute_metrics(batch.images, batches.given_labels(data, batch), logits, weight)
        return self.get_metrics_result()

    def context(self, batch: Batch) -> Context:
        """Where this step stands, for the hooks."""
        key = randomness.make_key(self.seed, "train", self.step)
        rows = distribution.global_rows(tf.shape(batch.images)[0])
        return Context(key, tf.convert_to_tensor(self.step), rows)

    def test_step(self, data):
        """Clean numbers of the deployable path: cross-entropy as `loss`, and the compiled metrics."""
        batch = self._ready_batch(data)
        if batch.labels is None:
            raise InputError(f"{type(self).__name__} is judged by labels: evaluate(images, labels).")
        logits = self(batch.images, training=False)
        values = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, logits)
        weight = batch.extra.get("sample_weight")
        self.total.update_state(values, weight)
        given = batches.given_labels(data, batch)
        return {"loss": self.total.result(), **self.compute_metrics(batch.images, given, logits, weight)}

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Updates the compiled metrics and returns them alone, without the terms of the training step."""
        results = super().compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        own = {"loss", *self.means}
        return {name: value for name, value in results.items() if name not in own}

    @property
    def metrics(self):
        """The total, the terms and the compiled metrics; Keras's own loss tracker has no loss to track."""
        own = [self.total, *self.means.values()] if hasattr(self, "means") else []
        known = {id(metric) for metric in own}
        return own + [m for m in super().metrics if m.name != "loss" and id(m) not in known]

    def as_batch(self, data) -> Batch:
        """Keras's (x, y[, sample_weight]), checked, or a `Batch` as it is, as a `Batch` with labels int32 [b]."""
        if isinstance(data, Batch):
            return data
        # A subclass may call something else an adversary, such as a discriminator.
        threat = getattr(getattr(getattr(self, "adversary", None), "attack", None), "threat", None)
        return batches.batch_of(data, type(self).__name__, (0.0, 1.0) if threat is None else threat.bounds)

    def _ready_batch(self, data) -> Batch:
        """`as_batch` of a step, the method built; refuses labels of other classes, and a loss beside its own."""
        if self.loss is not None:
            raise InputError(f"{type(self).__name__} has a loss of its own, its terms: leave `loss` out of compile.")
        batch = self.as_batch(data)
        if not self.built:
            with tf.init_scope():
                self.build(tuple(batch.images.shape))
        if batch.labels is None or isinstance(data, Batch):
            return batch
        return batch._replace(labels=inputs.known_classes(batch.labels, self._class_count, type(self).__name__))

    # -------------------------------------------------------------------------------------------- details

    def weight_of(self, name: str):
        """The weight of a term: a number, or a schedule of the step."""
        defaults = {**self.default_weights, **(self.penalty.weights if self.penalty is not None else {})}
        return (self.term_weights or {}).get(name, defaults.get(name, 1.0))

    def _weight(self, name: str):
        weight = self.weight_of(name)
        if isinstance(weight, Callable):
            weight = weight(tf.convert_to_tensor(self.step))
        return tf.cast(weight, tf.float32)

    def _checked(self, values: dict, count: int | None) -> dict:
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

    def _apply(self, gradients: list) -> None:
        if self.clip_norm is not None:
            gradients = self._clipped(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))

    def _clipped(self, gradients: list) -> list:
        replicas, _ = distribution.replica()
        # Keras would clip each replica's share; the norm that counts is the reduced gradient's.
        gradients = [None if g is None else distribution.global_sum(g) for g in gradients]
        scale = self.optimizer.scale_loss(tf.constant(1.0))
        alone = {id(variable) for variable in self.clipped_apart}
        apart = [id(variable) in alone for variable in self.trainable_variables]
        for group in set(apart):
            places = [place for place, own in enumerate(apart) if own == group]
            clipped, _ = tf.clip_by_global_norm([gradients[place] for place in places], self.clip_norm * scale)
            for place, gradient in zip(places, clipped, strict=True):
                gradients[place] = None if gradient is None else gradient / replicas
        return gradients


FORWARDS = ("separate", "joint")


def checked_forward(forward: str) -> str:
    """`forward` itself, if it is one of `FORWARDS`; ValueError otherwise."""
    if forward not in FORWARDS:
        raise InputError(f"forward is {forward!r}; it is one of {list(FORWARDS)}.")
    return forward
