"""What pre-training methods share: two views of each image, a projection, and a probe that watches."""

import keras
import tensorflow as tf

from tfrobust.augment.base import Augmentation
from tfrobust.augment.views import ContrastiveViews
from tfrobust.errors import InputError
from tfrobust.losses import classification
from tfrobust.methods import parts
from tfrobust.methods.base import Method, checked_forward
from tfrobust.models.projection import ProjectionHead
from tfrobust.ops import randomness, similarity
from tfrobust.structs import Batch

VIEWS = ("view_1", "view_2")


class SelfSupervised(Method):
    """Base of the methods that need no labels: views, projection, probe. It trains nothing by itself.

    The two views of an image are made by the input pipeline. The classifier `head` is an online probe: its term
    `probe`, the cross-entropy on embeddings whose gradient is stopped, teaches the head alone, so that the same object
    classifies, is evaluated and exported. Labels serve the probe and the logs, nothing else.

    A subclass turns its views into (embedding, projection) by `represent`, and adds `probe_terms` and
    `embedding_deviation` to what it returns. `projected_dim` is known once it is built.
    """

    host_view_names = VIEWS
    differentiable_views = VIEWS
    observations = ("embedding_deviation",)
    needs_labels = False  # the probe asks for itself

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
        """Args beyond the base's:

        projection: between embedding and loss; dropped after the training. `ProjectionHead()` by default.
        views: what makes a view of an image, drawn anew for each of the two; or one for each. `ContrastiveViews()` by
            default.
        forward: one "joint" pass of all views, or "separate" ones: what batch norm sees.
        probe: False trains without labels; the head then stays as it is.
        """
        super().__init__(encoder, head, **kwargs)
        self.projection = projection or ProjectionHead()
        self.views = views or ContrastiveViews()
        self.forward = checked_forward(forward)
        self.probe = probe
        if isinstance(views, (list, tuple)) and len(views) != len(VIEWS):
            raise InputError(
                f"{type(self).__name__}.views has {len(views)} augmentations; it is one, or one a view: 2."
            )
        if not probe:
            head.trainable = False

    def build_parts(self, image_shape, embedding_dim):
        self.projected_dim = parts.build_projection(self, self.projection, embedding_dim)

    @property
    def passes_per_step(self):
        return len(VIEWS)

    def host_views(self, images, key):
        makers = self.views if isinstance(self.views, (list, tuple)) else (self.views,) * len(VIEWS)
        return {name: make(images, randomness.fold(key, name)) for name, make in zip(VIEWS, makers, strict=True)}

    def make_views(self, batch, context):
        return self.extra_views(batch, context)

    def project(self, embedding: tf.Tensor, training: bool | None = None, branch: int = 0) -> tf.Tensor:
        """The projection [b, d] of embeddings, by one of its batch-norm branches where it has several."""
        return _project(self.projection, embedding, training, branch)

    def represent(
        self, *views: tf.Tensor, branch: int = 0, networks: tuple | None = None
    ) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Training-mode passes of views [b, h, w, c], joint or separate by `forward`.

        Args:
            *views: images, equally many in each.
            branch: of the batch norms.
            networks: another (encoder, projection), such as a momentum network.

        Returns:
            (embedding, projection) of each view.
        """
        encoder, projection = networks or (self.encoder, self.projection)

        def one(images):
            keywords = {"branch": branch} if branch else {}  # a plain Keras model knows no branches
            embedding = encoder(images, training=encoder.trainable, **keywords)
            return embedding, _project(projection, embedding, True, branch)

        if self.forward == "separate":
            return [one(images) for images in views]
        return list(zip(*(tf.split(part, len(views)) for part in one(tf.concat(views, axis=0))), strict=True))

    @property
    def probe_names(self) -> tuple[str, ...]:
        """The names in `probe_terms`, for `terms`."""
        return ("probe",) if self.probe else ()

    @property
    def differentiable_terms(self):
        # A finite difference sees the probe through its stopped gradient, and would teach the encoder the labels.
        return tuple(name for name in self.terms if name not in self.probe_names)

    @property
    def clipped_apart(self):
        # In one norm with the others a probe's gradient would shorten the encoder's, and so teach it the labels.
        return self.head.trainable_variables if self.probe else []

    def probe_terms(self, embeddings: list, batch: Batch) -> tuple[dict, tf.Tensor | None]:
        """({`probe`: [b], the mean over the views}, logits of the first view); ({}, None) where there is no probe."""
        if not self.probe:
            return {}, None
        if batch.labels is None:
            raise InputError(f"{type(self).__name__} has no labels for its probe; probe=False trains without them.")
        stacked = self.head(tf.stop_gradient(tf.concat(embeddings, axis=0)), training=True)
        logits = tf.split(tf.cast(stacked, tf.float32), len(embeddings))
        entropies = [classification.cross_entropy(one, batch.labels) for one in logits]
        return {"probe": tf.add_n(entropies) / len(entropies)}, logits[0]


def _project(projection, embedding, training, branch):
    keywords = {"branch": branch} if getattr(projection, "branched", False) else {}
    return projection(embedding, training=training, **keywords)


def embedding_deviation(embeddings: tf.Tensor) -> tf.Tensor:
    """How far unit embeddings are spread: the mean over features of their standard deviation over the batch.

    About 1 / sqrt(d) where they point everywhere, 0 where they have collapsed into one point.

    Args:
        embeddings: float [b, d], of any length, gathered over the replicas; no gradient flows.

    Returns:
        float32 scalar.

    Source:
        Chen and He 2021 (SimSiam), https://arxiv.org/abs/2011.10566, section 4.1.
    """
    return tf.reduce_mean(tf.math.reduce_std(similarity.normalize(tf.stop_gradient(embeddings)), axis=0))
