"""Base class of the methods that train on noisy copies, for a classifier that will be smoothed."""

import tensorflow as tf

from tfrobust.augment.noise import check_deviation, draw_noise
from tfrobust.common.kinds import OF_PIXELS
from tfrobust.common.settings import require_whole
from tfrobust.methods.shared.method import Method, checked_forward
from tfrobust.ops import randomness
from tfrobust.ops.shapes import shape_of
from tfrobust.structs import Batch, Context


class NoisyCopiesMethod(Method):
    """Base of the methods that see each image with several draws of Gaussian noise, and never without.

    The noise is not clipped to [0, 1], as that of certification (`certification.smoothed_certificates`).

    Args:
        encoder, head: as in `Method`.
        sigma: standard deviation of the noise in pixel units, > 0; that of certification.
        copies: noisy copies of each image, >= 1.
        forward: "joint", one pass of all copies, or "separate" passes.
        **kwargs: as in `Method`.

    Raises:
        ValueError: a sigma or number of copies outside its range, or an unknown `forward`.
    """

    kinds = OF_PIXELS

    def __init__(self, encoder, head, *, sigma: float = 0.25, copies: int = 2, forward: str = "joint", **kwargs):
        super().__init__(encoder, head, **kwargs)
        check_deviation(sigma, f"{type(self).__name__}.sigma")
        self.sigma = sigma
        self.copies = require_whole(copies, f"{type(self).__name__}.copies")
        self.forward = checked_forward(forward)

    @property
    def passes_per_step(self):
        """Passes per step: one per copy."""
        return self.copies

    def draw_noises(self, batch: Batch, context: Context) -> list[tf.Tensor]:
        """Return the noise of each copy, float32 in the shape of the images."""
        keys = [randomness.fold(context.key, "copy", number) for number in range(self.copies)]
        return [draw_noise(self.sigma, key, shape_of(batch.images)) for key in keys]

    def make_views(self, batch, context):
        """Return the noisy copies, by number."""
        noises = self.draw_noises(batch, context)
        return {f"copy_{number}": batch.images + noise for number, noise in enumerate(noises)}

    def logits_of_copies(self, views: dict) -> list[tf.Tensor]:
        """Return the logits of all copies."""
        return [logits for _, logits in self.propagate_views(*views.values(), forward=self.forward)]
