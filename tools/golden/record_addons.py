"""Record the outputs of tensorflow-addons for images, and of its LAMB for weights, as an oracle for the tests.

    python3.11 -m venv addons-env
    addons-env/bin/pip install tensorflow-cpu==2.15.1 tensorflow-addons==0.23.0 numpy==1.26.4
    addons-env/bin/python tools/golden/record_addons.py --output=tests/golden/addons.npz

Development of tensorflow-addons ended in May 2024, and it cannot be imported together with TensorFlow >= 2.16. It needs
its own environment with Python 3.9 to 3.11, without tfrobust.
"""

import argparse
import pathlib

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa

# Taller than wide, so that rows and columns cannot be confused; smooth, so that half a pixel is a few levels.
IMAGES, HEIGHT, WIDTH = 4, 24, 18
DEGREES = (0.0, 17.0, -30.0, 90.0)
MOVES = ((0, 0), (3, 0), (0, -5), (-2, 4))  # to the right, down
SLOPES = (0.3, -0.12, 2.0, 0.0)
FACTORS = (0.0, 0.4, 1.0, 1.9)
FILTERS = ((3, 0.8), (5, 1.0), (9, 2.5))  # taps, sigma
PADDINGS = ("REFLECT", "SYMMETRIC", "CONSTANT")
STEPS, LEARNING_RATE, DECAYS = 5, 0.05, (0.0, 0.1)


def draw_images() -> np.ndarray:
    """Draw uint8 [4, 24, 18, 3]: waves over the image, one image of few levels, one with a constant channel."""
    generator = np.random.Generator(np.random.PCG64(20261121))
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    phase = generator.uniform(0.0, 6.28, (IMAGES, 1, 1, 3, 4))
    pitch = generator.uniform(0.05, 0.4, (2, IMAGES, 1, 1, 3, 4))
    waves = np.sin(pitch[0] * rows[:, :, None, None] + pitch[1] * columns[:, :, None, None] + phase).mean(-1)
    images = np.clip(128 + 180 * waves + generator.normal(0, 4, waves.shape), 0, 255).astype(np.uint8)
    images[2] = images[2] // 51 * 51
    images[3, :, :, 1] = 77
    return images


def record(images: np.ndarray) -> dict[str, np.ndarray]:
    """Return name -> output; floats are gray levels that were not rounded."""
    floats, outputs = tf.constant(images, tf.float32), {}
    full = tf.fill(floats.shape, 255.0)
    radians = tf.constant(np.deg2rad(DEGREES), tf.float32)
    for interpolation in ("nearest", "bilinear"):
        outputs[f"rotate/{interpolation}"] = tfa.image.rotate(floats, radians, interpolation)
        outputs[f"translate/{interpolation}"] = tfa.image.translate(floats, np.array(MOVES, np.float32), interpolation)
    outputs["rotate/coverage"] = tfa.image.rotate(full, radians, "bilinear")
    slopes = np.array(SLOPES, np.float32)
    zeros, ones = np.zeros_like(slopes), np.ones_like(slopes)
    for axis, shear in (("x", tfa.image.shear_x), ("y", tfa.image.shear_y)):
        sheared = [shear(image, slope, 0) for image, slope in zip(tf.constant(images), SLOPES, strict=True)]
        outputs[f"shear_{axis}"] = np.stack(sheared)
        # The same matrix, but with pixel centers as coordinates, and bilinear.
        matrix = (
            [ones, slopes, slopes / 2, zeros, ones, zeros]
            if axis == "x"
            else [ones, zeros, zeros, slopes, ones, slopes / 2]
        )
        matrix = np.stack([*matrix, zeros, zeros], axis=1)
        outputs[f"shear_{axis}/middles"] = tfa.image.transform(floats, matrix, "bilinear")
        outputs[f"shear_{axis}/coverage"] = tfa.image.transform(full, matrix, "bilinear")
    outputs["equalize"] = tfa.image.equalize(tf.constant(images))
    for factor in FACTORS:
        outputs[f"sharpness/{factor}"] = tfa.image.sharpness(tf.constant(images), factor)
    for taps, sigma in FILTERS:
        for padding in PADDINGS:
            name = f"gaussian_filter2d/{taps}/{sigma}/{padding.lower()}"
            outputs[name] = tfa.image.gaussian_filter2d(floats, (taps, taps), sigma, padding)
    return {name: np.asarray(value) for name, value in outputs.items()}


def draw_problem() -> dict[str, np.ndarray]:
    """Draw the weights of three variables, one of them zeros, and their gradients at each step; float32."""
    generator = np.random.Generator(np.random.PCG64(20261122))
    shapes = {"kernel": (4, 3), "bias": (3,), "zeros": (2, 2)}
    drawn = {f"weights/{name}": generator.normal(0, 1, shape) for name, shape in shapes.items()}
    drawn["weights/zeros"] *= 0
    drawn |= {f"gradients/{name}": generator.normal(0, 1, (STEPS, *shape)) for name, shape in shapes.items()}
    drawn["gradients/bias"][1:3] *= 1e-3
    return {name: value.astype(np.float32) for name, value in drawn.items()}


def record_lamb(problem: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return name -> weights after each step, float32 [steps, ...]: with decay, and also with the bias excluded."""
    trajectories = {}
    for decay, excluded in [*((decay, None) for decay in DECAYS), (DECAYS[-1], ["bias"])]:
        names = [name.removeprefix("weights/") for name in problem if name.startswith("weights/")]
        variables = [tf.Variable(problem[f"weights/{name}"], name=name) for name in names]
        optimizer = tfa.optimizers.LAMB(
            LEARNING_RATE,
            weight_decay=decay,
            exclude_from_weight_decay=excluded,
            exclude_from_layer_adaptation=excluded,
        )
        steps = []
        for step in range(STEPS):
            gradients = [tf.constant(problem[f"gradients/{name}"][step]) for name in names]
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            steps.append([variable.numpy() for variable in variables])
        for name, values in zip(names, zip(*steps, strict=True), strict=True):
            trajectories[f"lamb/{decay}{'/without_bias' if excluded else ''}/{name}"] = np.stack(values)
    return trajectories


def main():
    """Record the outputs and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the .npz to write")
    flags = parser.parse_args()
    images = draw_images()
    problem = draw_problem()
    outputs = record(images) | record_lamb(problem)
    inputs = {"degrees": DEGREES, "moves": MOVES, "slopes": SLOPES, "factors": FACTORS, "filters": FILTERS}
    inputs = {f"input/{name}": np.array(value) for name, value in inputs.items()} | {"input/images": images}
    inputs |= {"input/learning_rate": np.array(LEARNING_RATE)} | {
        f"input/{name}": value for name, value in problem.items()
    }
    np.savez_compressed(flags.output, **inputs, **outputs)
    print(
        f"{len(outputs)} outputs with tensorflow-addons {tfa.__version__}, TensorFlow {tf.__version__} -> "
        f"{flags.output}"
    )


if __name__ == "__main__":
    main()
