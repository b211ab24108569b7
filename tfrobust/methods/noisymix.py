"""NoisyMix (Erichson et al., 2022)."""

import dataclasses

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.augment.augmix import AugMix
from tfrobust.augment.mixing import FeatureNoise, Mix, Mixing, at_one_stage, mix_rows, require_stages
from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice, require_tuple
from tfrobust.errors import InputError
from tfrobust.losses.consistency import jensen_shannon
from tfrobust.losses.mixed import mixed_cross_entropy
from tfrobust.methods.augmix import AUGMENTED, augmented_views
from tfrobust.methods.shared.method import Method
from tfrobust.ops import randomness
from tfrobust.ops.shapes import batch_size

NOISES = ("own", "shared")
_AUGMIX = AugMix()


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Branches(Configured):
    """Noise of the three branches of NoisyMix: the images and two augmentations of them.

    The defaults are those of the paper. The released code, which probably produced the published tables, has strengths
    (1, 2, 3) and no noise without mixing.

    Example:
        >>> from tfrobust import keras as robust
        >>> released = robust.methods.Branches(strengths=(1.0, 2.0, 3.0), noise_without_mixing=False)
        >>> released.noise
        'own'

    Attributes:
        strengths: factors of the additive level in each branch, three numbers >= 0.
        noise: "own": independent noise in each branch (the code). "shared": one sample of xi for all three, the literal
            formula of the stability loss.
        noise_without_mixing: add noise even if `Mixing.alpha` is 0, as in Table 4 of the paper. In the code the noise
            is part of the mixing.

    Raises:
        ValueError: strengths that are not three numbers >= 0, or an unknown `noise`.

    Source: Erichson et al. 2022, section 3.1; the authors' code.
    """

    strengths: tuple[float, float, float] = (1.0, 1.0, 1.0)
    noise: str = "own"
    noise_without_mixing: bool = True

    def __post_init__(self):
        if not all(strength >= 0 for strength in require_tuple(self.strengths, "Branches.strengths", 3)):
            raise InputError(f"Branches.strengths is {self.strengths}; it must be three numbers >= 0, one per branch.")
        require_choice(self.noise, "Branches.noise", NOISES)


