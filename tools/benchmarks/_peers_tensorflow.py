"""The sides that run on TensorFlow: tfrobust itself, Foolbox, ART; and the tasks, which tfrobust makes."""

import importlib.metadata
import queue
import threading
import time

import _recipes  # noqa: F401  (finds tfrobust)
import keras
import numpy as np
import tensorflow as tf
from _peers import Task

from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.mixed_precision import MixedPrecisionPGD
from tfrobust.attacks.shared import objectives
from tfrobust.attacks.shared.modes import as_predict
from tfrobust.attacks.shared.runner import compile_attack
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.data.sources.digits import Digits
from tfrobust.models.cnn import DigitsCNN
from tfrobust.models.heads.linear import LinearHead
from tfrobust.models.resnets.resnet import ResNet

CLASSES = 10
LARGEST_STEPS = 100_000  # more than a side takes
LARGEST_BATCH = 4096


# ------------------------------------------------------------------------------------------------------- tasks


def random_resnet(settings: dict) -> Task:
    """Make a task of an untrained ResNet-20 on noise, its head so biased that no attack succeeds."""
    model = build("resnet20", (32, 32, 3))
    images = np.random.default_rng(0).random((settings["count"], 32, 32, 3), np.float32)
    # With logits around 1 a bias of 40 suffices, and the gradients stay far from underflow.
    dense = model.layers[-1].chain[-1]
    dense.kernel.assign(dense.kernel / np.abs(model.predict(images[:1], verbose=0)).max())
    dense.bias.assign(tf.one_hot(0, CLASSES, 40.0))
    return task_of("resnet20", model, images, np.zeros(len(images)), settings)


def untrained_resnet(settings: dict) -> Task:
    """Make a task of an untrained ResNet-20 on noise with random labels, for training steps."""
    model, random = build("resnet20", (32, 32, 3)), np.random.default_rng(0)
    images = random.random((settings["batch"], 32, 32, 3), np.float32)
    return task_of("resnet20", model, images, random.integers(CLASSES, size=len(images)), settings)


def trained_resnet(settings: dict) -> Task:
    """Make a task of a ResNet-20, trained plainly for some epochs on the digits, enlarged to 32x32x3; test images."""
    model = build("resnet20", (32, 32, 3))
    dataset = Digits().load()
    images, labels = dataset.train.arrays()
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(enlarged(images), labels, batch_size=128, epochs=settings["epochs"], verbose=0)
    images, labels = (array[: settings["count"]] for array in dataset.test.arrays())
    return task_of("resnet20", model, enlarged(images), labels, settings)


def trained_digits(settings: dict) -> Task:
    """Make a task of the digits CNN, trained by a recipe; test images."""
    from digits_table import train

    parts = _recipes.recipe([f"gin/{settings['recipe']}.gin"], settings.get("gin_param", []))
    dataset = parts["data"].load()
    method = train(parts, dataset, lambda text: None)
    images = keras.Input(dataset.image_shape)
    model = keras.Model(images, method.head(method.encoder(images)))
    images, labels = (array[: settings["count"]] for array in dataset.test.arrays())
    return task_of("digits", model, images, labels, settings)


def build(network: str, image_shape: tuple[int, ...], dtype: str = "float32") -> keras.Model:
    """Build a network, initialized from seed 0."""
    keras.utils.set_random_seed(0)
    encoder = ResNet(20, dtype=dtype) if network == "resnet20" else DigitsCNN(dtype=dtype)
    images = keras.Input(image_shape)
    return keras.Model(images, LinearHead(CLASSES)(encoder(images)))


def enlarged(images: np.ndarray) -> np.ndarray:
    """Resize gray digits [n, 8, 8, 1] to [n, 32, 32, 3]."""
    return np.repeat(tf.image.resize(images, (32, 32)).numpy(), 3, axis=-1)


def task_of(network: str, model: keras.Model, images, labels, settings: dict) -> Task:
    """Return the task of a model, with its weights in the order of the forward pass."""
    weights, number = {}, -1
    for variable in model.weights:
        number += variable.name == "kernel"
        weights[f"{number}/{variable.name}"] = np.asarray(variable)
    logits = model.predict(images, verbose=0, batch_size=128)
    return Task(network, images, np.asarray(labels, np.int64), logits, weights, settings)


def model_of(task: Task, dtype: str = "float32") -> keras.Model:
    """Set the threads and build the network of a task; in float32 check its logits."""
    tf.config.threading.set_intra_op_parallelism_threads(task.settings["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(task.settings["threads"])
    model = build(task.network, task.images.shape[1:], dtype)
    model.set_weights(list(task.weights.values()))
    if dtype == "float32":
        task.check(model.predict(task.images, verbose=0, batch_size=128))
    return model


def judge(model: keras.Model, task: Task):
    """Return the function that evaluates adversaries by batch: {'right': number of correctly classified images}."""

    def outcome(adversaries):
        images = np.concatenate([np.asarray(batch) for batch in adversaries])
        distance = np.abs(images - task.images).max()
        if distance > task.settings["epsilon"] * (1 + 1e-4):
            raise SystemExit(f"an adversary is {distance} away; the radius is {task.settings['epsilon']}")
        logits = model.predict(images, verbose=0, batch_size=128)
        return {"right": int((logits.argmax(1) == task.labels).sum())}

    return outcome


def versions(*packages: str) -> str:
    """Return the installed versions as 'name version'."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in (*packages, "tensorflow", "keras"))


# -------------------------------------------------------------------------------------------------- sides: PGD


def own_attack(task: Task, kind: type[PGD] = PGD) -> PGD:
    settings = task.settings
    return kind(ThreatModel(epsilon=settings["epsilon"]), steps=settings["steps"], step_size=settings["step_size"])


def own_perturb(task: Task, dtype: str = "float32", kind: type[PGD] = PGD):
    """Build the compiled training path of PGD: every image takes every step, and the last point is kept."""
    model, attack = model_of(task), own_attack(task, kind)
    predict = as_predict(model if dtype == "float32" else model_of(task, dtype))

    @tf.function(autograph=False)
    def perturb(images, labels):
        return attack.perturb(
            lambda points: objectives.cross_entropy(predict, labels)(points), images, tf.constant([0, 1])
        )

    batches = [(tf.constant(task.images[rows]), tf.constant(task.labels[rows], tf.int32)) for rows in task.batches()]
    return lambda: [perturb(*batch).numpy() for batch in batches], judge(model, task), versions()


def own_perturb_bfloat16(task: Task):
    """Build the training path through a mixed_bfloat16 copy of the network; evaluated in float32."""
    return own_perturb(task, "mixed_bfloat16")


def own_perturb_mixed(task: Task):
    """Build the training path with the first four fifths of the steps in bfloat16; evaluated in float32."""
    return own_perturb(task, kind=MixedPrecisionPGD)


def own_evaluation(task: Task):
    """Build the evaluation path of PGD, as in `run_attack`.

    Misclassified images leave the batch; success is verified by re-prediction.
    """
    model = model_of(task)
    engine = compile_attack(own_attack(task), model)

    def run():
        return [engine.run(task.images, task.labels, batch_size=task.settings["batch"]).adversarial]

    return run, judge(model, task), versions()


def foolbox_pgd(task: Task):
    """Build foolbox.attacks.LinfPGD on the Keras model, whose forward pass is compiled."""
    import foolbox

    model, settings = model_of(task), task.settings
    wrapped = foolbox.TensorFlowModel(compiled_model(model), bounds=(0, 1), device="/CPU:0")
    attack = foolbox.attacks.LinfPGD(abs_stepsize=settings["step_size"], steps=settings["steps"])
    batches = [(tf.constant(task.images[rows]), tf.constant(task.labels[rows])) for rows in task.batches()]

    def run():
        return [attack(wrapped, *batch, epsilons=settings["epsilon"])[1].numpy() for batch in batches]

    return run, judge(model, task), versions("foolbox")


def art_pgd(task: Task):
    """Build ART's ProjectedGradientDescent for TensorFlow 2 on the Keras model, whose forward pass is compiled."""
    from art.attacks.evasion import ProjectedGradientDescentTensorFlowV2
    from art.estimators.classification import TensorFlowV2Classifier

    model, settings = model_of(task), task.settings
    classifier = TensorFlowV2Classifier(
        compiled_model(model),
        nb_classes=task.logits.shape[1],
        input_shape=task.images.shape[1:],
        loss_object=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        clip_values=(0.0, 1.0),
    )
    attack = ProjectedGradientDescentTensorFlowV2(
        classifier,
        eps=settings["epsilon"],
        eps_step=settings["step_size"],
        max_iter=settings["steps"],
        num_random_init=1,
        batch_size=settings["batch"],
        verbose=False,
    )
    batches = [(task.images[rows], task.labels[rows]) for rows in task.batches()]
    return (
        lambda: [attack.generate(*batch) for batch in batches],
        judge(model, task),
        versions("adversarial-robustness-toolbox"),
    )


def compiled_model(model: keras.Model):
    """Compile the model to a graph function: these libraries would call it eagerly, which costs some per cent."""
    return tf.function(lambda images, training=False: model(images, training=False), autograph=False)


# ------------------------------------------------------------------------------------------- side: AutoAttack


def own_autoattack(task: Task):
    """Build AutoAttack 'standard', with the time of each member."""
    model, settings = model_of(task), task.settings
    ensemble = autoattack(task, model)
    seconds = {}
    for engine in ensemble.engines:
        engine.run = timed(engine.run, seconds, engine.attack.name)

    def run():
        seconds.clear()
        return ensemble.run(task.images, task.labels, batch_size=settings["batches"]["tfrobust"])

    def outcome(result):
        correct = (model.predict(result.adversarial, verbose=0).argmax(1) == task.labels).sum()
        return {"right": int(correct), "members": dict(seconds)}

    return run, outcome, versions()


def autoattack(task: Task, predict):
    """Compile AutoAttack 'standard' of the task."""
    from tfrobust.attacks.ensemble import AutoAttack

    settings = task.settings
    return compile_attack(AutoAttack(ThreatModel(norm=settings["norm"].lower(), epsilon=settings["epsilon"])), predict)


def own_autoattack_bound(task: Task):
    """Build the bare passes that AutoAttack makes: as many of each batch size, forward alone and with input gradient.

    An untimed run of the attack counts them, and every round runs them all, one after the other.
    """
    model = model_of(task)
    counter = CountedPasses(model, LARGEST_BATCH + 1)
    result = autoattack(task, counter).run(task.images, task.labels, batch_size=task.settings["batches"]["tfrobust"])
    correct = int((model.predict(result.adversarial, verbose=0).argmax(1) == task.labels).sum())
    passes = {name: compiled_passes(model, name) for name in counter.calls}
    todo = [
        (passes[name], tf.constant(np.resize(task.images, (size, *task.images.shape[1:]))), tf.constant(count))
        for name, calls in counter.calls.items()
        for size, count in enumerate(calls.numpy())
        if count
    ]
    for function, images, _ in todo:
        function(images, tf.constant(1, tf.int64))

    def run():
        for function, images, count in todo:
            function(images, count).numpy()

    return run, lambda _: {"right": correct, "members": {}}, versions()


class CountedPasses:
    """A model that counts its passes by batch size.

    Args:
        model: images -> logits.
        sizes: one more than the largest batch.
    """

    def __init__(self, model: keras.Model, sizes: int):
        self.model = model
        self.calls = {name: tf.Variable(tf.zeros([sizes], tf.int64)) for name in ("forward", "gradient")}

    def __call__(self, images):
        return self.model(self._counted(images), training=False)

    def _counted(self, images):
        forward, gradient = self.calls["forward"], self.calls["gradient"]
        size = [[tf.shape(images)[0]]]

        @tf.custom_gradient
        def identity(images):
            forward.scatter_nd_add(size, tf.constant([1], tf.int64))

            def backward(upstream, variables=None):
                forward.scatter_nd_add(size, tf.constant([-1], tf.int64))
                gradient.scatter_nd_add(size, tf.constant([1], tf.int64))
                return upstream, [None] * len(variables or ())

            return tf.identity(images), backward

        return identity(images)


def compiled_passes(model: keras.Model, name: str):
    """Compile a number of bare passes, one after the other: 'forward', or 'gradient' of the outputs by the images."""

    def forward(images):
        return images + tf.reduce_sum(model(images, training=False))

    def gradient(images):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(images)
            logits = model(images, training=False)
        return images + tape.gradient(logits, images)

    forward_or_gradient = {"forward": forward, "gradient": gradient}[name]

    @tf.function(autograph=False)
    def passes(images, count):
        start = tf.zeros([], tf.int64), images
        following = lambda done, images: (done + 1, forward_or_gradient(images))  # noqa: E731
        return tf.while_loop(lambda done, _: done < count, following, start, parallel_iterations=1)[1]

    return passes


# ------------------------------------------------------------------------------------------ side: a training step


def own_training(task: Task):
    """Build a training step of a recipe as its command runs it: the loop waits before each step for its turn."""
    settings = task.settings
    tf.config.threading.set_intra_op_parallelism_threads(settings["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(settings["threads"])
    params = [f"EPSILON={settings['epsilon']}", f"STEPS={settings['steps']}"]
    params += [f"training/PGD.step_size={settings['step_size']}", f"LEARNING_RATE={settings['learning_rate']}"]
    params += ["ResNet.kernel_regularization=0.0"]
    parts = _recipes.recipe([f"gin/{settings['method']}.gin", f"gin/models/{task.network}.gin"], params)
    method = _recipes.build(parts, task.images.shape[1:], CLASSES, seed=0)
    images = keras.Input(task.images.shape[1:])
    model = keras.Model(images, method.head(method.encoder(images)))
    model.set_weights(list(task.weights.values()))
    task.check(model.predict(task.images, verbose=0, batch_size=128))
    turns = Turns()
    threading.Thread(target=turns.take, args=(method, task), daemon=True).start()
    means = [0.0]

    def outcome(logs):
        means.append(logs["loss"])  # over all steps so far
        count = len(means) - 1
        return {"loss": count * means[-1] - (count - 1) * means[-2]}

    return turns.next, outcome, versions()


class Turns(keras.callbacks.Callback):
    """Lets a training loop in another thread take one step per turn."""

    def __init__(self):
        super().__init__()
        self.asked, self.answers = queue.SimpleQueue(), queue.SimpleQueue()

    def take(self, method, task: Task) -> None:
        """Train on the batch of a task; the end of the training is an answer, too."""
        from bench_step import train_some

        try:
            train_some(method, task.images, task.labels.astype(np.int32), LARGEST_STEPS, [self])
        except Exception as error:
            self.answers.put(error)

    def next(self) -> dict[str, float]:
        """Take the next step; return its logs."""
        self.asked.put(True)
        answer = self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def on_train_batch_begin(self, batch, logs=None):
        self.asked.get()

    def on_train_batch_end(self, batch, logs=None):
        self.answers.put(dict(logs))


def timed(function, seconds: dict, name: str):
    """Wrap the function so that it adds its wall time to seconds[name]."""

    def call(*arguments, **options):
        began = time.perf_counter()
        answer = function(*arguments, **options)
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - began
        return answer

    return call
