"""Multi-layer heads of self-supervised methods: projections of embeddings, and predictions of projections."""

import keras

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice, require_whole
from tfrobust.errors import InputError
from tfrobust.models.shared.blocks import build_chain, run_chain
from tfrobust.models.shared.normalization import BranchedBatchNormalization

NORMALIZATIONS = ("none", "hidden", "all", "standardized")
ACTIVATIONS = ("relu", "gelu")


@keras.saving.register_keras_serializable(package="tfrobust")
class ProjectionHead(Configured, keras.layers.Layer):
    """Dense layers with ReLU or GELU between them and optional batch normalization, float32 under any dtype policy.

    p = W_L a_(L-1), a_l = activation( norm( W_l a_(l-1) ) ), a_0 the embedding. The heads of the papers:

        SimCLR, the paper (2 layers)          ProjectionHead()
        SimCLR, second release (3 layers)     ProjectionHead((None, None), normalization="all", use_bias=False,
                                              output_bias=False, kernel_initializer=RandomNormal(stddev=0.01))
        SupCon                                ProjectionHead()
        RoCL                                  ProjectionHead((2048,))
        ACL, but for the last norm's offset   ProjectionHead((None, None), dim=512, normalization="all",
                                              use_bias=False, output_bias=False, branches=2)
        BYOL, projection and prediction       ProjectionHead((4096,), dim=256, normalization="hidden",
                                              output_bias=False)
        MoCo v3, ResNet, projection           ProjectionHead((4096,), dim=256, normalization="standardized",
                                              use_bias=False, output_bias=False)
        MoCo v3, ResNet, prediction           ProjectionHead((4096,), dim=256, normalization="hidden",
                                              use_bias=False, output_bias=False)
        MoCo v3, ViT                          ProjectionHead((4096, 4096), dim=256, normalization="standardized",
                                              use_bias=False, output_bias=False), the prediction with (4096,)
        SwAV                                  ProjectionHead((2048,), normalization="hidden")
        DINO, ViT                             ProjectionHead((2048, 2048), dim=256, activation="gelu",
                                              kernel_initializer=TruncatedNormal(stddev=0.02))

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> head = robust.layers.ProjectionHead((None, 32), dim=16, normalization="hidden")
        >>> head(tf.ones([2, 64])).shape, [layer.units for layer in head.dense]
        (TensorShape([2, 16]), [64, 32, 16])

    Args:
        hidden: units of the layers before the last, each >= 1; None is as many as the embedding has features. () is a
            single linear layer.
        dim: features of the projection, >= 1.
        normalization: "none"; "hidden": after each layer but the last; "all": after the last one too, there without an
            offset, as in SimCLR's second release; "standardized": the same, after the last one also without a scale.
        use_bias: biases of the layers before the last.
        output_bias: bias of the last layer.
        kernel_initializer: name or Keras initializer of all layers.
        activation: "relu" or the exact "gelu".
        branches: sets of batch-norm variables, >= 1; `call` uses the one given by `branch`.
        synchronized: batch statistics over all replicas; None lets the method that builds the layer decide, which sets
            it if there are several replicas, or if its encoder's batch norm is synchronized.

    Returns:
        Of `call(embedding [b, d], training=, branch=0)`: float32 [b, dim], not normalized to length 1; the losses do
        that.

    Raises:
        ValueError: widths below 1, an unknown normalization or activation, or several branches without normalization.

    Source:
        Chen et al. 2020 (SimCLR), https://arxiv.org/abs/2002.05709, section 2.1; google-research/simclr,
        tf2/model.py; the codes of the other papers.
    """

    def __init__(
        self,
        hidden: tuple[int | None, ...] = (None,),
        *,
        dim: int = 128,
        normalization: str = "none",
        use_bias: bool = True,
        output_bias: bool = True,
        kernel_initializer: str | keras.initializers.Initializer = "he_normal",
        activation: str = "relu",
        branches: int = 1,
        synchronized: bool | None = None,
        name: str | None = None,
        **kwargs,
    ):
        kwargs.setdefault("dtype", "float32")
        super().__init__(name=name, **kwargs)
        for width in hidden:
            require_whole(1 if width is None else width, "each entry of ProjectionHead.hidden")
        self.hidden = tuple(hidden)
        self.dim = require_whole(dim, "ProjectionHead.dim")
        self.normalization = require_choice(normalization, "ProjectionHead.normalization", NORMALIZATIONS)
        self.use_bias = use_bias
        self.output_bias = output_bias
        self.kernel_initializer = kernel_initializer
        self.activation = require_choice(activation, "ProjectionHead.activation", ACTIVATIONS)
        self.branches = require_whole(branches, "ProjectionHead.branches")
        self.synchronized = synchronized
        if branches > 1 and normalization == "none":
            raise InputError(
                f"ProjectionHead.branches is {branches}, but without a normalization all would be the same."
            )

    # `run_chain` passes the branch to layers with this attribute.
    branched = True

    def build(self, input_shape):
        """Create and build the layers."""
        features = int(tuple(input_shape)[-1])
        widths = [*(features if width is None else width for width in self.hidden), self.dim]
        last = len(widths) - 1
        chain = []
        for number, units in enumerate(widths):
            chain.append(self._dense(units, self.use_bias if number < last else self.output_bias))
            if self.normalization in ("all", "standardized") or (self.normalization == "hidden" and number < last):
                style = {"synchronized": bool(self.synchronized), "dtype": self.dtype_policy}
                scale = number < last or self.normalization == "all"
                chain.append(BranchedBatchNormalization(self.branches, center=number < last, scale=scale, **style))
            if number < last:
                chain.append(keras.layers.Activation(self.activation, dtype=self.dtype_policy))
        for layer in chain:  # `trainable` may have been set before there were layers
            layer.trainable = self.trainable
        self.chain = chain
        build_chain(self.chain, tuple(input_shape))

    def compute_output_shape(self, input_shape):
        """Return (b, dim)."""
        return (*tuple(input_shape)[:-1], self.dim)

    def call(self, embedding, *, training=None, branch=0):
        """Apply the layers."""
        return run_chain(self.chain, embedding, training=training, branch=branch)

    @property
    def dense(self) -> list:
        """The dense layers in order; empty before `build`."""
        return [layer for layer in getattr(self, "chain", []) if isinstance(layer, keras.layers.Dense)]

    def _dense(self, units, use_bias):
        # A shared instance would give several layers equal weights.
        initializer = keras.initializers.get(self.kernel_initializer).clone()
        return keras.layers.Dense(units, use_bias=use_bias, kernel_initializer=initializer, dtype=self.dtype_policy)
