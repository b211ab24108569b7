"""The steps of a method: from the batch of a user to the update of the weights, and the evaluation of a batch."""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.methods.shared import even_batches, layer_losses, updates
from tfrobust.methods.shared.mixin import Mixin
from tfrobust.models.shared import foreign
from tfrobust.ops import batch_checks, distribution, randomness
from tfrobust.structs import Batch, Context

_MIXED = "; to train on mixed labels, use robust.methods.Mixup or robust.methods.CutMix, which mix the images too"


class Steps(Mixin):
    """Mixin of `Method`: `train_step` and `test_step`, as `fit` and the training loop call them."""

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
        if not self.trainable_variables:
            raise InputError(f"{type(self).__name__} has nothing to train: encoder and head have trainable=False.")
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
        self._log_radius(context.step)
        self._unobserved = frozenset(self.observations) - values.keys()
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
            losses = tf.add_n([self._weighted(name, values[name]) for name in self.all_terms])
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
        if any(map(self._is_left_out, self.all_terms)):  # variables of these terms alone still have a gradient, of 0
            pairs = zip(gradients, self.trainable_variables, strict=True)
            gradients = [tf.zeros_like(variable) if gradient is None else gradient for gradient, variable in pairs]
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

    def as_batch(self, data) -> Batch:
        """Convert a batch as users pass it to a checked `Batch`.

        Args:
            data: a `Batch`, which is returned unchanged, or (x, y[, sample_weight]). x: images [b, h, w, c], clips
                [b, t, h, w, c], tokens [b, length] of any integer type, a table [b, d], or a dict that holds one of
                these under `images`. y: class ids or one-hot rows.

        Returns:
            A `Batch` with pixels as float32 and tokens and labels as int32.

        Raises:
            ValueError: integer pixels, pixels out of the bounds, or labels that are neither ids nor one-hot; several
                weights of an example; or images whose number of axes is unknown.
        """
        if isinstance(data, Batch):
            return data
        images, labels, weight = keras.utils.unpack_x_y_sample_weight(data)
        caller = type(self).__name__
        extra = {} if weight is None else {"sample_weight": batch_checks.example_weights(weight, caller)}
        if isinstance(images, dict):
            extra.update({name: value for name, value in images.items() if name != "images"})
        images = batch_checks.examples_of(images, caller)
        rows, images = distribution.global_rows(tf.shape(images)[0]), tf.convert_to_tensor(images)
        if images.shape.rank is None:
            raise InputError(
                f"{caller} got images of an unknown number of axes, as from tf.py_function. Set their shape in the "
                "data set: dataset.map(lambda x, y: (tf.ensure_shape(x, [None, height, width, channels]), y))."
            )
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

    def _known_tokens(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return inputs unchanged; raise ValueError if they are token ids that the encoder does not have."""
        size = foreign.vocabulary_size(self.encoder) if inputs.shape.rank == 2 and inputs.dtype.is_integer else None
        return inputs if size is None else batch_checks.known_tokens(inputs, size, type(self).__name__)


def _given_labels(data, batch: Batch) -> tf.Tensor:
    """Return the labels in the format that was passed in, by which Keras chooses its metrics."""
    return batch.labels if isinstance(data, Batch) else keras.utils.unpack_x_y_sample_weight(data)[1]
