"""The sides of tools/benchmarks/bench_vit.py: the vision transformer of tfrobust, and its task."""

import keras
import numpy as np
import tensorflow as tf
from _peers import Task
from _peers_tensorflow import CLASSES, timed, versions

from tfrobust.models.heads.linear import LinearHead
from tfrobust.models.vit import ViT

# Name -> (image shape, arguments of the encoder).
NETWORKS = {
    "vit_small16": ((224, 224, 3), {"patch_size": 16, "width": 384, "depth": 12, "heads": 6}),
    "vit_tiny": ((8, 8, 1), {"patch_size": 2, "width": 48, "depth": 4, "heads": 4}),
}


def random_vit(settings: dict) -> Task:
    """Make a task of an untrained vision transformer on noise."""
    network = settings["network"]
    shape, arguments = NETWORKS[network]
    encoder, head = build(network)
    images = np.random.default_rng(0).random((settings["batch"], *shape), np.float32)
    logits = head(encoder(images)).numpy()
    labels = np.arange(len(images)) % CLASSES
    weights = {name: variable.numpy() for name, variable in named_variables(encoder, head).items()}
    settings = {name: value for name, value in settings.items() if name != "network"}
    return Task(network, images, labels, logits, weights, settings | {"heads": arguments["heads"]})


def build(network: str) -> tuple[ViT, LinearHead]:
    """Build encoder and head."""
    shape, arguments = NETWORKS[network]
    encoder, head = ViT(**arguments), LinearHead(CLASSES)
    encoder.build((None, *shape))
    head.build((None, arguments["width"]))
    return encoder, head


def named_variables(encoder: ViT, head: LinearHead) -> dict[str, keras.Variable]:
    """Return 'place/name' -> variable; the places are "tokens", the parts of each block, "norm" and "head"."""
    layers = {"tokens": encoder.tokens, "norm": encoder.neck[0], "head": head}
    for number, stage in enumerate(encoder.stage_layers):
        block = stage[-1]
        parts = ("norm_1", "norm_2", "qkv", "out", "mlp_1", "mlp_2")
        layers_of_block = (*block.norms, block.qkv, block.out, *block.mlp)
        layers |= {f"block_{number}_{part}": layer for part, layer in zip(parts, layers_of_block, strict=True)}
    return {f"{prefix}/{v.name}": v for prefix, layer in layers.items() for v in layer.weights}


def own_passes(task: Task):
    """Build tfrobust's forward pass, and its gradient by the images, as compiled functions."""
    tf.config.threading.set_intra_op_parallelism_threads(task.settings["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(task.settings["threads"])
    encoder, head = build(task.network)
    for name, variable in named_variables(encoder, head).items():
        variable.assign(task.weights[name])
    images, labels = tf.constant(task.images), tf.constant(task.labels)

    @tf.function(autograph=False)
    def forward(images):
        return head(encoder(images, training=False), training=False)

    @tf.function(autograph=False)
    def gradient(images):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(images)
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, forward(images)))
        return tape.gradient(loss, images)

    task.check(forward(images).numpy())
    seconds = {}
    timed_forward = timed(lambda: forward(images).numpy(), seconds, "forward")
    timed_gradient = timed(lambda: gradient(images).numpy(), seconds, "gradient")

    def run():
        seconds.clear()
        forward(images).numpy()  # the first call after the other side's turn is slower
        timed_forward()
        return timed_gradient()

    return run, lambda outputs: {"members": dict(seconds), "size": float(np.abs(outputs).mean())}, versions()
