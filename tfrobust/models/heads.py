"""What stands on an embedding: the logits, and the projections of contrastive losses. All give float32."""

import keras

from tfrobust.models.blocks import build_chain, l2_penalty, require_whole, run_chain
from tfrobust.models.normalization import BranchedBatchNormalization
from tfrobust.ops import similarity
from tfrobust.ops.configured import Configured


class _DenseChain(Configured, keras.layers.Layer):
    """Dense layers in a row, float32 whatever the policy: logits and similarities overflow 16 bits."""

    normalized = False  # whether the features are divided by their norm first

    def __init__(self, *, name: str | None = None, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(name=name, **kwargs)

    def build(self, input_shape):
        if not self.trainable:  # made so by a config, when it had no layers yet that could have been told
            for layer in self.chain:
                layer.trainable = False
        build_chain(self.chain, tuple(input_shape))

    def compute_output_shape(self, input_shape):
        *_, units = (layer.units for layer in self.chain if hasattr(layer, "units"))
        return (*tuple(input_shape)[:-1], units)

    def call(self, embedding, training=None):
        given = similarity.normalize(embedding) if self.normalized else embedding
        return run_chain(self.chain, given, training=training)


@keras.saving.register_keras_serializable(package="tfrobust")
class LinearHead(_DenseChain):
    """logits = embedding W + b, in float32.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.layers.LinearHead(10)(tf.ones([2, 64])).shape
        TensorShape([2, 10])

    Args:
        class_count: k >= 2.
        kernel_initializer: name or Keras initializer; "zeros" for a linear probe.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        normalized: take the embedding divided by its norm, as the linear probe of report 002.
        batch_normalized: the logits pass a batch normalisation without scale, which brings the bias, as those of report
            002's supervised networks.

    Returns:
        Of `call`: float32 [b, k].

    Raises:
        ValueError: fewer than two classes.

    Source: He-normal as in the ASCL authors' TensorFlow code.
    """

    def __init__(
        self,
        class_count: int,
        *,
        kernel_initializer: str | keras.initializers.Initializer = "he_normal",
        kernel_regularization: float = 0.0,
        normalized: bool = False,
        batch_normalized: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.class_count = require_whole(class_count, "LinearHead.class_count", minimum=2)
        self.normalized = normalized
        self.batch_normalized = batch_normalized
        self.kernel_initializer = kernel_initializer
        self.kernel_regularization = kernel_regularization
        dense = keras.layers.Dense(
            class_count,
            kernel_initializer=kernel_initializer,
            kernel_regularizer=l2_penalty(kernel_regularization),
            use_bias=not batch_normalized,
            dtype=self.dtype_policy,
        )
        self.chain = [dense]
        if batch_normalized:
            # A head is not told how many replicas there are: over one, the same.
            norm = BranchedBatchNormalization(scale=False, synchronized=True, dtype=self.dtype_policy)
            self.chain.append(norm)


@keras.saving.register_keras_serializable(package="tfrobust")
class MLPHead(_DenseChain):
    """logits = W2 relu(W1 embedding + b1) + b2, in float32: the head that report 002 fine-tunes.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.layers.MLPHead(10, hidden=32)(tf.ones([2, 64])).shape
        TensorShape([2, 10])

    Args:
        class_count: k >= 2.
        hidden: units of the first layer, >= 1.
        kernel_initializer: name or Keras initializer of both layers.
        normalized: take the embedding divided by its norm, as the report does.

    Returns:
        Of `call`: float32 [b, k].

    Raises:
        ValueError: fewer than two classes, or no hidden unit.
    """

    def __init__(
        self,
        class_count: int,
        *,
        hidden: int = 512,
        kernel_initializer: str | keras.initializers.Initializer = "he_normal",
        normalized: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.class_count = require_whole(class_count, "MLPHead.class_count", minimum=2)
        self.hidden = require_whole(hidden, "MLPHead.hidden")
        self.kernel_initializer = kernel_initializer
        self.normalized = normalized
        self.chain = [
            keras.layers.Dense(
                units, activation=activation, kernel_initializer=_own(kernel_initializer), dtype=self.dtype_policy
            )
            for units, activation in ((hidden, "relu"), (class_count, None))
        ]


@keras.saving.register_keras_serializable(package="tfrobust")
class LinearProjection(_DenseChain):
    """p1(z) = W z, the better projection of the ASCL paper's head ablation.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.layers.LinearProjection(32)(tf.ones([2, 64])).shape
        TensorShape([2, 32])

    Args:
        dim: features of the projection, >= 1.
        use_bias: False is the paper's, True the released code's.
        kernel_initializer: name or Keras initializer.

    Returns:
        Of `call`: float32 [b, dim].

    Source: Bui et al. 2021 (ASCL), appendix, head (i) and Table 6.
    """

    def __init__(
        self,
        dim: int = 128,
        *,
        use_bias: bool = False,
        kernel_initializer: str | keras.initializers.Initializer = "he_normal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.dim = require_whole(dim, "LinearProjection.dim")
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.chain = [
            keras.layers.Dense(dim, use_bias=use_bias, kernel_initializer=kernel_initializer, dtype=self.dtype_policy)
        ]


@keras.saving.register_keras_serializable(package="tfrobust")
class MLPProjection(_DenseChain):
    """p2(z) = W2 relu(W1 z), the two-layer projection of the ASCL paper's head ablation.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.layers.MLPProjection(hidden=48, dim=32)(tf.ones([2, 64])).shape
        TensorShape([2, 32])

    Args:
        hidden: units of the first layer, >= 1.
        dim: features of the projection, >= 1.
        use_bias: of both layers; False is the paper's.
        kernel_initializer: name or Keras initializer of both layers.

    Returns:
        Of `call`: float32 [b, dim].

    Source: Bui et al. 2021 (ASCL), appendix, head (ii) and Table 6.
    """

    def __init__(
        self,
        hidden: int = 200,
        *,
        dim: int = 128,
        use_bias: bool = False,
        kernel_initializer: str | keras.initializers.Initializer = "he_normal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.hidden = require_whole(hidden, "MLPProjection.hidden")
        self.dim = require_whole(dim, "MLPProjection.dim")
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.chain = [
            keras.layers.Dense(
                units,
                activation=activation,
                use_bias=use_bias,
                kernel_initializer=_own(kernel_initializer),
                dtype=self.dtype_policy,
            )
            for units, activation in ((hidden, "relu"), (dim, None))
        ]


def _own(initializer):
    """An initializer for one layer alone: one instance in several would give them equal draws."""
    # A name becomes a new instance in each layer by itself.
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer
