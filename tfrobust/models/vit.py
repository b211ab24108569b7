"""The vision transformer."""

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice, require_whole
from tfrobust.errors import InputError
from tfrobust.models.shared.attention import attend
from tfrobust.models.shared.blocks import build_chain, run_chain
from tfrobust.models.shared.dropout import DropPath
from tfrobust.models.shared.encoder import Encoder
from tfrobust.models.shared.positions import patch_sinusoids, resizing_matrix

POOLINGS = {"class": 1, "class_and_average": 2, "last_four_classes": 4}  # and their features in multiples of the width
POSITIONS = ("learned", "sinusoidal")
EPSILON = 1e-6  # of layer normalization, in all published networks


@keras.saving.register_keras_serializable(package="tfrobust")
class ViT(Encoder):
    """Vision transformer: patches become tokens, and the embedding is the vector of an additional class token.

    A stage is one block, so K = `depth`; hidden states are tokens [b, 1 + n, width], the class token first. Each block
    is x + attention(norm(x)), then x + mlp(norm(x)), with an exact GELU between 4 `width` hidden features.

    | network | width | depth | heads |
    |---|---|---|---|
    | ViT-Ti (DeiT) | 192 | 12 | 3 |
    | ViT-S (DeiT, DINO) | 384 | 12 | 6 |
    | ViT-S (MoCo v3) | 384 | 12 | 12 |
    | ViT-B | 768 | 12 | 12 |

    KerasHub's ViT has all blocks in one layer. No hidden state between blocks can be reached there, which mixing of
    hidden states, losses of layers and several published classifiers need.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.ViT(2, width=16, depth=3, heads=2)
        >>> encoder(tf.ones([2, 8, 8, 1])).shape, encoder.stage_count
        (TensorShape([2, 16]), 3)

    Args:
        patch_size: side of the square patches in pixels; it divides the sides of the images.
        width: features of a token, a multiple of `heads`, and of 4 for sinusoidal positions.
        depth: blocks, >= 1.
        heads: attention heads. Weights do not show their number: with a wrong one they load and give wrong outputs.
        positions: "learned" vectors, or the fixed "sinusoidal" ones of MoCo v3.
        grid: side of the square table of positions, in patches. For images of another size the table is resized, as in
            DINO. None takes the rows and columns of the images for which the encoder is built.
        drop_path: share of the examples for which the last block's two paths are dropped in training, in [0, 1). It
            grows linearly from 0 in the first block.
        pooling: the embedding, made of tokens after the final normalization. "class" is the class token.
            "last_four_classes" are the class tokens of the last four blocks, one after the other. "class_and_average"
            has the features of the class token and of the patches' average by turns, as DINO's classifier of ViT-B.
        frozen_patches: do not train the projection of the patches, as in MoCo v3.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: sizes that are no integers or do not fit, an unknown choice, a rate outside [0, 1), or fewer than
            four blocks for their class tokens; when built: images whose sides are no multiples of `patch_size`.

    Source: Dosovitskiy et al. 2021; without dropout as in Touvron et al. 2021 (DeiT), Caron et al. 2021 (DINO) and Chen
    et al. 2021 (MoCo v3). Kernels start as in MoCo v3.
    """

    def __init__(
        self,
        patch_size: int = 16,
        *,
        heads: int,
        width: int = 384,
        depth: int = 12,
        positions: str = "learned",
        grid: int | None = None,
        drop_path: float = 0.0,
        pooling: str = "class",
        frozen_patches: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.patch_size = require_whole(patch_size, "ViT.patch_size")
        self.width = require_whole(width, "ViT.width")
        self.depth = require_whole(depth, "ViT.depth")
        self.heads = require_whole(heads, "ViT.heads")
        self.positions = require_choice(positions, "ViT.positions", POSITIONS)
        self.grid = None if grid is None else require_whole(grid, "ViT.grid")
        self.drop_path = drop_path
        self.pooling = require_choice(pooling, "ViT.pooling", tuple(POOLINGS))
        self.frozen_patches = frozen_patches
        if width % heads:
            raise InputError(f"ViT.width is {width}; it must be a multiple of its {heads} heads.")
        if positions == "sinusoidal" and width % 4:
            raise InputError(f"ViT.width is {width}; sinusoidal positions need a multiple of 4.")
        if not 0 <= drop_path < 1:
            raise InputError(f"ViT.drop_path is {drop_path}; it lies in [0, 1).")
        if pooling == "last_four_classes" and depth < 4:
            raise InputError(f"ViT.pooling is {pooling!r}, but ViT.depth is {depth}: set another pooling.")
        policy = self.dtype_policy
        self.tokens = PatchTokens(
            patch_size, width, positions=positions, grid=grid, frozen=frozen_patches, dtype=policy, name="tokens"
        )
        rates = np.linspace(0, drop_path, depth).tolist() if depth > 1 else [drop_path]
        blocks = [ViTBlock(heads, drop_path=rate, dtype=policy) for rate in rates]
        stages: list[list[keras.Layer]] = [[self.tokens, blocks[0]], *([block] for block in blocks[1:])]
        neck = [_normalization(policy), ClassToken(with_average=pooling == "class_and_average", dtype=policy)]
        self.compose(stages, neck, dim=POOLINGS[pooling] * width, minimum_size=patch_size)

    def call(self, images, *, training=None, branch=0, at_stage=None):
        """Compute the embedding of a batch; arguments, result and errors are those of `Encoder.call`."""
        if self.pooling != "last_four_classes":
            return super().call(images, training=training, branch=branch, at_stage=at_stage)
        classes = []

        def keep(index, hidden):
            hidden = hidden if at_stage is None else at_stage(index, hidden)
            if self.depth - 4 < index < self.depth and hidden is not None:
                classes.append(run_chain(self.neck, tf.cast(hidden, self.compute_dtype)))
            return hidden

        last = super().call(images, training=training, branch=branch, at_stage=keep)
        return tf.concat([*classes, last], axis=-1)


@keras.saving.register_keras_serializable(package="tfrobust")
class PatchTokens(Configured, keras.layers.Layer):
    """Projection of patches to tokens, after a class token; position vectors are added to all of them.

    Args:
        patch_size, width, positions, grid: as in `ViT`.
        frozen: do not train the projection.
    """

    def __init__(
        self,
        patch_size: int,
        width: int,
        *,
        positions: str = "learned",
        grid: int | None = None,
        frozen: bool = False,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.patch_size = patch_size
        self.width = width
        self.positions = positions
        self.grid = grid
        self.frozen = frozen

    def build(self, input_shape):
        """Create projection, class token and positions."""
        grid = (self.grid, self.grid) if self.grid else self._grid(tuple(input_shape))
        if None in grid:
            raise InputError("ViT.grid is None, and the size of the images is unknown: set one of them.")
        self.table_grid = grid
        patch = (self.patch_size, self.patch_size, tuple(input_shape)[-1])
        limit = (6 / (np.prod(patch) + self.width)) ** 0.5
        uniform, normal = keras.initializers.RandomUniform(-limit, limit), keras.initializers.RandomNormal(stddev=0.02)
        trained = not self.frozen
        self.kernel = self.add_weight(name="kernel", shape=(*patch, self.width), initializer=uniform, trainable=trained)
        self.bias = self.add_weight(name="bias", shape=(self.width,), initializer="zeros", trainable=trained)
        self.class_token = self.add_weight(name="class_token", shape=(1, 1, self.width), initializer=normal)
        learned = self.positions == "learned"
        self.table = self.add_weight(
            name="positions",
            shape=(1, 1 + grid[0] * grid[1], self.width),
            initializer=normal if learned else self._fixed,
            trainable=learned,
        )

    def _fixed(self, shape, dtype):
        rows, columns = self.table_grid
        # That of the class token is 0.
        table = np.pad(patch_sinusoids(rows, columns, self.width), ((1, 0), (0, 0)))
        return tf.constant(table[None], dtype)

    def _grid(self, shape: tuple) -> tuple:
        sides = shape[1:3]
        if any(side is not None and side % self.patch_size for side in sides):
            raise InputError(
                f"ViT cuts images into patches of {self.patch_size}x{self.patch_size} pixels, which do not fill "
                f"{sides[0]}x{sides[1]}: set ViT.resize_to to a multiple of {self.patch_size}."
            )
        return tuple(side and side // self.patch_size for side in sides)

    def compute_output_shape(self, input_shape):
        """Return (b, 1 + n, width) for n patches."""
        rows, columns = self._grid(tuple(input_shape))
        return (tuple(input_shape)[0], rows and columns and 1 + rows * columns, self.width)

    def call(self, images):
        """Return the tokens [b, 1 + n, width] of images [b, h, w, c].

        Images whose size is unknown when a function is traced must have the size of the table.
        """
        rows, columns = grid = self._grid(tuple(images.shape))
        hidden = tf.nn.conv2d(images, tf.cast(self.kernel, images.dtype), self.patch_size, "VALID")
        if None in grid:
            rows, columns = self.table_grid
            hidden = tf.ensure_shape(hidden, [None, rows, columns, self.width])
        hidden = tf.reshape(hidden + tf.cast(self.bias, hidden.dtype), [-1, rows * columns, self.width])
        table, token = tf.convert_to_tensor(self.table), tf.cast(self.class_token, hidden.dtype)
        front = tf.zeros_like(hidden[:, :1]) + token
        return tf.concat([front, hidden], axis=1) + tf.cast(self._resized(table, (rows, columns)), hidden.dtype)

    def _resized(self, table, grid: tuple):
        """Return a table [1, 1 + n, width] for a grid of patches."""
        if grid == self.table_grid:
            return table
        down, across = (
            tf.constant(resizing_matrix(size, target), table.dtype)
            for size, target in zip(self.table_grid, grid, strict=True)
        )
        patches = tf.reshape(table[0, 1:], [*self.table_grid, self.width])
        patches = tf.einsum("ir,jc,rcd->ijd", down, across, patches)
        return tf.concat([table[:, :1], tf.reshape(patches, [1, -1, self.width])], axis=1)


@keras.saving.register_keras_serializable(package="tfrobust")
class ViTBlock(Configured, keras.layers.Layer):
    """Self-attention and a network of two layers, each normalized before and with a shortcut.

    Args:
        heads, drop_path: as in `ViT`, the rate of this block.
    """

    def __init__(self, heads: int, *, drop_path: float = 0.0, name: str | None = None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.heads = heads
        self.drop_path = drop_path

    def build(self, input_shape):
        """Create and build the sublayers."""
        shape, policy = tuple(input_shape), self.dtype_policy
        width = shape[-1]
        # The limit of Glorot for three matrices [width, width], not for one [width, 3 width].
        limit = (3 / width) ** 0.5
        uniform = keras.initializers.RandomUniform(-limit, limit)
        self.norms = [_normalization(policy) for _ in range(2)]
        self.qkv = keras.layers.Dense(3 * width, kernel_initializer=uniform, dtype=policy)
        self.out = keras.layers.Dense(width, dtype=policy)
        self.mlp = [
            keras.layers.Dense(4 * width, activation="gelu", dtype=policy),
            keras.layers.Dense(width, dtype=policy),
        ]
        self.drops = [[DropPath(self.drop_path, dtype=policy)] if self.drop_path else [] for _ in range(2)]
        for norm, drop in zip(self.norms, self.drops, strict=True):
            build_chain([norm, *drop], shape)
        for chain in ([self.qkv], [self.out], self.mlp):
            build_chain(chain, shape)

    def compute_output_shape(self, input_shape):
        """Return the input shape."""
        return tuple(input_shape)

    def call(self, hidden, *, training=None):
        """Apply the block to tokens [b, l, width]."""
        for norm, sublayer, drop in zip(self.norms, (self._attention, self._mlp), self.drops, strict=True):
            hidden += run_chain(drop, sublayer(norm(hidden)), training=training)
        return hidden

    def _attention(self, hidden):
        length, width = hidden.shape[1:]
        parts = tf.reshape(self.qkv(hidden), [-1, length, 3, self.heads, width // self.heads])
        attended = attend(*tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4])))
        return self.out(tf.reshape(tf.transpose(attended, [0, 2, 1, 3]), [-1, length, width]))

    def _mlp(self, hidden):
        return run_chain(self.mlp, hidden)


@keras.saving.register_keras_serializable(package="tfrobust")
class ClassToken(Configured, keras.layers.Layer):
    """The class token, or its features and those of the patches' average by turns.

    Args:
        with_average: return 2 `width` features c0, a0, c1, a1, ... in place of the class token c.
    """

    def __init__(self, *, with_average: bool = False, name: str | None = None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.with_average = with_average

    def compute_output_shape(self, input_shape):
        """Return (b, width) or (b, 2 width)."""
        count, _, width = tuple(input_shape)
        return (count, width * (1 + self.with_average))

    def call(self, hidden):
        """Return the features of tokens [b, l, width]."""
        if not self.with_average:
            return hidden[:, 0]
        both = tf.stack([hidden[:, 0], tf.reduce_mean(hidden[:, 1:], axis=1)], axis=-1)
        return tf.reshape(both, [-1, 2 * hidden.shape[-1]])


def _normalization(policy) -> keras.layers.Layer:
    return keras.layers.LayerNormalization(epsilon=EPSILON, dtype=policy)
