"""Patch Gaussian: Gaussian noise in a square at a random place (Lopes et al., 2019)."""

import dataclasses

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.augment.noise import check_deviation, draw_noise
from tfrobust.common.settings import is_whole, require_choice
from tfrobust.errors import InputError
from tfrobust.ops import randomness

CENTRES = ("pixels", "edges")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchGaussian(Augmentation):
    """Gaussian noise inside a square of W x W pixels, clipped at the border of the image.

    clip(x + sigma n, 0, 1) in the rows y - floor(W / 2) .. y + ceil(W / 2) - 1 and the columns likewise, x outside; n ~
    N(0, 1) for each value, (y, x) any pixel with equal probability.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> augmentation = robust.augment.PatchGaussian(patch=3, deviation=0.1)
        >>> draw = {"centre": tf.constant([[0, 4]]), "patch": tf.constant([3]), "noise": tf.fill([1, 8, 8, 1], 0.25)}
        >>> [tf.where(augmentation.apply(tf.zeros([1, 8, 8, 1]), draw)[0, row, :, 0])[:, 0].numpy().tolist()
        ...     for row in range(3)]  # centered on the first row, so that one of the three rows is cut off
        [[3, 4, 5], [3, 4, 5], []]

    Args:
        patch: W in pixels, >= 1; or (smallest, largest), an integer sampled for each image, both ends included. The
            papers' "patch <= 250" is (1, 250). The routine of tensorflow/models never samples its largest: (1, 249).
        deviation: sigma > 0, in units of [0, 1]; or (low, high), sigma ~ U(low, high) sampled for each image. The
            papers leave open whether "sigma = 1.0" with "patch <= 250" is fixed or the largest value: 1.0 or (0, 1).
        probability: probability that an image is changed.
        centres: range of centers of a patch of even width, which has no middle pixel. "pixels": y in 0 .. h - 1 (the
            routine of tensorflow/models), so that the patch extends one pixel further up and left. "edges": y in 0 ..
            h, both borders alike (an unofficial port). A patch of odd width is centered on a pixel in either case.

    Draw:
        noise: float32 [b, h, w, c], sigma n.
        patch: int32 [b], W; 0 leaves an image unchanged.
        centre: int32 [b, 2], row y and column x.

    Raises:
        ValueError: an argument out of its range, or unknown `centres`.

    Source:
        Lopes et al. 2019, https://arxiv.org/abs/1906.02611: patch 25 and sigma 0.1 for CIFAR-10, patch <= 250 and sigma
        1.0 for ImageNet, as quoted in Kim et al. 2021, section 4.3. The authors' repository was not found. Mask and
        clipping are those of tensorflow/models.
    """

    patch: int | tuple[int, int] = 25
    deviation: float | tuple[float, float] = 0.1
    probability: float = 1.0
    centres: str = "pixels"

    def __post_init__(self):
        check_deviation(self.deviation, "PatchGaussian.deviation")
        sizes = self._sizes
        if len(sizes) != 2 or not all(map(is_whole, sizes)) or sizes[0] > sizes[1]:
            raise InputError(
                f"PatchGaussian.patch is {self.patch}; it is a whole number >= 1, or (smallest, largest) of those."
            )
        patch = tuple(map(int, sizes)) if isinstance(self.patch, (list, tuple)) else int(self.patch)
        object.__setattr__(self, "patch", patch)
        if not 0 <= self.probability <= 1:
            raise InputError(f"PatchGaussian.probability is {self.probability}; it must lie in [0, 1].")
        require_choice(self.centres, "PatchGaussian.centres", CENTRES)

    @property
    def _sizes(self) -> tuple:
        return tuple(self.patch) if isinstance(self.patch, (list, tuple)) else (self.patch, self.patch)

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample noise, widths and centers."""
        # Columns: width, row, column, chance of a change.
        uniform = randomness.draw(randomness.uniform(), randomness.fold(key, "patch"), [images_shape[0], 4])
        low, high = self._sizes
        patch = low + tf.cast(uniform[:, 0] * (high - low + 1), tf.int32)
        places = tf.constant(images_shape[1:3], tf.int32)
        if self.centres == "edges":
            places += 1 - patch[:, None] % 2
        centre = tf.cast(uniform[:, 1:3] * tf.cast(places, tf.float32), tf.int32)
        chosen = uniform[:, 3] < self.probability
        noise = draw_noise(self.deviation, key, images_shape)
        return {"noise": noise, "patch": tf.where(chosen, patch, 0), "centre": centre}

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Add the noise inside the patches and clip to [0, 1]."""
        patch, inside = draw["patch"][:, None], []
        for axis in (0, 1):
            centre, pixels = draw["centre"][:, axis, None], tf.range(images.shape[1 + axis])
            inside.append((centre - patch // 2 <= pixels) & (pixels < centre + (patch + 1) // 2))
        mask = inside[0][:, :, None, None] & inside[1][:, None, :, None]
        return tf.where(mask, tf.clip_by_value(images + draw["noise"], 0.0, 1.0), images)
