"""Small networks for plans/fine_tuning.toml, of the kinds that keras.applications has in sizes of hours only."""

import keras


def small_convnext(
    side: int = 32, depths: tuple[int, ...] = (2, 2, 2), widths: tuple[int, ...] = (24, 48, 96)
) -> keras.Model:
    """Return a ConvNeXt (Liu et al. 2022) for RGB images, without layer scale and drop path.

    Args:
        side: of the images in pixels, a multiple of 4 x 2^(stages - 1).
        depths: blocks of each stage.
        widths: channels of each stage.
    """
    maps = images = keras.Input((side, side, 3))
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        stride = 2 if stage else 4
        maps = keras.layers.LayerNormalization(epsilon=1e-6)(maps) if stage else maps
        maps = keras.layers.Conv2D(width, stride, strides=stride)(maps)
        maps = maps if stage else keras.layers.LayerNormalization(epsilon=1e-6)(maps)
        for _ in range(depth):
            residual = keras.layers.DepthwiseConv2D(7, padding="same")(maps)
            residual = keras.layers.LayerNormalization(epsilon=1e-6)(residual)
            residual = keras.layers.Dense(4 * width, activation="gelu")(residual)
            maps = keras.layers.Add()([maps, keras.layers.Dense(width)(residual)])
    return keras.Model(images, keras.layers.LayerNormalization(epsilon=1e-6)(maps), name="small_convnext")
