"""BYOL: predict the momentum network's projection of one view from the projection of the other view."""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.methods.shared import projections
from tfrobust.methods.shared.self_supervised import VIEWS, SelfSupervised, embedding_deviation
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.ops import distribution, similarity


@keras.saving.register_keras_serializable(package="tfrobust")
class BYOL(SelfSupervised):
    """Bootstrap your own latent: regression onto a momentum network, without negatives.

    L = regression + probe; regression = |q(z_1) - z'_2|^2 + |q(z_2) - z'_1|^2 with all four vectors normalized to
    length 1. z are the projections of the online network, q is the prediction, z' are the projections of the target
    network, through which no gradient flows. After each update target <- target + r_t (online - target). The batch norm
    of the target network uses the statistics of its own batch, as that of the online network does.

    r_t = 1 - tau_t of the paper. Its cosine from tau_0 = 0.996 to 1 over T steps is
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

    Args:
        encoder, head: as in `Method`.
        projection: 4096 units, batch norm, ReLU, 256 units without bias by default, as in the paper.
        prediction: maps projections to projections; by default a layer with the architecture of the projection.
        target_rate: r_t in [0, 1], a number or a schedule of the step.
        forward: "separate" passes of the two views, or one "joint" pass, in both networks.
        **kwargs: as in `SelfSupervised`.

    Raises:
        ValueError: a `target_rate` outside [0, 1]; when built, a prediction whose output has another size than the
            projection.

    Source:
        Grill et al. 2020, https://arxiv.org/abs/2006.07733, eqs 1 and 2 and section 3.3;
        google-deepmind/deepmind-research, byol. As in that code, both networks have independent initial weights and
        each view has its own pass. Difference: its probe sees the first view only, here it sees both.
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
        """`regression`, then `probe` if it is trained."""
        return ("regression", *self.probe_names)

    @property
    def passes_per_step(self):
        """Passes per step: two views through two networks."""
        return 2 * len(VIEWS)

    def build_parts(self, example_shape, embedding_dim):
        """Build projection, prediction and target network, and freeze the variables of the target network."""
        super().build_parts(example_shape, embedding_dim)
        features = projections.build_projection(self, self.prediction, self.projected_dim)
        if features != self.projected_dim:
            raise InputError(
                f"BYOL.prediction has {features} output features; the projection has {self.projected_dim}. "
                "They must be equal."
            )
        projections.built_shape(self.target_encoder, (None, *example_shape))
        projections.build_projection(self, self.target_projection, embedding_dim)
        for _, variable in self._followers():
            # Freeze variables, not layers: a batch norm that is not trainable would use its moving statistics.
            variable.trainable = False

    def loss_terms(self, views, batch, context):
        """Compute the regression loss, the probe, the spread of the projections, and the logits of the first view."""
        images = [views[name] for name in VIEWS]
        embeddings, projections = zip(*self.represent(*images), strict=True)
        networks = (self.target_encoder, self.target_projection)
        targets = [tf.stop_gradient(projection) for _, projection in self.represent(*images, networks=networks)]
        predictions = [self.prediction(projection, training=True) for projection in projections]
        regression = squared_distance(predictions[0], targets[1]) + squared_distance(predictions[1], targets[0])
        deviation = embedding_deviation(distribution.gather(tf.concat(projections, axis=0)))
        probe, logits = self.probe_terms(embeddings, batch)
        observed = {"embedding_deviation": tf.fill(tf.shape(regression), deviation)}
        return {"regression": regression, **probe, **observed}, logits

    def after_update(self):
        """Move the target network towards the online network by r_t."""
        # `step` has been advanced already; the paper's t counts from 0.
        step = tf.convert_to_tensor(self.step) - 1
        rate = self.target_rate(step) if callable(self.target_rate) else self.target_rate
        for online, target in self._followers():
            target.assign_add(tf.cast(rate, target.dtype) * (online.value - target.value))

    def _followers(self) -> list[tuple]:
        """Return the pairs (online, target) of averaged variables.

        They are the trainable variables of the online network. Moving statistics are not averaged.
        """
        online = [*self.encoder.weights, *self.projection.weights]
        target = [*self.target_encoder.weights, *self.target_projection.weights]
        return [pair for pair in zip(online, target, strict=True) if pair[0].trainable]


def squared_distance(predictions: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Compute |a / |a| - b / |b||^2 of each pair of rows.

    Args:
        predictions: a, float [b, d].
        targets: b, float [b, d].

    Returns:
        float32 [b] in [0, 4].
    """
    gap = similarity.normalize(predictions) - similarity.normalize(targets)
    return tf.reduce_sum(tf.square(gap), axis=-1)


def _like(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Create another layer of the same configuration, with weights of its own."""
    config = layer.get_config()
    return type(layer).from_config({**config, "name": f"{layer.name}_like"})
