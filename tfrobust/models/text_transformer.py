"""A transformer encoder for sentences of token ids."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice, require_whole
from tfrobust.errors import InputError
from tfrobust.models.shared.attention import attend
from tfrobust.models.shared.blocks import build_chain, run_chain
from tfrobust.models.shared.dropout import CountedDropout
from tfrobust.ops import removal

POOLINGS = ("average", "class")
POSITIONS = ("learned", "sinusoidal", "none")
NORMALIZATIONS = ("before", "behind")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerStyle(Configured):
    """Settings in which transformers differ and that papers often omit.

    Example:
        >>> from tfrobust import keras as robust
        >>> original = robust.models.TransformerStyle(positions="sinusoidal", normalization="behind")
        >>> robust.models.TextTransformer(1000, 32, style=original).dim
        64

    Args:
        positions: added to the word vectors: "learned" vectors, the "sinusoidal" ones of Vaswani et al., or "none".
        normalization: "before" each sublayer, x + f(norm(x)), with one more after the last sublayer (trains without a
            warm-up); or "behind" it, norm(x + f(x)), as in Vaswani et al.
        activation: name of a Keras activation, between the two matrices of a feed-forward sublayer.
        dropout: share of the entries dropped from the word vectors and from the output of each sublayer, in [0, 1).

    Raises:
        ValueError: an unknown choice, or a dropout outside [0, 1).
    """

    positions: str = "learned"
    normalization: str = "before"
    activation: str = "relu"
    dropout: float = 0.1

    def __post_init__(self):
        require_choice(self.positions, "TransformerStyle.positions", POSITIONS)
        require_choice(self.normalization, "TransformerStyle.normalization", NORMALIZATIONS)
        if not 0 <= self.dropout < 1:
            raise InputError(f"TransformerStyle.dropout is {self.dropout}; it lies in [0, 1).")

    def dropouts(self, dtype=None) -> list:
        """Return a chain of one unbuilt dropout layer, or an empty one if the rate is 0."""
        return [CountedDropout(self.dropout, dtype=dtype)] if self.dropout else []


@keras.saving.register_keras_serializable(package="tfrobust")
class TextTransformer(Configured, keras.Model):
    """Transformer from token ids to an embedding: word vectors, attention and feed-forward layers, a pooled vector.

    Padding (id 0) is masked: no token attends to it, it is not pooled, and more padding changes nothing. A sentence of
    padding alone has the embedding 0 (with `pooling="class"` that of the class vector).

    The encoder has no stages and no branches: methods that mix hidden states or need several batch norms refuse it.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.TextTransformer(1000, 32)
        >>> encoder(tf.constant([[12, 5, 7, 0], [3, 0, 0, 0]])).shape
        TensorShape([2, 64])

    Args:
        vocabulary_size: ids are smaller than this, >= 2.
        length: tokens of the longest sentence, >= 1.
        width: features of a token, and of the embedding; a multiple of `heads`.
        depth: layers, >= 1.
        heads: attention heads.
        inner: features between the two matrices of a feed-forward sublayer.
        pooling: "average" of the tokens' vectors, or the vector of an additional "class" token at the front.
        style: positions, normalization, activation, dropout; default `TransformerStyle()`.

    Raises:
        ValueError: sizes that are no integers or do not fit; in a call: tokens that are not integer [b, l], l <=
            length.

    Source:
        Vaswani et al. 2017, without biases in the attention. Kim et al. 2021, section 4.1, has 3 layers, 8 heads and
        256 inner features, and leaves the rest open: width, pooling and the style.
    """

    def __init__(
        self,
        vocabulary_size: int,
        length: int,
        *,
        width: int = 64,
        depth: int = 3,
        heads: int = 8,
        inner: int = 256,
        pooling: str = "average",
        style: TransformerStyle | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, autocast=False, **kwargs)
        self.vocabulary_size = require_whole(vocabulary_size, "TextTransformer.vocabulary_size", 2)
        self.length = require_whole(length, "TextTransformer.length")
        self.width = require_whole(width, "TextTransformer.width")
        self.depth = require_whole(depth, "TextTransformer.depth")
        self.heads = require_whole(heads, "TextTransformer.heads")
        self.inner = require_whole(inner, "TextTransformer.inner")
        self.pooling = require_choice(pooling, "TextTransformer.pooling", POOLINGS)
        self.style = style or TransformerStyle()
        if width % heads:
            raise InputError(f"TextTransformer.width is {width}; it must be a multiple of its {heads} heads.")
        self.dim = width
        policy = self.dtype_policy
        self.embedding = TokenEmbedding(
            vocabulary_size, length, width, with_class=pooling == "class", style=self.style, dtype=policy
        )
        self.blocks = [TransformerBlock(heads, inner, style=self.style, dtype=policy) for _ in range(depth)]
        # With "behind", every sublayer already ends with a normalization.
        self.normalization = [_normalization(policy)] if self.style.normalization == "before" else []

    @property
    def input_dtype(self) -> str:
        """The dtype of tokens, which Keras uses when it traces a saved model."""
        return "int32"

    def build(self, input_shape):
        """Build the layers."""
        if self.built:
            return
        self._check(tuple(input_shape))
        hidden = build_chain([self.embedding], tuple(input_shape))
        build_chain([*self.blocks, *self.normalization], hidden)
        if not self.trainable:  # restored from a config, before there were layers to freeze
            for layer in (self.embedding, *self.blocks, *self.normalization):
                layer.trainable = False

    def compute_output_shape(self, input_shape):
        """Return (b, dim)."""
        return (tuple(input_shape)[0], self.dim)

    def call(self, tokens: tf.Tensor, *, training: bool | None = None) -> tf.Tensor:
        """Compute the embedding of a batch.

        Args:
            tokens: integer [b, l], l <= length; 0 is padding.
            training: whether dropout is active.

        Returns:
            [b, dim] in the compute dtype of the policy.

        Raises:
            ValueError: tokens that are not integer [b, l], l <= length.
        """
        if not tokens.dtype.is_integer:
            raise InputError(f"{self.name} needs integer token ids, got {tokens.dtype.name}.")
        self._check(tuple(tokens.shape))
        tokens = tf.cast(tokens, tf.int32)
        hidden, present = self.embedding(tokens, training=training), removal.is_token(tokens)
        if self.pooling == "class":
            present = tf.pad(present, [[0, 0], [1, 0]], constant_values=True)
        for block in self.blocks:
            hidden = block(hidden, present=present, training=training)
        for layer in self.normalization:
            hidden = layer(hidden)
        if self.pooling == "class":
            return hidden[:, 0]
        weight = tf.cast(present, hidden.dtype)[..., None]
        return tf.math.divide_no_nan(tf.reduce_sum(weight * hidden, axis=1), tf.reduce_sum(weight, axis=1))

    def _check(self, shape: tuple) -> None:
        if len(shape) != 2 or (shape[1] is not None and not 0 < shape[1] <= self.length):
            raise InputError(
                f"{self.name} takes tokens [b, l] with at most {self.length} places, got the shape {shape}."
            )


@keras.saving.register_keras_serializable(package="tfrobust")
class TokenEmbedding(Configured, keras.layers.Layer):
    """Sum of a token vector and a position vector, then dropout.

    The token vectors are initialized with variance 1 / width and multiplied by sqrt(width), as in Vaswani et al. The
    vector of padding is 0.

    Args:
        vocabulary_size, length, width: as in `TextTransformer`.
        with_class: add a class vector, the same for all sentences, at the front.
        style: only positions and dropout apply here.
    """

    def __init__(
        self,
        vocabulary_size: int,
        length: int,
        width: int,
        *,
        with_class: bool = False,
        style: TransformerStyle | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.vocabulary_size = vocabulary_size
        self.length = length
        self.width = width
        self.with_class = with_class
        self.style = style or TransformerStyle()
        self.dropout = self.style.dropouts(self.dtype_policy)

    def build(self, input_shape):
        """Create the vectors."""
        initializer = keras.initializers.RandomNormal(stddev=self.width**-0.5)
        self.words = self._vectors("words", self.vocabulary_size, initializer)
        if self.style.positions == "learned":
            self.places = self._vectors("places", self.length, keras.initializers.RandomNormal(stddev=0.02))
        if self.with_class:
            self.front = self._vectors("front", 1, initializer)
        build_chain(self.dropout, self.compute_output_shape(input_shape))

    def _vectors(self, name: str, count: int, initializer):
        return self.add_weight(name=name, shape=(count, self.width), initializer=initializer)

    def compute_output_shape(self, input_shape):
        """Return (b, l, width), with one more place for a class vector."""
        count, length = tuple(input_shape)
        return (count, length and length + self.with_class, self.width)

    def call(self, tokens, *, training=None):
        """Return the vectors [b, l, width] of tokens, integer [b, l]."""
        scale = self.width**0.5
        # The product makes padding 0. It also makes the gradient of the table dense, so that it can be clipped and
        # summed over replicas.
        words = tf.convert_to_tensor(self.words) * (scale * np.sign(np.arange(self.vocabulary_size))[:, None])
        hidden = tf.cast(tf.gather(words, tokens), self.compute_dtype)
        if self.style.positions != "none":
            places = self.places if self.style.positions == "learned" else sinusoids(self.length, self.width)
            hidden += tf.cast(places, hidden.dtype)[
                : tf.shape(tokens)[1] if tokens.shape[1] is None else tokens.shape[1]
            ]
        if self.with_class:
            front = tf.cast(self.front, hidden.dtype) * scale
            hidden = tf.concat([tf.zeros_like(hidden[:, :1]) + front, hidden], axis=1)
        return run_chain(self.dropout, hidden, training=training)


def sinusoids(length: int, width: int) -> np.ndarray:
    """Return position vectors: sin(p / 10000^(2i / width)) in feature 2i, the cosine in feature 2i + 1.

    Args:
        length: number of positions.
        width: features.

    Returns:
        float32 [length, width].

    Source: Vaswani et al. 2017, section 3.5.
    """
    angles = np.arange(length)[:, None] / 10000 ** (2 * (np.arange(width) // 2) / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles)).astype(np.float32)


@keras.saving.register_keras_serializable(package="tfrobust")
class SelfAttention(Configured, keras.layers.Layer):
    """Self-attention: the sum over heads of softmax(Q K^T / sqrt(d)) V W, d = width / heads.

    The shapes of its gradients are static when a step is traced. Keras's own layer multiplies by broadcasting, and the
    shapes of its gradients are unknown then.

    Args:
        heads: attention heads; they divide the width.
    """

    def __init__(self, heads: int, *, name: str | None = None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.heads = heads

    def build(self, input_shape):
        """Create the four kernels."""
        width = tuple(input_shape)[-1]
        head_width = width // self.heads
        limit = (3 / width) ** 0.5  # Glorot's for [width, width]; Keras would derive another from the shapes below
        self.query, self.key, self.value, self.out = (
            self.add_weight(
                name=f"{name}_kernel", shape=shape, initializer=keras.initializers.RandomUniform(-limit, limit)
            )
            for name, shape in (
                *((name, (width, self.heads, head_width)) for name in ("query", "key", "value")),
                ("out", (self.heads, head_width, width)),
            )
        )

    def compute_output_shape(self, input_shape):
        """Return the input shape."""
        return tuple(input_shape)

    def call(self, hidden, *, present):
        """Apply self-attention.

        Args:
            hidden: float [b, l, width].
            present: bool [b, l], true for tokens, false for padding, which is not attended to.

        Returns:
            float [b, l, width].
        """
        kernels = [tf.convert_to_tensor(kernel) for kernel in (self.query, self.key, self.value, self.out)]
        query, key, value = (tf.einsum("bld,dhe->bhle", hidden, kernel) for kernel in kernels[:3])
        return tf.einsum("bhle,hed->bld", attend(query, key, value, present), kernels[3])


@keras.saving.register_keras_serializable(package="tfrobust")
class TransformerBlock(Configured, keras.layers.Layer):
    """Self-attention and a feed-forward network, each with a residual connection.

    Args:
        heads, inner, style: as in `TextTransformer`.
    """

    def __init__(
        self, heads: int, inner: int, *, style: TransformerStyle | None = None, name: str | None = None, **kwargs
    ):
        super().__init__(name=name, **kwargs)
        self.heads = heads
        self.inner = inner
        self.style = style or TransformerStyle()

    def build(self, input_shape):
        """Create and build the sublayers."""
        shape, policy = tuple(input_shape), self.dtype_policy
        width = shape[-1]
        self.attention = SelfAttention(self.heads, dtype=policy)
        self.attention.build(shape)
        self.feed_forward = [
            keras.layers.Dense(self.inner, activation=self.style.activation, dtype=policy),
            keras.layers.Dense(width, dtype=policy),
        ]
        build_chain(self.feed_forward, shape)
        self.normalizations = [_normalization(policy) for _ in range(2)]
        self.dropouts = [self.style.dropouts(policy) for _ in range(2)]
        for chain in (self.normalizations, *self.dropouts):
            build_chain(chain, shape)

    def compute_output_shape(self, input_shape):
        """Return the input shape."""
        return tuple(input_shape)

    def call(self, hidden, *, present, training=None):
        """Apply the block.

        Args:
            hidden: float [b, l, width].
            present: bool [b, l], true for tokens, false for padding, which is not attended to.
            training: whether dropout is active.

        Returns:
            float [b, l, width].
        """

        def attend(x):
            return self.attention(x, present=present)

        def feed_forward(x):
            return run_chain(self.feed_forward, x)

        before = self.style.normalization == "before"
        for sublayer, normalize, drop in zip((attend, feed_forward), self.normalizations, self.dropouts, strict=True):
            added = run_chain(drop, sublayer(normalize(hidden) if before else hidden), training=training)
            hidden = hidden + added if before else normalize(hidden + added)
        return hidden


def _normalization(policy) -> keras.layers.Layer:
    return keras.layers.LayerNormalization(epsilon=1e-6, dtype=policy)
