"""TCLR: contrast between videos, between the clips of one video, and between a clip and its slices in time."""

import keras
import tensorflow as tf

from tfrobust.augment import clips
from tfrobust.augment.augmentation import draw_uniform
from tfrobust.common.kinds import CLIPS
from tfrobust.common.settings import require_whole
from tfrobust.errors import InputError
from tfrobust.losses.temporal import global_local, local_local, paired_instances
from tfrobust.methods.shared.self_supervised import SelfSupervised, embedding_deviation, keep_stages
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
    local_local = videos in the batch, and global_local = 4n: set them by `term_weights`. By default all clips of
    a batch pass the encoder together, so that batch norm uses their joint statistics; the released code has a pass, and
    statistics, for each set of clips (forward="separate").

    Terms: the four above and `probe`. Observed: `embedding_deviation`. Needs: no labels with probe=False.

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
        projection: 512 units with batch norm and ReLU, then 128 without bias, with batch norm, by default.
        **kwargs: as in `SelfSupervised`. `views` may be a pair, one for each of the two augmentations.

    Raises:
        ValueError: a count out of its range; when built, videos that are too short, or not n frames in the last stage.

    Source: Dave et al. 2022, https://arxiv.org/abs/2101.07974, eqs 1 to 3; DAVEISHAN/TCLR has other augmentations.
    """

    kinds = (CLIPS.name,)
    own_terms = ("instance_sparse", "instance_dense", "local_local", "global_local")
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
        projection = projection or ProjectionHead((512,), dim=128, normalization="all", output_bias=False)
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
    def passes_per_step(self):
        """Passes per step: one per clip, as a share of the pass of a video."""
        return 2 * (1 + self.parts)

    def build_parts(self, example_shape, embedding_dim):
        """Check the lengths of videos and slices, and build the projection."""
        super().build_parts(example_shape, embedding_dim)
        length, slices = example_shape[0], self.encoder.last_stage_shape((None, self.frames, *example_shape[1:]))[1]
        sizes = f"TCLR.frames x TCLR.parts is {self.frames} x {self.parts}, but"
        if length < self.frames * self.parts:
            raise InputError(f"{sizes} the videos have {length} frames.")
        if slices != self.parts:
            change = f"set TCLR.parts = {slices}, or another TCLR.frames or dilated"
            raise InputError(f"{sizes} the last stage of the encoder has {slices} slices in time: {change}.")

    def host_views(self, images, key):
        """Return the sparse clips [b, frames, h, w, c] and the dense clips [b, n, frames, h, w, c]."""
        shares = draw_uniform(randomness.fold(key, "start"), batch_size(images), [1], "start")[:, 0]
        sparse, dense = clips.sparse_and_dense(images, shares, self.frames, self.parts)
        views = {}
        for make, sparse_name, dense_name in zip(self.view_makers, _SPARSE, _DENSE, strict=True):
            views[sparse_name] = make(sparse, randomness.fold(key, sparse_name))
            keys = [randomness.fold(key, f"{dense_name}, {part}") for part in range(self.parts)]
            views[dense_name] = tf.stack(
                [make(clip, clip_key) for clip, clip_key in zip(dense, keys, strict=True)], axis=1
            )
        return views

    def loss_terms(self, views, batch, context):
        """Compute the four losses and the probe, and the logits of the first sparse clip."""
        keep, pooled = keep_stages([self.encoder.stage_count], lambda hidden: tf.reduce_mean(hidden, axis=[2, 3]))
        dense = [clip for name in _DENSE for clip in tf.unstack(views[name], axis=1)]
        passed = self.represent(*map(views.get, _SPARSE), *dense, at_stage=keep)
        embeddings, projections = zip(*passed, strict=True)
        slices = tf.concat(pooled, axis=0)[: 2 * batch_size(embeddings[0])]  # of the sparse clips, [2 b, n, e]
        projected = self.project(tf.reshape(slices, [-1, slices.shape[-1]]), training=True)
        slices = tf.split(tf.reshape(projected, [-1, self.parts, projected.shape[-1]]), 2)
        vectors = tf.stack(projections, axis=1)
        halves = tf.split(vectors[:, 2:], 2, axis=1)
        across = [
            global_local(long_clip, half, temperature=self.temperature) for long_clip in slices for half in halves
        ]
        terms = {
            "local_local": local_local(*halves, temperature=self.temperature),
            "global_local": tf.add_n(across) / len(across),
        }
        probe, logits = self.probe_terms(embeddings[:2], batch)
        return self._instances(vectors, context) | terms | probe, logits

    def _instances(self, vectors, context) -> dict:
        """Compare the sparse and the dense clips [b, 2 + 2n, d] with those of the videos of all replicas."""
        keys, rows = distribution.gather((vectors, context.rows))
        same_video = context.rows[:, None] == rows[None]
        one_part = tf.roll(tf.eye(2 * self.parts), self.parts, axis=1) > 0  # in the other augmentation
        dense = {"pairs": None if self.across_parts else one_part, "temperature": self.temperature}
        return {
            "instance_sparse": paired_instances(vectors[:, :2], keys[:, :2], same_video, temperature=self.temperature),
            "instance_dense": paired_instances(vectors[:, 2:], keys[:, 2:], same_video, **dense),
            "embedding_deviation": tf.fill(tf.shape(context.rows), embedding_deviation(keys[:, 0])),
        }
