"""Base class of pre-training methods: two views of each image, a projection, and an online probe."""

from collections.abc import Callable, Collection, Sequence

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.augment.views import ContrastiveViews
from tfrobust.errors import InputError
from tfrobust.losses import classification
from tfrobust.methods.shared import layer_losses, projections
from tfrobust.methods.shared.method import Method, checked_forward
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.ops import randomness, similarity
from tfrobust.structs import Batch

VIEWS = ("view_1", "view_2")


class SelfSupervised(Method):
    """Base of the methods that need no labels: views, projection, probe. It has no loss of its own.

    The input pipeline makes the two views of an image. The classifier `head` is an online probe. Its term `probe` is
    the cross-entropy on embeddings with stopped gradients. It trains the head only, so that the same object classifies,
    is evaluated and exported. Labels are used for the probe and the logs only.

    A subclass names its losses in `own_terms`, turns its views into (embedding, projection) by `represent`, and adds
    `probe_terms` and `embedding_deviation` to its output. `projected_dim` is known after building.

    Args:
        encoder, head: as in `Method`.
        projection: the layer between embedding and loss, discarded after training. `ProjectionHead()` by default.
        views: the augmentation that makes a view, sampled for each of the two views; or a pair, one augmentation per
            view. `ContrastiveViews()` by default.
        forward: one "joint" pass of all views, or "separate" passes, which decides the batch statistics.
        probe: False trains without labels and leaves the head unchanged; another method may train it later.
        **kwargs: as in `Method`.

    Raises:
        ValueError: an unknown `forward`, or not one augmentation per view.
    """

    host_view_names = VIEWS
    differentiable_views = VIEWS
    own_terms: tuple[str, ...] = ()
    observations = ("embedding_deviation",)
    needs_labels = False  # the probe checks for labels itself

    def __init__(
        self,
        encoder,
        head,
        *,
        projection: keras.layers.Layer | None = None,
        views: Augmentation | tuple[Augmentation, Augmentation] | None = None,
        forward: str = "joint",
        probe: bool = True,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.projection = projection or ProjectionHead()
        self.views = views or ContrastiveViews()
        self.forward = checked_forward(forward)
        self.probe = probe
        if isinstance(views, (list, tuple)) and len(views) != len(VIEWS):
            raise InputError(
                f"{type(self).__name__}.views has {len(views)} augmentations; it must be one, or one per view (2)."
            )

    def build_parts(self, example_shape, embedding_dim):
        """Build the projection."""
        self.projected_dim = projections.build_projection(self, self.projection, embedding_dim)

    @property
    def passes_per_step(self):
        """Passes per step: two, one per view."""
        return len(VIEWS)

    @property
    def view_makers(self) -> tuple[Augmentation, Augmentation]:
        """The augmentations of the two views."""
        return tuple(self.views) if isinstance(self.views, (list, tuple)) else (self.views,) * len(VIEWS)

    def host_views(self, images, key):
        """Return the two views."""
        parts = zip(VIEWS, self.view_makers, self.view_sources(images, key), strict=True)
        return {name: make(source, randomness.fold(key, name)) for name, make, source in parts}

    def view_sources(self, images: tf.Tensor, key: tf.Tensor) -> tuple:
        """Return what each view is made of: the images themselves (hook)."""
        return (images,) * len(VIEWS)

    def make_views(self, batch, context):
        """Return the two views from the pipeline."""
        return self.extra_views(batch, context)

    def project(self, embedding: tf.Tensor, training: bool | None = None, branch: int = 0) -> tf.Tensor:
        """Return the projection [b, d] of embeddings.

        Args:
            embedding: float [b, e].
            training: whether batch norm uses the statistics of the batch.
            branch: batch-norm branch, if the projection has several.
        """
        return _project(self.projection, embedding, training, branch)

    def represent(
        self, *views: tf.Tensor, branch: int = 0, networks: tuple | None = None, at_stage=None
    ) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Run training-mode passes of views [b, h, w, c], joint or separate by `forward`.

        Args:
            *views: images, equally many in each view.
            branch: batch-norm branch.
            networks: another (encoder, projection), such as a momentum network.
            at_stage: as in `Encoder`, which then must be one of this library.

        Returns:
            (embedding, projection) of each view.
        """
        encoder, projection = networks or (self.encoder, self.projection)

        def run(images):
            # A plain Keras model has neither.
            keywords = ({"branch": branch} if branch else {}) | ({"at_stage": at_stage} if at_stage else {})
            embedding = encoder(images, training=encoder.trainable, **keywords)
            if networks is None:
                layer_losses.record(encoder)
            return embedding, _project(projection, embedding, True, branch)

        if self.forward == "separate":
            return [run(images) for images in views]
        return list(zip(*(tf.split(part, len(views)) for part in run(tf.concat(views, axis=0))), strict=True))

    @property
    def terms(self):
        """The method's own terms, then `probe` if it is trained."""
        return (*self.own_terms, *self.probe_names)

    @property
    def probe_names(self) -> tuple[str, ...]:
        """The names in `probe_terms`, for `terms`."""
        return ("probe",) if self.probe else ()

    @property
    def differentiable_terms(self):
        """The terms without the probe."""
        # Finite differences ignore the stopped gradient of the probe, and would train the encoder on the labels.
        return tuple(name for name in self.terms if name not in self.probe_names)

    @property
    def clipped_apart(self):
        """The variables of the probe."""
        # In a common norm the probe's gradient would rescale the encoder's, which would then depend on the labels.
        return self.head.trainable_variables if self.probe else []

    def probe_terms(self, embeddings: Sequence, batch: Batch) -> tuple[dict, tf.Tensor | None]:
        """Compute the cross-entropy of the online probe.

        Args:
            embeddings: one float [b, d] per view.
            batch: holds the labels.

        Returns:
            `probe`, float32 [b], the mean over the views, in a dict; and the logits of the first view. ({}, None)
            without a probe.

        Raises:
            ValueError: a batch without labels.
        """
        if not self.probe:
            return {}, None
        if batch.labels is None:
            raise InputError(f"{type(self).__name__} has no labels for its probe; probe=False trains without them.")
        stacked = self.head(tf.stop_gradient(tf.concat(embeddings, axis=0)), training=True)
        logits = tf.split(tf.cast(stacked, tf.float32), len(embeddings))
        entropies = [classification.cross_entropy(view_logits, batch.labels) for view_logits in logits]
        return {"probe": tf.add_n(entropies) / len(entropies)}, logits[0]


def keep_stages(stages: Collection[int], pool: Callable) -> tuple[Callable, list]:
    """Return a function for `at_stage` that keeps what stages return.

    Args:
        stages: their indices, as in `Encoder`.
        pool: hidden state -> the tensor that is kept.

    Returns:
        The function, and the list to which it appends while the encoder runs.
    """
    outputs = []

    def keep(index, hidden):
        if index in stages:
            outputs.append(pool(hidden))
        return hidden

    return keep, outputs


def _project(projection, embedding, training, branch):
    keywords = {"branch": branch} if getattr(projection, "branched", False) else {}
    return projection(embedding, training=training, **keywords)


def embedding_deviation(embeddings: tf.Tensor) -> tf.Tensor:
    """Measure the spread of unit embeddings, to detect collapse.

    It is the mean over features of the standard deviation over the batch: about 1 / sqrt(d) for uniformly distributed
    directions, 0 for embeddings collapsed into one point.

    Args:
        embeddings: float [b, d], of any length, gathered over the replicas; no gradient flows.

    Returns:
        float32 scalar.

    Source:
        Chen and He 2021 (SimSiam), https://arxiv.org/abs/2011.10566, section 4.1.
    """
    return tf.reduce_mean(tf.math.reduce_std(similarity.normalize(tf.stop_gradient(embeddings)), axis=0))
