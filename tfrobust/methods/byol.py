"""BYOL: the prediction of one view's projection must meet a slow copy's projection of the other view."""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.methods import parts
from tfrobust.methods.self_supervised import VIEWS, SelfSupervised, embedding_deviation
from tfrobust.models.projection import ProjectionHead
from tfrobust.ops import distribution, similarity


@keras.saving.register_keras_serializable(package="tfrobust")
class BYOL(SelfSupervised):
    """Bootstrap your own latent: regression onto a momentum network, without negatives.

    L = regression + probe; regression = |q(z_1) - z'_2|^2 + |q(z_2) - z'_1|^2 with all four on the unit sphere:
    z the projections of the online network, q the prediction, z' the projections of the target network, of which no
    gradient flows. After each update target <- target + r_t (online - target); its batch norm uses the statistics of
    its own batch, as the online network's does.

    r_t = 1 - tau_t of the paper: for its cosine from tau_0 = 0.996 to 1 over T steps,
    target_rate=keras.optimizers.schedules.CosineDecay(0.004, T).

    Terms: `regression`, `probe`. Observed: `embedding_deviation`. Needs: no labels with probe=False.

    Example:
        >>> import keras
        >>> from tfrobust import keras as robust
        >>> head = robust.layers.ProjectionHead((64,), dim=16, normalization="hidden", output_bias=False)
        >>> rate = keras.optimizers.schedules.CosineDecay(0.004, 1000)
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> method = robust.methods.BYOL(*parts, projection=head, target_rate=rate)
        >>> method.terms, method.prediction.hidden  # the prediction is like the projection where none is given
        (('regression', 'probe'), (64,))

    Source:
        Grill et al. 2020, https://arxiv.org/abs/2006.07733, eqs 1 and 2 and section 3.3; google-deepmind/
        deepmind-research, byol: both networks start from draws of their own, each view passes alone, the probe sees
        the first view (here it sees both).
    """

    def __init__(
        self,
        encoder,
        head,
        *,
        projection: keras.layers.Layer | None = None,
        prediction: keras.layers.Layer | None = None,
        target_rate=0.004,
        forward: str = "separate",
        **kwargs,
    ):
        """Args beyond the base's:

        projection: 4096, batch norm, ReLU, 256 without bias by default, as in the paper.
        prediction: from projections to projections; by default a copy of the projection's architecture.
        target_rate: r_t in [0, 1], a number or a schedule of the step.
        forward: "separate" passes of the two views, or one "joint" pass, in both networks.
        """
        if projection is None:
            projection = ProjectionHead((4096,), dim=256, normalization="hidden", output_bias=False)
        super().__init__(encoder, head, projection=projection, forward=forward, **kwargs)
        self.prediction = prediction or _like(projection)
        self.target_rate = target_rate
        self.target_encoder = _like(encoder)
        self.target_projection = _like(projection)
        if isinstance(target_rate, (int, float)) and not 0 <= target_rate <= 1:
            raise InputError(f"BYOL.target_rate is {target_rate}; it lies in [0, 1].")

    @property
    def terms(self):
        return ("regression", *self.probe_names)

    @property
    def passes_per_step(self):
        return 2 * len(VIEWS)

    def build_parts(self, image_shape, embedding_dim):
        super().build_parts(image_shape, embedding_dim)
        answers = parts.build_projection(self, self.prediction, self.projected_dim)
        if answers != self.projected_dim:
            raise InputError(f"BYOL.prediction gives {answers} features for a projection of {self.projected_dim}.")
        parts.built_shape(self.target_encoder, (None, *image_shape))
        parts.build_projection(self, self.target_projection, embedding_dim)
        for _, variable in self._followers():
            # The variables, not the layers: batch norm that is not trainable would use its moving statistics.
            variable.trainable = False

    def loss_terms(self, views, batch, context):
        images = [views[name] for name in VIEWS]
        embeddings, projections = zip(*self.represent(*images), strict=True)
        targets = self._targets(images)
        predictions = [self.prediction(projection, training=True) for projection in projections]
        regression = squared_distance(predictions[0], targets[1]) + squared_distance(predictions[1], targets[0])
        deviation = embedding_deviation(distribution.gather(tf.concat(projections, axis=0)))
        probe, logits = self.probe_terms(embeddings, batch)
        observed = {"embedding_deviation": tf.fill(tf.shape(regression), deviation)}
        return {"regression": regression, **probe, **observed}, logits

    def after_update(self):
        # `step` has been advanced already; the paper's t counts from 0.
        step = tf.convert_to_tensor(self.step) - 1
        rate = self.target_rate(step) if callable(self.target_rate) else self.target_rate
        for online, target in self._followers():
            target.assign_add(tf.cast(rate, target.dtype) * (online.value - target.value))

    def _targets(self, images: list) -> list:
        """The target network's projections [b, d] of each view, stopped."""
        networks = (self.target_encoder, self.target_projection)
        return [tf.stop_gradient(projection) for _, projection in self.represent(*images, networks=networks)]

    def _followers(self) -> list[tuple]:
        """(online, target) of what is averaged: what the online network learns. Moving statistics are no part of it."""
        online = [*self.encoder.weights, *self.projection.weights]
        target = [*self.target_encoder.weights, *self.target_projection.weights]
        return [pair for pair in zip(online, target, strict=True) if pair[0].trainable]


def squared_distance(predictions: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """|a / |a| - b / |b||^2 of each pair of rows, float [b, d] -> float32 [b] in [0, 4]."""
    gap = similarity.normalize(predictions) - similarity.normalize(targets)
    return tf.reduce_sum(tf.square(gap), axis=-1)


def _like(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Another layer of the same configuration, with weights of its own."""
    config = layer.get_config()
    return type(layer).from_config({**config, "name": f"{layer.name}_like"})
