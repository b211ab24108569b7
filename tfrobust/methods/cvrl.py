"""CVRL: two clips of a video, apart in time, are positives; clips of other videos are negatives."""

import keras

from tfrobust.augment import clips
from tfrobust.augment.augmentation import Augmentation, draw_uniform
from tfrobust.augment.views import ContrastiveViews
from tfrobust.common.kinds import CLIPS
from tfrobust.common.settings import require_choice, require_whole
from tfrobust.methods.shared.self_supervised import VIEWS
from tfrobust.methods.simclr import SimCLR
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.ops import randomness
from tfrobust.ops.shapes import batch_size

_SHARED = {
    "crop": (0.3, 1.0),
    "aspect": (0.5, 2.0),
    "jitter": (0.8, 0.8, 0.8, 0.2),
    "interpolation": "bilinear",
}


@keras.saving.register_keras_serializable(package="tfrobust")
class CVRL(SimCLR):
    """NT-Xent between two clips of each video, and an online linear probe.

    The data are videos, float [b, T, h, w, c]. A view is a clip of `frames` of its frames, `stride` apart, changed by
    `views` in the same way for all frames. The starts of the two clips are d frames apart, and small d are more
    frequent (`tfrobust.augment.clips.two_starts`). A video that is too short for one clip is repeated. The loss, the
    terms and the observations are those of `SimCLR`.

    Example:
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.R2Plus1D18(stem="small", width=8)
        >>> method = robust.methods.CVRL(encoder, robust.models.LinearHead(4), frames=8, stride=1)
        >>> method.kinds, method.scale
        (('clips',), 'sum')

    Args:
        encoder: clips [b, t, h, w, c] -> embedding, for any t. The classifier sees whole clips of the data.
        head: as in `Method`.
        frames: frames of a clip, >= 1.
        stride: distance between them in frames of the video, >= 1.
        gap: "decreasing" or "uniform" probability of the distance of the two clips.
        temperature, scale: as in `SimCLR`; here by default as in the code, whose loss sums both directions.
        views: `ContrastiveViews` of the code by default: the first view is blurred, the second one in ten, and two in
            ten of the second are solarized. A flip may change labels of motion: then set flip=0.
        projection: three layers of 2048 units with batch norm and ReLU, then 128 features, by default.
        **kwargs: as in `SimCLR`.

    Raises:
        ValueError: an unknown `gap`, or a count below 1.

    Source:
        Qian et al. 2021, https://arxiv.org/abs/2008.03800, sections 3.1 to 3.3, and tensorflow/models,
        official/projects/video_ssl. Difference: its crops are sampled and resized as those of `ContrastiveViews` here.
    """

    kinds = (CLIPS.name,)

    def __init__(
        self,
        encoder,
        head,
        *,
        frames: int = 16,
        stride: int = 2,
        gap: str = "decreasing",
        temperature=0.1,
        scale: str = "sum",
        views: Augmentation | tuple[Augmentation, Augmentation] | None = None,
        projection: keras.layers.Layer | None = None,
        **kwargs,
    ):
        if views is None:
            views = ContrastiveViews(blur=1.0, **_SHARED), ContrastiveViews(blur=0.1, solarize=0.2, **_SHARED)
        if projection is None:
            projection = ProjectionHead((2048, 2048, 2048), dim=128, normalization="hidden")
        super().__init__(
            encoder, head, temperature=temperature, scale=scale, views=views, projection=projection, **kwargs
        )
        self.frames = require_whole(frames, "CVRL.frames")
        self.stride = require_whole(stride, "CVRL.stride")
        self.gap = require_choice(gap, "CVRL.gap", clips.GAPS)

    def view_sources(self, images, key):
        """Return a clip of each video for each of the two views."""
        uniform = draw_uniform(randomness.fold(key, "starts"), batch_size(images), [len(VIEWS) + 1], "starts")
        starts = clips.two_starts(uniform, images.shape[1], self.frames, self.stride, self.gap)
        return tuple(clips.frames_at(images, start, self.frames, self.stride) for start in starts)