@keras.saving.register_keras_serializable(package="tfrobust")
class NoisyMix(Method):
    """Noisy Feature Mixup, and the divergence between the predictions on images and on two augmentations of them.

    L = ce + 12 jsd. The branches x, x' and x'' (two samples of `augmentation`, computed by the input pipeline) go
    through the network in one stacked pass. At one sampled stage each branch is mixed within itself and noised, as in
    NFM, with the same lambda and partners in all three. ce = lambda CE(y) + (1 - lambda) CE(y') of the branch x; jsd =
    JS of the three predictions on mixed and noised states; 12 is the term weight `jsd`.

    Terms: `ce`, `jsd`; `ce` alone without `consistency`. Needs: labels, an encoder with stages. The training accuracy
    compares predictions on the mixed branch x with y.

    The ablations of Table 4 in gin: `NoisyMix.consistency = False` (no JSD loss), `NoisyMix.augmentation = None`,
    `FeatureNoise.additive = 0` with `.multiplicative = 0`, `Mixing.alpha = 0`. `NoisyMix.stages = (0,)` mixes pixels
    only.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> released = robust.methods.Branches(strengths=(1.0, 2.0, 3.0), noise_without_mixing=False)
        >>> robust.methods.NoisyMix(*parts, branches=released).terms
        ('ce', 'jsd')

    Args:
        encoder, head: as in `Method`.
        augmentation: sampled for each branch but the first; None uses the images in all branches.
        mixing: how weights and partners are sampled.
        noise: additive and multiplicative noise on the mixed features; by default levels 0.5 and 0.5 and sparsity 0.65,
            for pixels in [-1, 1].
        branches: how the noise differs between the branches.
        stages: the stages that may be mixed, with equal probability: 0 is the input, k the output of stage k.
        consistency: False trains a single branch without `jsd`, augmented once unless there is no augmentation.
        **kwargs: as in `Method`.

    Raises:
        ValueError: an augmentation that cannot be called, or stages that the encoder does not have.

    Source:
        Erichson et al. 2022 (https://arxiv.org/abs/2202.01263), eq. 2, and its released code. The paper
        leaves the weight and the noise levels open: 12 and the default of `noise` are those of the code. The code's
        sparsity and random scale are not in the paper: FeatureNoise(scale=None, sparsity=0) leaves them out. Partners
        are permuted inside groups of rows; the authors permute the whole batch.
    """

    default_weights = {"jsd": 12.0}

    def __init__(
        self,
        encoder,
        head,
        *,
        augmentation: Augmentation | None = _AUGMIX,
        mixing: Mixing | None = None,
        noise: FeatureNoise | None = None,
        branches: Branches | None = None,
        stages: tuple[int, ...] = (0, 1, 2, 3),
        consistency: bool = True,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.augmentation = augmentation
        self.mixing = mixing or Mixing()
        self.noise = noise or FeatureNoise(additive=0.5, multiplicative=0.5, sparsity=0.65)
        self.branches = branches or Branches()
        self.stages = require_stages(encoder, stages, "NoisyMix")
        self.consistency = consistency

    @property
    def terms(self):
        """`ce` and, with `consistency`, `jsd`."""
        return ("ce", "jsd") if self.consistency else ("ce",)

    @property
    def host_view_names(self):
        """The augmented views: two with `consistency`, else one; none without augmentation."""
        return () if self.augmentation is None else AUGMENTED if self.consistency else AUGMENTED[:1]

    @property
    def differentiable_views(self):
        """The view whose branch is labeled: the images, or without `consistency` their augmentation."""
        return ("images",) if self.consistency else self.host_view_names or ("images",)

    @property
    def passes_per_step(self):
        """Passes per step: one per branch."""
        return 3 if self.consistency else 1

    def host_views(self, images, key):
        """Return the samples of the augmentation."""
        return augmented_views(self.augmentation, images, key, self.host_view_names)

    def make_views(self, batch, context):
        """Return the images and their augmentations."""
        return {"images": batch.images, **self.extra_views(batch, context)}

    def loss_terms(self, views, batch, context):
        """Compute the mixed `ce` and, with `consistency`, `jsd`, and the logits of the first branch."""
        augmented = [views[name] for name in self.host_view_names]
        if self.consistency:
            parts = [views["images"], *(augmented or [views["images"]] * 2)]
        else:
            parts = augmented or [views["images"]]
        mix = self.mixing.draw(randomness.fold(context.key, "mixing"), batch_size(batch.images))
        _, stacked = self.propagate(tf.concat(parts, axis=0), at_stage=self._at_stage(mix, len(parts), context))
        logits = tf.split(stacked, len(parts))
        partner_labels = tf.gather(batch.labels, mix.partner)
        terms = {"ce": mixed_cross_entropy(logits[0], batch.labels, partner_labels, mix.weight)}
        if self.consistency:
            terms["jsd"] = jensen_shannon(logits)
        return terms, logits[0]

    def _at_stage(self, mix, count, context):
        """Return the function for `at_stage` that mixes and noises stacked hidden states [count * b, ...].

        Each branch is mixed within itself. The stage is sampled. None if nothing is mixed or noised.
        """
        if not self.mixing.alpha and not self.branches.noise_without_mixing:
            return None
        key = randomness.fold(context.key, "noise")
        drawn = 1 if self.branches.noise == "shared" else count
        strengths = tf.constant([(1.0,) * count, self.branches.strengths[:count]])
        scales = tf.transpose(self.noise.scales(key, drawn)) * strengths  # [2, count]
        stacked = _stacked_mix(mix, count)

        def change(hidden):
            rest = hidden.shape[1:]
            # The example axis comes first: noise is sampled for the global batch, of which each replica takes its rows.
            shape = (batch_size(hidden) // count, drawn, *rest)
            noise = self.noise.draw(key, shape, tf.reshape(scales, [2, 1, count, *[1] * len(rest)]))
            by_branch = {
                name: tf.reshape(tf.transpose(value, [1, 0, *range(2, len(shape))]), [-1, *rest])
                for name, value in noise.items()
            }
            return self.noise.apply(mix_rows(hidden, stacked), by_branch)

        return at_one_stage(randomness.fold(context.key, "stage"), self.stages, change)


def _stacked_mix(mix: Mix, count: int) -> Mix:
    """Repeat a mix for `count` stacked branches."""
    rows = batch_size(mix.partner)
    weight = tf.tile(mix.weight, [count]) if mix.weight.shape.rank else mix.weight
    return Mix(weight, tf.concat([mix.partner + branch * rows for branch in range(count)], axis=0))
