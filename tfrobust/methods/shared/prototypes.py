"""Base class of SwAV and DINO: views of two sizes, and their assignments to prototypes."""

import contextlib
import itertools
import threading
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.common.settings import require_least
from tfrobust.errors import InputError
from tfrobust.losses.clustering import swapped_prediction
from tfrobust.methods.shared import freezing, layer_losses, projections
from tfrobust.methods.shared.self_supervised import VIEWS, SelfSupervised, embedding_deviation
from tfrobust.models.heads.prototypes import Prototypes
from tfrobust.models.shared.encoder import Encoder
from tfrobust.ops import assignments, distribution, randomness
from tfrobust.structs import Batch


class PrototypeMethod(SelfSupervised):
    """Base of the methods in which a view predicts to which prototypes the other views are assigned.

    The input pipeline makes two global views, and `local_count` local ones, which may be smaller. The global views
    alone are assigned. Each size has a pass of its own through the encoder, and all views one pass through projection
    and prototypes.

    Args:
        encoder, head: as in `Method`. The encoder must accept both sizes.
        prototypes: the layer after the projection.
        temperature: t of the predictions softmax(s / t), > 0.
        local_views: the augmentation of the local views, such as `ContrastiveViews` with a `size`.
        local_count: local views of each image, >= 0.
        frozen_steps: steps during which the prototypes stay as they are, >= 0; the papers have one epoch.
        forward: "joint": one pass of all views of a size; "separate": one per view, except in the projection.
        **kwargs: as in `SelfSupervised`.

    Raises:
        ValueError: a number out of its range, or only one of `local_views` and `local_count`.
    """

    observations = ("embedding_deviation", "assignment_entropy")

    def __init__(
        self,
        encoder,
        head,
        *,
        prototypes: Prototypes,
        temperature: float = 0.1,
        local_views: Augmentation | None = None,
        local_count: int = 0,
        frozen_steps: int = 0,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        name = type(self).__name__
        self.prototypes = prototypes
        self.temperature = temperature
        self.local_views = local_views
        self.local_count = require_least(local_count, f"{name}.local_count", 0)
        # See `carry`. Each replica runs in a thread of its own.
        self._carried = threading.local()
        self.frozen_steps = require_least(frozen_steps, f"{name}.frozen_steps", 0)
        if not temperature > 0:
            raise InputError(f"{name}.temperature is {temperature}; it must be > 0.")
        if bool(local_count) != (local_views is not None):
            raise InputError(
                f"{name}.local_count is {local_count} and {name}.local_views is {local_views}: set both, such as "
                "local_count=6 and local_views=ContrastiveViews(crop=(0.05, 0.14), size=96), or neither."
            )

    @property
    def host_view_names(self):
        """The two global views, then the local ones."""
        return (*VIEWS, *(f"local_{number + 1}" for number in range(self.local_count)))

    @property
    def passes_per_step(self):
        """Passes per step: one per view, local ones counted as if they were global."""
        return len(self.host_view_names)

    def host_views(self, images, key):
        """Return the global and the local views."""
        local = self.host_view_names[len(VIEWS) :]
        crops = {name: self.local_views(images, randomness.fold(key, name)) for name in local}
        return super().host_views(images, key) | crops

    def build_parts(self, example_shape, embedding_dim):
        """Build projection and prototypes."""
        super().build_parts(example_shape, embedding_dim)
        projections.built_shape(self.prototypes, (None, self.projected_dim))
        if self.local_count:
            self._check_local(self.local_views(tf.zeros((1, *example_shape)), randomness.make_key(0)))

    def represent_views(self, views: list[tf.Tensor], networks: tuple | None = None) -> tuple[list, list]:
        """Run training-mode passes of views of several sizes.

        Args:
            views: images [b, h, w, c], equally many in each view; views of one size are adjacent.
            networks: another (encoder, projection), such as a momentum network.

        Returns:
            The embeddings of the global views, and the projections of all views.
        """
        encoder, projection = networks or (self.encoder, self.projection)
        keyed = enumerate(views) if self.forward == "separate" else ((view.shape[1:], view) for view in views)
        runs = itertools.groupby(keyed, key=lambda pair: pair[0])
        stacks = [tf.concat([view for _, view in run], axis=0) for _, run in runs]
        with _any_size(encoder):
            embeddings = []
            for stack in stacks:
                embeddings.append(encoder(stack, training=encoder.trainable))
                if networks is None:
                    layer_losses.record(encoder)
            stacked = tf.concat(embeddings, axis=0)
        projected = tf.split(projection(stacked, training=True), len(views))
        return tf.split(stacked, len(views))[: len(VIEWS)], projected

    def make_views(self, batch, context):
        """Begin a step, and return its views."""
        self._carried.value = None
        return super().make_views(batch, context)

    def carry(self, compute: Callable) -> None:
        """Keep a tensor from `loss_terms` for `after_update`, so that state changes once per step.

        Args:
            compute: called for the first evaluation of the terms in a step. A penalty by finite differences evaluates
                them again, at other views.
        """
        if getattr(self._carried, "value", None) is None:
            self._carried.value = compute()

    def carried(self) -> tf.Tensor:
        """Return what this step's `carry` kept."""
        return self._carried.value

    def predict_assignments(self, codes: list, scores: list, projected: list, embeddings: list, batch: Batch) -> tuple:
        """Compute the term of assignments and predictions, the probe and the observations.

        Args:
            codes: the assignments of the global views, float [b, k] each.
            scores: the scores of all views, float [b, k] each.
            projected: projections of the global views, float [b, d] each.
            embeddings: of the global views, float [b, e] each.
            batch: holds the labels.

        Returns:
            The output of `loss_terms`.
        """
        term = swapped_prediction(codes, scores, temperature=self.temperature)
        deviation = embedding_deviation(distribution.gather(tf.concat(projected, axis=0)))
        seen = {"embedding_deviation": deviation, "assignment_entropy": assignments.mean_entropy(codes)}
        observed = {name: tf.fill(tf.shape(term), value) for name, value in seen.items()}
        probe, logits = self.probe_terms(embeddings, batch)
        return {self.terms[0]: term, **probe, **observed}, logits

    def apply_gradients(self, gradients: list) -> None:
        """Update the weights, but not the prototypes in the first `frozen_steps` steps."""
        if not self.frozen_steps:
            return super().apply_gradients(gradients)
        if not self.optimizer.built:
            with tf.init_scope():
                self.optimizer.build(self.trainable_variables)
        early = self.update_number() < self.frozen_steps
        with freezing.skipped_updates(self.optimizer, self.prototypes.trainable_variables, early):
            super().apply_gradients(gradients)

    def after_update(self):
        """Scale the prototypes to length 1, if nothing else keeps it."""
        super().after_update()
        if self.prototypes.lengths == "projected":
            self.prototypes.project()

    def _check_local(self, view: tf.Tensor) -> None:
        try:
            with _any_size(self.encoder):
                self.encoder(view, training=False)
        except (ValueError, tf.errors.InvalidArgumentError) as error:
            name, encoder = type(self).__name__, type(self.encoder).__name__
            raise InputError(
                f"{name}.local_views have the shape {tuple(view.shape[1:])}, which {encoder} does not accept: use an "
                "encoder with global pooling, or local views of the size of the images."
            ) from error


def _any_size(encoder: keras.layers.Layer):
    """Return a context in which an encoder of this library accepts images of any size; others decide themselves."""
    return encoder.accepting_any_size() if isinstance(encoder, Encoder) else contextlib.nullcontext()
