"""Heads on an embedding: logits, and projections for contrastive losses. All return float32."""

import keras

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_whole
from tfrobust.models.shared.blocks import build_chain, l2_penalty, run_chain
from tfrobust.models.shared.normalization import BranchedBatchNormalization
from tfrobust.ops import similarity


class _DenseChain(Configured, keras.layers.Layer):
    """Dense layers in sequence, float32 under any dtype policy: logits and similarities overflow 16 bits."""

    normalized = False  # if true, features are divided by their norm first

    def __init__(self, *, name: str | None = None, **kwargs):
        kwargs.setdefault("dtype", "float32")
        super().__init__(name=name, **kwargs)

    def build(self, input_shape):
        """Build the layers."""
        if not self.trainable:  # restored from a config, before there were layers to freeze
            for layer in self.chain:
                layer.trainable = False
        build_chain(self.chain, tuple(input_shape))

    def compute_output_shape(self, input_shape):
        """Return (b, units of the last layer)."""
        *_, units = (layer.units for layer in self.chain if hasattr(layer, "units"))
        return (*tuple(input_shape)[:-1], units)

    def call(self, embedding, training=None):
        """Apply the layers to embeddings, float [b, d]."""
        features = similarity.normalize(embedding) if self.normalized else embedding
        return run_chain(self.chain, features, training=training)


@keras.saving.register_keras_serializable(package="tfrobust")
class LinearHead(_DenseChain):
    """Linear classifier: logits = embedding W + b, in float32.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.layers.LinearHead(10)(tf.ones([2, 64])).shape
        TensorShape([2, 10])

    Args:
        class_count: k >= 2.
        kernel_initializer: name or Keras initializer; "zeros" for a linear probe.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        normalized: divide the embedding by its norm, as the linear probe of Campbell et al. 2020.
        batch_normalized: apply batch normalization without scale to the logits, in place of the bias, as the supervised
            networks of Campbell et al. 2020.

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
            # The head does not know the number of replicas. With one replica synchronization changes nothing.
            norm = BranchedBatchNormalization(scale=False, synchronized=True, dtype=self.dtype_policy)
            self.chain.append(norm)


@keras.saving.register_keras_serializable(package="tfrobust")
class MLPHead(_DenseChain):
    """Classifier with one hidden layer: logits = W2 relu(W1 embedding + b1) + b2, in float32.

    Campbell et al. 2020 fine-tunes this head.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.layers.MLPHead(10, hidden=32)(tf.ones([2, 64])).shape
        TensorShape([2, 10])

    Args:
        class_count: k >= 2.
        hidden: units of the first layer, >= 1.
        kernel_initializer: name or Keras initializer of both layers.
        normalized: divide the embedding by its norm, as the report does.

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
                units, activation=activation, kernel_initializer=_clone(kernel_initializer), dtype=self.dtype_policy
            )
            for units, activation in ((hidden, "relu"), (class_count, None))
        ]


@keras.saving.register_keras_serializable(package="tfrobust")
class LinearProjection(_DenseChain):
    """Linear projection p1(z) = W z, the better one in the head ablation of the ASCL paper.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.layers.LinearProjection(32)(tf.ones([2, 64])).shape
        TensorShape([2, 32])

    Args:
        dim: features of the projection, >= 1.
        use_bias: False as in the paper, True as in the released code.
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
    """Two-layer projection p2(z) = W2 relu(W1 z) of the head ablation of the ASCL paper.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.layers.MLPProjection(hidden=48, dim=32)(tf.ones([2, 64])).shape
        TensorShape([2, 32])

    Args:
        hidden: units of the first layer, >= 1.
        dim: features of the projection, >= 1.
        use_bias: biases in both layers; False as in the paper.
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
                kernel_initializer=_clone(kernel_initializer),
                dtype=self.dtype_policy,
            )
            for units, activation in ((hidden, "relu"), (dim, None))
        ]


def _clone(initializer):
    """Return a separate initializer for one layer: a shared instance would give several layers equal weights."""
    # Keras creates a new instance from a name in each layer.
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer
