"""The random views of contrastive learning, and the color changes that they consist of.

All color functions take and return images float32 [b, h, w, c], c = 1 or 3, in [0, 1]; `amount` is float32 [b]. Codes
that use TensorFlow and codes that use torchvision define contrast and saturation differently.
"""

import dataclasses
import functools
from typing import ClassVar

import keras
import tensorflow as tf

from tfrobust.augment import levels, resampling
from tfrobust.augment.augmentation import Augmentation, draw_uniform
from tfrobust.augment.clips import in_color, in_space
from tfrobust.augment.resized_crop import ATTEMPTS, RandomResizedCrop
from tfrobust.common.kinds import OF_PIXELS
from tfrobust.common.settings import require_choice, require_tuple, require_whole
from tfrobust.errors import InputError

LUMA = (0.2989, 0.5870, 0.1140)
MEAN = (1 / 3, 1 / 3, 1 / 3)
ORDERS = {
    "simclr": ("crop", "flip", "jitter", "grey", "blur", "solarize"),
    "rocl": ("jitter", "grey", "blur", "solarize", "flip", "crop"),
}
_IN_SPACE = ("crop", "flip", "blur")
# Argument -> the step that it is the probability of.
PROBABILITIES = {name: name for name in ("flip", "grey", "blur", "solarize")} | {"jitter_probability": "jitter"}


