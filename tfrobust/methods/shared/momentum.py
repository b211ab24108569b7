"""Base classes of BYOL, MoCo v3 and DINO: a momentum network, whose weights follow those of the trained one."""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.methods.shared import projections
from tfrobust.methods.shared.self_supervised import VIEWS, SelfSupervised, embedding_deviation
from tfrobust.ops import distribution
from tfrobust.structs import Batch, Context


class MomentumMethod(SelfSupervised):
    """Base of the methods whose targets come from a momentum network, through which no gradient flows.

    After each step target <- target + r_t (online - target) for all trained weights of encoder and projection. r_t = 1
    - m_t of the papers. The usual cosine of m from m_0 to 1 over T steps is target_rate=CosineDecay(1 - m_0, T). Moving
    statistics are not averaged: the batch norm of the momentum network normalizes by its own batches. The momentum
    network of a transformer drops no paths (`drop_path`), as in DINO.

    A subclass computes targets by `represent(..., networks=self.target_networks)`, and adds pairs of further layers to
    `followed_parts`.

    Args:
        encoder, head: as in `Method`.
        target_rate: r_t in [0, 1], a number or a schedule of the step.
        forward: "separate" passes of the views, or one "joint" pass, in both networks.
        **kwargs: as in `SelfSupervised`.

    Attributes of a subclass:
        starts_equal: True copies the initial weights to the momentum network, also those that the encoder was given;
            False samples independent ones.
        updates_before_keys: True if the update precedes the momentum network's passes of the same step. This equals an
            update after the previous step by the rate of this step, which is what is done.

    Raises:
        ValueError: a `target_rate` outside [0, 1].
    """

    starts_equal: bool = True
    updates_before_keys: bool = False

    def __init__(self, encoder, head, *, target_rate=0.004, forward: str = "separate", **kwargs):
        super().__init__(encoder, head, forward=forward, **kwargs)
        self.target_rate = target_rate
        self.target_encoder = like(encoder, drop_path=0.0)
        self.target_projection = like(self.projection)
        if isinstance(target_rate, (int, float)) and not 0 <= target_rate <= 1:
            raise InputError(f"{type(self).__name__}.target_rate is {target_rate}; it lies in [0, 1].")

    @property
    def passes_per_step(self):
        """Passes per step: two views through two networks."""
        return 2 * len(VIEWS)

    @property
    def target_networks(self) -> tuple:
        """The momentum encoder and its projection, for `represent`."""
        return self.target_encoder, self.target_projection

    @property
    def followed_parts(self) -> list[tuple]:
        """The pairs (trained layer, layer of the momentum network), built."""
        return [(self.encoder, self.target_encoder), (self.projection, self.target_projection)]

    def build_parts(self, example_shape, embedding_dim):
        """Build the projection and the momentum network, whose variables are frozen."""
        super().build_parts(example_shape, embedding_dim)
        self.build_branch()
        projections.built_shape(self.target_encoder, (None, *example_shape))
        projections.build_projection(self, self.target_projection, embedding_dim)
        self.freeze_copies()
        self.start()

    def freeze_copies(self):
        """Freeze the variables of the momentum network, not its layers: a frozen batch norm uses moving statistics."""
        for _, target in self._weights():
            target.trainable = False

    def build_branch(self) -> None:
        """Build further layers, such as a prediction, once `projected_dim` is known (hook)."""

    def start(self):
        """Copy the weights to the momentum network: all if both start equal, else those that no update will follow."""
        super().start()
        for online, target in self._weights():
            if self.starts_equal or not online.trainable:
                target.assign(online.value)

    def after_update(self):
        """Move the momentum network towards the trained one by r_t."""
        super().after_update()
        # the number has been advanced already; the papers' t counts from 0.
        step = self.update_number() - (0 if self.updates_before_keys else 1)
        rate = self.target_rate(step) if callable(self.target_rate) else self.target_rate
        for online, target in self._weights():
            if online.trainable:
                target.assign_add(tf.cast(rate, target.dtype) * (online.value - target.value))

    def _weights(self) -> list[tuple]:
        """Return the pairs (online, target) of all weights, with moving statistics."""
        return [pair for parts in self.followed_parts for pair in weight_pairs(*parts)]


class MomentumPrediction(MomentumMethod):
    """Base of BYOL and MoCo v3: the prediction of each view is compared with the momentum projection of the other.

    Args:
        encoder, head: as in `Method`.
        prediction: maps projections to projections; by default a layer with the architecture of the projection.
        **kwargs: as in `MomentumMethod`.

    Raises:
        ValueError: when built, a prediction whose output has another size than the projection.
    """

    def __init__(self, encoder, head, *, prediction: keras.layers.Layer | None = None, **kwargs):
        super().__init__(encoder, head, **kwargs)
        self.prediction = prediction or like(self.projection)

    def build_branch(self):
        """Build the prediction."""
        projections.build_prediction(self, self.prediction, self.projected_dim)

    def compare(self, queries: list, key: tuple, context: Context, batch: Batch) -> tuple[tf.Tensor, dict]:
        """Compute the term of one direction (hook).

        Args:
            queries: (embedding, prediction) of the compared view, then of the other view, float [b, e] and [b, d].
            key: (embedding, projection) of the other view from the momentum network, without gradients.
            context: key, step and rows of this step.
            batch: its labels, if there are any, are for logs only.

        Returns:
            The term, float32 [b], and observations of this direction, float32 [b] each.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement compare.")

    def loss_terms(self, views, batch, context):
        """Compute the term of both directions, the probe, the spread of projections, the logits of the first view."""
        images = [views[name] for name in VIEWS]
        embeddings, projected = zip(*self.represent(*images), strict=True)
        keys = tf.nest.map_structure(tf.stop_gradient, self.represent(*images, networks=self.target_networks))
        predictions = [self.prediction(projection, training=True) for projection in projected]
        queries = list(zip(embeddings, predictions, strict=True))
        first, seen = self.compare(queries, keys[1], context, batch)
        second, seen_second = self.compare(queries[::-1], keys[0], context, batch)
        deviation = embedding_deviation(distribution.gather(tf.concat(projected, axis=0)))
        probe, logits = self.probe_terms(embeddings, batch)
        observed = {"embedding_deviation": tf.fill(tf.shape(first), deviation)}
        observed |= {name: (value + seen_second[name]) / 2.0 for name, value in seen.items()}
        return {self.terms[0]: first + second, **probe, **observed}, logits


def weight_pairs(layer: keras.layers.Layer, other: keras.layers.Layer) -> list[tuple]:
    """Return the pairs of weights of two layers of one architecture, without the clocks of dropout."""
    weights, other_weights = (
        [weight for weight in part.weights if "int" not in weight.dtype] for part in (layer, other)
    )
    return list(zip(weights, other_weights, strict=True))


def like(layer: keras.layers.Layer, **changes) -> keras.layers.Layer:
    """Create another layer with weights of its own.

    Args:
        layer: whose configuration is taken.
        **changes: other values of arguments that the layer has; those that it lacks are ignored.
    """
    config = layer.get_config()
    config |= {name: value for name, value in changes.items() if name in config}
    return type(layer).from_config({**config, "name": f"{layer.name}_like"})
