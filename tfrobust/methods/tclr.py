"""TCLR: contrast between videos, between the clips of one video, and between a clip and its slices in time."""

import keras
import tensorflow as tf

from tfrobust.augment import clips
from tfrobust.augment.base import draw_uniform
from tfrobust.common.kinds import CLIPS
from tfrobust.common.settings import require_whole
from tfrobust.errors import InputError
from tfrobust.losses.temporal import global_local, local_local, paired_instances
from tfrobust.methods.shared.self_supervised import SelfSupervised, embedding_deviation
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.models.shared.encoder import Encoder
from tfrobust.ops import distribution, randomness
from tfrobust.ops.shapes import batch_size

_SPARSE, _DENSE = ("sparse_1", "sparse_2"), ("dense_1", "dense_2")


@keras.saving.register_keras_serializable(package="tfrobust")
class TCLR(SelfSupervised):
    """Temporal contrastive learning with four losses on one sparse and n dense clips of each video, and a probe.

    The data are videos, float [b, T, h, w, c], T >= n frames. From a uniform start, dense clip j is the j-th part of
    `frames` consecutive frames, and the sparse clip has every n-th frame of all n parts. Both exist in two
    augmentations. Each of the 2 (1 + n) clips has random numbers of its own.

        instance_sparse   NT-Xent between the two sparse clips of each video in the batch
        instance_dense    the mean of NT-Xent over the pairs of the 2n sets of dense clips
        local_local       NT-Xent among the 2n dense clips of one video
        global_local      slice j in time of the features of the sparse clip against dense clip j, in both directions,
                          the mean over the four pairs of augmentations

    L is the sum of these terms and `probe`. The released code has the weights instance_dense = 2 (2n - 1),
    local_local = videos in the batch, and global_local = 4n: set them by `term_weights`.

    Terms: `instance_sparse`, `instance_dense`, `local_local`, `global_local`, `probe`. Observed: `embedding_deviation`.
    Needs: no labels with probe=False.

    Example:
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.R3D18(stem="small", width=8, dilated=True)
        >>> method = robust.methods.TCLR(encoder, robust.models.LinearHead(4), frames=8, parts=2)
        >>> method.terms
        ('instance_sparse', 'instance_dense', 'local_local', 'global_local', 'probe')

    Args:
        encoder: an encoder of clips of this library, for any number of frames, whose last stage has n frames for a clip
            of `frames` frames: `R3D18` or `R2Plus1D18` with dilated=True have a quarter of `frames`.
        head: as in `Method`.
        frames: frames of each clip.
        parts: n, dense clips per video, >= 2.
        temperature: t > 0.
        across_parts: count pairs of different parts of one video in `instance_dense`, as the released code does
            (`local_local` repels them). False counts pairs of the same part in both augmentations alone.
        projection: one layer of 512 units with batch norm and ReLU, then 128 features without bias, with batch norm, by
            default.
        **kwargs: as in `SelfSupervised`. `views` may be a pair, one for each of the two augmentations.

    Raises:
        ValueError: a count out of its range; when built, an encoder whose last stage has another number of frames than
            n, or videos that are too short.

    Source:
        Dave et al. 2022, https://arxiv.org/abs/2101.07974, eqs 1 to 3, and DAVEISHAN/TCLR. Difference: its
        augmentations.
    """

    kinds = (CLIPS.name,)
    host_view_names = (*_SPARSE, *_DENSE)
    differentiable_views = host_view_names
    least_batch = 2

    def __init__(
        self,
        encoder,
        head,
        *,
        frames: int = 16,
        parts: int = 4,
        temperature: float = 0.1,
        across_parts: bool = True,
        projection: keras.layers.Layer | None = None,
        **kwargs,
    ):
        if projection is None:
            projection = ProjectionHead((512,), dim=128, normalization="all", output_bias=False)
        super().__init__(encoder, head, projection=projection, **kwargs)
        self.frames = require_whole(frames, "TCLR.frames")
        self.parts = require_whole(parts, "TCLR.parts")
        self.temperature = temperature
        self.across_parts = across_parts
        if parts < 2 or not temperature > 0:
            raise InputError(f"TCLR.parts is {parts} and TCLR.temperature {temperature}; it needs >= 2 and > 0.")
        if not isinstance(encoder, Encoder):
            raise InputError(f"TCLR needs the stages of an encoder of clips, which {type(encoder).__name__} has not.")

    @property
    def terms(self):
        """The four losses, then `probe` if it is trained."""
        return ("instance_sparse", "instance_dense", "local_local", "global_local", *self.probe_names)

    @property
    def passes_per_step(self):
        """Passes per step: one per clip, as a share of the pass of a video."""
        return 2 * (1 + self.parts)

    def build_parts(self, example_shape, embedding_dim):
        """Check the lengths of videos and slices, and build the projection."""
        super().build_parts(example_shape, embedding_dim)
        length, slices = example_shape[0], self.encoder.last_stage_shape((None, self.frames, *example_shape[1:]))[1]
        if length < self.frames * self.parts:
            raise InputError(
                f"TCLR.frames x TCLR.parts is {self.frames} x {self.parts}, but the videos have {length} frames."
            )
        if slices != self.parts:
            raise InputError(
                f"TCLR compares {self.parts} dense clips with {slices} slices in time of "
                f"{type(self.encoder).__name__}'s last stage for {self.frames} frames: set TCLR.parts = {slices}, or "
                "another TCLR.frames or dilated."
            )

    def host_views(self, images, key):
        """Return the sparse clips [b, frames, h, w, c] and the dense clips [b, n, frames, h, w, c]."""
        room = images.shape[1] - self.frames * self.parts + 1
        share = draw_uniform(randomness.fold(key, "start"), batch_size(images), [1], "start")[:, 0]
        start = tf.cast(share * room, tf.int32)
        sparse = clips.frames_at(images, start, self.frames, self.parts)
        dense = [clips.frames_at(images, start + self.frames * part, self.frames) for part in range(self.parts)]
        makers = self.views if isinstance(self.views, (list, tuple)) else (self.views,) * 2
        views = {}
        for make, one, several in zip(makers, _SPARSE, _DENSE, strict=True):
            views[one] = make(sparse, randomness.fold(key, one))
            keys = [randomness.fold(key, f"{several}, {part}") for part in range(self.parts)]
            views[several] = tf.stack([make(clip, each) for clip, each in zip(dense, keys, strict=True)], axis=1)
        return views

    def loss_terms(self, views, batch, context):
        """Compute the four losses and the probe, and the logits of the first sparse clip."""
        kept = []

        def keep(index, hidden):
            if index == self.encoder.stage_count:
                kept.append(tf.reduce_mean(hidden, axis=[2, 3]))
            return hidden

        dense = [clip for name in _DENSE for clip in tf.unstack(views[name], axis=1)]
        found = self.represent(*(views[name] for name in _SPARSE), *dense, at_stage=keep)
        embeddings, projections = zip(*found, strict=True)
        count = batch_size(embeddings[0])
        slices = tf.concat(kept, axis=0)[: 2 * count]
        projected = self.project(tf.reshape(slices, [-1, slices.shape[-1]]), training=True)
        slices = tf.split(tf.reshape(projected, [-1, self.parts, projected.shape[-1]]), 2)
        halves = [tf.stack(half, axis=1) for half in (projections[2 : 2 + self.parts], projections[2 + self.parts :])]
        values = self._instances(projections, context) | {
            "local_local": local_local(*halves, temperature=self.temperature),
            "global_local": tf.add_n(
                [global_local(one, half, temperature=self.temperature) for one in slices for half in halves]
            )
            / 4,
        }
        probe, logits = self.probe_terms(embeddings[:2], batch)
        return values | probe, logits

    def _instances(self, projections, context) -> dict:
        anchors = tf.stack(projections, axis=1)
        keys, rows = distribution.gather((anchors, context.rows))
        same = context.rows[:, None] == rows[None]
        part = tf.concat([tf.range(self.parts)] * 2, axis=0)
        pairs = ~tf.eye(2 * self.parts, dtype=tf.bool)
        if not self.across_parts:
            pairs &= part[:, None] == part[None]
        common = {"temperature": self.temperature}
        deviation = embedding_deviation(keys[:, 0])
        return {
            "instance_sparse": paired_instances(anchors[:, :2], keys[:, :2], same, **common),
            "instance_dense": paired_instances(anchors[:, 2:], keys[:, 2:], same, pairs=pairs, **common),
            "embedding_deviation": tf.fill(tf.shape(context.rows), deviation),
        }