def brightness(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Multiply images by `amount`."""
    return _clipped(images * _per_image(amount))


def added_brightness(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Add amount - 1, so that an amount of 1 changes nothing."""
    return _clipped(images + (_per_image(amount) - 1.0))


def contrast(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Scale contrast about the mean m of each channel, m + amount (x - m), as `tf.image.adjust_contrast`."""
    mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
    return _clipped(mean + _per_image(amount) * (images - mean))


def contrast_of_gray(images: tf.Tensor, amount: tf.Tensor, weights=LUMA) -> tf.Tensor:
    """Scale contrast about the mean m of the gray image, m + amount (x - m), as torchvision."""
    mean = tf.reduce_mean(to_gray(images, weights)[..., :1], axis=[1, 2], keepdims=True)
    return _clipped(mean + _per_image(amount) * (images - mean))


def saturation(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Multiply S in HSV by `amount`, at most to 1, as `tf.image.adjust_saturation`; gray images are unchanged."""
    if images.shape[-1] == 1:
        return images
    value = tf.reduce_max(images, axis=-1, keepdims=True)
    spread = value - tf.reduce_min(images, axis=-1, keepdims=True)
    # S = spread / value: distances from the largest channel are multiplied until the smallest channel is 0.
    factor = tf.minimum(_per_image(amount), value / tf.maximum(spread, 1e-12))
    return _clipped(value - factor * (value - images))


def saturation_of_gray(images: tf.Tensor, amount: tf.Tensor, weights=LUMA) -> tf.Tensor:
    """Scale saturation about the gray image g, g + amount (x - g), as torchvision; gray images are unchanged."""
    if images.shape[-1] == 1:
        return images
    origin = to_gray(images, weights)
    return _clipped(origin + _per_image(amount) * (images - origin))


def hue(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Add `amount` turns to H in HSV, -1 <= amount <= 1; gray images are unchanged."""
    if images.shape[-1] == 1:
        return images
    angle, saturated, value = tf.split(tf.image.rgb_to_hsv(images), 3, axis=-1)
    turned = tf.math.floormod(angle + _per_image(amount), 1.0)
    return _clipped(tf.image.hsv_to_rgb(tf.concat([turned, saturated, value], axis=-1)))


def to_gray(images: tf.Tensor, weights=LUMA) -> tf.Tensor:
    """Replace each channel by the weighted sum of red, green and blue; gray images are unchanged."""
    if images.shape[-1] == 1:
        return images
    return tf.broadcast_to(tf.reduce_sum(images * tf.constant(weights), axis=-1, keepdims=True), tf.shape(images))


def solarize(images: tf.Tensor) -> tf.Tensor:
    """Invert values from 0.5 on: x becomes 1 - x."""
    return tf.where(images < 0.5, images, 1.0 - images)


def _clipped(images: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(images, 0.0, 1.0)


def _per_image(amount: tf.Tensor) -> tf.Tensor:
    return tf.reshape(amount, [-1, 1, 1, 1])


def _torchvision(weights):
    relative = (contrast_of_gray, saturation_of_gray)
    return brightness, *(functools.partial(change, weights=weights) for change in relative), hue


# Brightness, contrast, saturation, hue, in the order of `jitter`.
CHANGES = {
    "tensorflow": (brightness, contrast, saturation, hue),
    "additive": (added_brightness, contrast, saturation, hue),
    "torchvision": _torchvision(LUMA),
    "mean": _torchvision(MEAN),
}


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ContrastiveViews(Augmentation):
    """Random view of an image: a resized crop, optionally mirrored, with other colors, gray, blurred or solarized.

    All random numbers are independent for each image. A clip [t, h, w, c] has one view: the same change of all frames,
    with contrast about the mean of the clip. For a gray image, brightness, contrast, blur and solarization
    apply; saturation, hue and conversion to gray do not. The settings of the papers, for images of any size:

        SimCLR, CIFAR-10       ContrastiveViews()
        SimCLR, ImageNet       ContrastiveViews(jitter=(0.8, 0.8, 0.8, 0.2), blur=0.5)
        BYOL, first view       ContrastiveViews(jitter=(0.4, 0.4, 0.2, 0.1), blur=1.0, colors="additive")
        BYOL, second view      ContrastiveViews(jitter=(0.4, 0.4, 0.2, 0.1), blur=0.1, solarize=0.2, colors="additive")
        SupCon, CIFAR          ContrastiveViews(crop=(0.2, 1.0), interpolation="bilinear", colors="torchvision")
        RoCL                   ContrastiveViews(order="rocl", interpolation="bilinear", colors="torchvision")
        ACL                    ContrastiveViews(crop=(0.1, 1.0), colors="torchvision")
        SwAV, global views     ContrastiveViews(crop=(0.14, 1.0), jitter=(0.8, 0.8, 0.8, 0.2), blur=0.5,
                               interpolation="bilinear", colors="torchvision"), local ones crop=(0.05, 0.14), size=96
        MoCo v3, DINO          jitter=(0.4, 0.4, 0.2, 0.1), colors="torchvision", and blur and solarize as for BYOL;
                               MoCo v3 interpolation="bilinear"; DINO crop=(0.4, 1.0), local views crop=(0.05, 0.4),
                               blur=0.5, size=96
        CVRL (clips)           as SimCLR on ImageNet, with crop=(0.3, 1.0), aspect=(0.5, 2.0), interpolation="bilinear",
                               and blur and solarize as for BYOL
        Campbell et al. 2020   ContrastiveViews(jitter=(0.8, 0.8, 0.8, 0.2), interpolation="bilinear",
                               colors="torchvision"), and with Tikhonov colors="mean"

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images, key = tf.random.stateless_uniform([4, 32, 32, 3], (0, 1)), tf.constant([0, 1])
        >>> views = robust.augment.ContrastiveViews(crop=(0.2, 1.0))
        >>> first, second = views(images, key), views(images, key + 1)
        >>> first.shape, bool(tf.reduce_all(first == second)), bool(tf.reduce_all(views(images, key) == first))
        (TensorShape([4, 32, 32, 3]), False, True)

    Args:
        crop: smallest and largest share of the area of a crop, 0 < smallest <= largest <= 1; the crop is resized.
        aspect: smallest and largest width / height of a crop, positive.
        flip: probability of mirroring left to right, in [0, 1] as all probabilities below.
        jitter: strengths s of (brightness, contrast, saturation, hue), >= 0 and the last at most 0.5. The first three
            are changed by a factor from U(max(0, 1 - s), 1 + s), the hue by a share of the circle from U(-s, s), in
            random order and clipped to [0, 1] after each.
        jitter_probability: probability of all four together.
        grey: probability of conversion to gray.
        blur: probability of a Gaussian filter of deviation U(0.1, 2) pixels, a tenth of the image wide.
        solarize: probability of inverting values that are at least 0.5.
        order: "simclr": `crop`, `flip`, `jitter`, `grey`, `blur`, `solarize`. "rocl": `jitter`, `grey`, `blur`,
            `solarize`, `flip`, `crop`.
        interpolation: interpolation of the crop, "bicubic" or "bilinear".
        size: height and width of the view in pixels, >= 1; None takes those of the image.
        colors: "tensorflow": contrast about each channel's mean, saturation in HSV. "additive": the same, but
            brightness is added, U(-s, s). "torchvision": contrast and saturation relative to the gray image. "mean":
            the same, but gray is the plain mean of the channels in place of 0.299 red, 0.587 green, 0.114 blue.

    Draw:
        box: int32 [b, 4], top, left, height, width of the crop.
        flip, grey, solarize: bool [b].
        operation: int32 [b, 4], indices into `jitter` in order of application; 4 for none.
        amount: float32 [b, 4], one for each of `jitter`.
        sigma: float32 [b], 0 for no blur.

    Raises:
        ValueError: a setting out of its range; in `apply`, images that are neither gray nor RGB.

    Source:
        Chen et al. 2020 (SimCLR), https://arxiv.org/abs/2002.05709, appendix A, and google-research/simclr; the codes
        of BYOL, SupContrast, RoCL and ACL. Crops are sampled by torchvision's rule (`RandomResizedCrop`). The codes of
        SimCLR and BYOL call TensorFlow's, which samples the ratio uniformly, not its logarithm, and omits crops below a
        tenth of the area.
    """

    crop: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1)
    jitter_probability: float = 0.8
    grey: float = 0.2
    blur: float = 0.0
    solarize: float = 0.0
    order: str = "simclr"
    interpolation: str = "bicubic"
    size: int | None = None
    colors: str = "tensorflow"

    kinds: ClassVar[tuple[str, ...]] = OF_PIXELS

    def __post_init__(self):
        for name in PROBABILITIES:
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"ContrastiveViews.{name} is {getattr(self, name)}; it must lie in [0, 1].")
        for name, choices in (("order", ORDERS), ("interpolation", resampling.INTERPOLATIONS), ("colors", CHANGES)):
            require_choice(getattr(self, name), f"ContrastiveViews.{name}", choices)
        require_tuple(self.jitter, "ContrastiveViews.jitter", 4)
        if min(self.jitter) < 0 or self.jitter[3] > 0.5:
            raise InputError(
                f"ContrastiveViews.jitter is {self.jitter}; it is four strengths >= 0, of brightness, contrast, "
                "saturation and hue, the last at most 0.5."
            )
        if self.size is not None:
            object.__setattr__(self, "size", require_whole(self.size, "ContrastiveViews.size"))
        _ = self._parts

    @property
    def _parts(self) -> RandomResizedCrop:
        try:
            return RandomResizedCrop(scale=self.crop, ratio=self.aspect)
        except ValueError as error:
            text = str(error).replace("RandomResizedCrop.scale", "ContrastiveViews.crop")
            raise InputError(text.replace("RandomResizedCrop.ratio", "ContrastiveViews.aspect")) from None

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample crops, colors and the steps that apply."""
        count, (height, width) = images_shape[0], images_shape[-3:-1]
        chances = draw_uniform(key, count, [5], "chances")
        flip, jitter, grey, blur, solarize = tf.unstack(chances, axis=-1)
        order = tf.argsort(draw_uniform(key, count, [4], "order"), axis=-1)
        strengths = tuple(map(float, self.jitter))
        low = [max(0.0, 1 - strength) for strength in strengths[:3]] + [-strengths[3]]
        high = [1 + strength for strength in strengths[:3]] + [strengths[3]]
        if self.colors == "additive":
            low[0] = 1 - strengths[0]
        share = draw_uniform(key, count, [4], "amount")
        sigma = 0.1 + 1.9 * draw_uniform(key, count, [1], "sigma")[:, 0]
        return {
            "box": self._parts.boxes(draw_uniform(key, count, [ATTEMPTS, 4], "crop"), height, width),
            "flip": flip < self.flip,
            "operation": tf.where((jitter < self.jitter_probability)[:, None], order, 4),
            "amount": tf.constant(low) + share * (tf.constant(high) - tf.constant(low)),
            "grey": grey < self.grey,
            "sigma": tf.where(blur < self.blur, sigma, 0.0),
            "solarize": solarize < self.solarize,
        }

    def shape_after(self, images_shape):
        """Return the shape of the views."""
        side = () if self.size is None else (self.size, self.size)
        return (*images_shape[:-3], *(side or images_shape[-3:-1]), images_shape[-1])

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Apply the steps in order."""
        levels.check_channels(images, "ContrastiveViews")
        weights = MEAN if self.colors == "mean" else LUMA
        steps = {
            "crop": lambda view: resampling.resized_parts(view, draw["box"], self.interpolation, self.size),
            "flip": lambda view: _where(draw["flip"], view[:, :, ::-1], view),
            "jitter": lambda view: self._jittered(view, draw),
            "grey": lambda view: _where(draw["grey"], to_gray(view, weights), view),
            "blur": lambda view: resampling.blur(view, draw["sigma"]),
            "solarize": lambda view: _where(draw["solarize"], solarize(view), view),
        }
        # Skip steps of probability 0.
        never = {step for name, step in PROBABILITIES.items() if getattr(self, name) == 0}
        for name in ORDERS[self.order]:
            if name not in never:
                images = (in_space if name in _IN_SPACE else in_color)(steps[name], images)
        return images

    def _jittered(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        changes = CHANGES[self.colors]
        amount = tf.concat(
            [draw["amount"], tf.zeros_like(draw["sigma"])[:, None]], axis=1
        )  # the last column is for no operation
        for number in range(len(changes)):
            operation = draw["operation"][:, number]
            images = levels.operate(images, operation, tf.gather(amount, operation, batch_dims=1), changes)
        return images


def _where(chosen: tf.Tensor, changed: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    return tf.where(chosen[:, None, None, None], changed, images)
