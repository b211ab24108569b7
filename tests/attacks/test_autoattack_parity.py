"""The attacks of AutoAttack against what the official package computed: parts, iterates, verdicts.

The recordings and what their entries mean: tests/golden/autoattack_components.md, autoattack_verdicts.md.
"""

import numpy as np
import pytest
import tensorflow as tf

from conformance.attacks import run_by_hand
from oracles import official_autoattack, seeded_networks
from tfrobust.attacks import apgd, fab, square
from tfrobust.attacks.shared import apgd_steps, objectives
from tfrobust.attacks.shared.goal import Goal
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.keras.models import LinearHead, ResNet
from tfrobust.losses import classification
from tfrobust.ops import gradients, hyperplane

EPSILONS = {"linf": 0.03, "l2": 0.2, "l1": 0.5}
APGD_CASES = [
    *((norm, loss) for norm in EPSILONS for loss in ("ce", "dlr", "targeted_dlr")),
    ("linf", "targeted_dlr_4"),
    ("l1", "ce_large"),
]
KEY = tf.constant([1, 2])


@pytest.fixture(scope="module")
def golden():
    return official_autoattack.recorded("components")


def perceptron(golden, classes=10):
    weights = [golden[f"network/{classes}/{name}"] for name in ("hidden/kernel", "hidden/bias")]
    last = [golden[f"network/{classes}/{name}"] for name in ("logits/kernel", "logits/bias")]

    def predict(images):
        vectors = tf.reshape(images, [-1, weights[0].shape[0]])
        return tf.tanh(vectors @ weights[0] + weights[1]) @ last[0] + last[1]

    return predict


class Watched:
    """A function of images that keeps what it is shown."""

    def __init__(self, function):
        self.function, self.points = function, []

    def __call__(self, images):
        self.points.append(np.array(images))
        return self.function(images)


def inputs(golden, classes=10):
    """Images and labels of the small network."""
    return (
        tf.constant(golden[f"network/{classes}/images"]),
        tf.constant(golden[f"network/{classes}/labels"].astype(np.int32)),
    )


# ------------------------------------------------------------------------------------------------- APGD


@pytest.mark.parametrize("classes", [10, 4])
@pytest.mark.parametrize("loss", ["ce", "dlr", "targeted_dlr"])
def test_losses(golden, classes, loss):
    logits, labels, targets = (golden[f"losses/{classes}/{name}"] for name in ("logits", "labels", "targets"))
    functions = {
        "ce": lambda z: classification.cross_entropy(z, labels.astype(np.int32)),
        "dlr": lambda z: objectives.dlr_of(z, labels.astype(np.int32)),
        "targeted_dlr": lambda z: objectives.targeted_dlr_of(z, labels.astype(np.int32), targets.astype(np.int32)),
    }
    values, gradient = gradients.input_gradient(functions[loss], tf.constant(logits))
    np.testing.assert_allclose(values, golden[f"losses/{classes}/{loss}"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, golden[f"losses/{classes}/{loss}_gradient"], rtol=1e-4, atol=1e-5)


def test_dlr_where_logits_tie(golden):
    logits, labels = golden["losses/ties/logits"], golden["losses/ties/labels"].astype(np.int32)
    np.testing.assert_allclose(objectives.dlr_of(tf.constant(logits), labels), golden["losses/ties/dlr"], rtol=1e-6)


@pytest.mark.parametrize("epsilon", [0.05, 3.0, 20.0])
def test_l1_projection(golden, epsilon):
    images, changes = golden["l1_projection/images"], golden["l1_projection/changes"]
    projected = ThreatModel(norm="l1", epsilon=epsilon).project(tf.constant(images), tf.constant(images + changes))
    # The official one loses digits in its sums of large changes.
    size = np.abs(changes).sum((1, 2, 3), keepdims=True)
    assert np.all(np.abs(projected - images - golden[f"l1_projection/{epsilon}"]) <= 1e-5 + 3e-7 * size)


@pytest.mark.parametrize("steps", [1, 3, 5, 10, 20, 30, 40, 50, 100, 200, 1000])
def test_checkpoints(golden, steps):
    assert list(apgd_steps.checkpoints("linf", steps)) == golden[f"schedule/{steps}"].tolist()
    assert list(apgd_steps.checkpoints("l1", steps)) == golden[f"schedule/l1/{steps}"].tolist()


@pytest.fixture(params=APGD_CASES, ids="-".join)
def search(request, golden, monkeypatch):
    """Norm, case, name of its recordings, network, images, labels, arguments; the attack's noise is the recorded."""
    norm, case = request.param
    name, classes = f"apgd/{norm}/{case}", 4 if case.endswith("_4") else 10
    noise = tf.constant(golden[f"{name}/noise"].astype(np.float32))
    monkeypatch.setattr(apgd.randomness, "draw", lambda sampler, key, shape: noise)
    arguments = {"threat": ThreatModel(norm=norm, epsilon=EPSILONS[norm]), "steps": 30}
    arguments |= {"large_radii": case == "ce_large"} if norm == "l1" else {}
    return norm, case, name, perceptron(golden, classes), *inputs(golden, classes), arguments


def test_apgd_takes_the_same_steps(golden, search):
    norm, case, name, predict, images, labels, arguments = search
    if case.startswith("ce"):
        objective = Watched(lambda x: classification.cross_entropy(predict(x), labels))
    elif case == "dlr":
        objective = Watched(lambda x: objectives.dlr_of(predict(x), labels))
    else:
        targets = tf.constant(golden[f"{name}/targets"].astype(np.int32))
        objective = Watched(lambda x: objectives.targeted_dlr_of(predict(x), labels, targets))
    best = apgd.APGDCrossEntropy(**arguments).perturb(objective, images, KEY)
    far = np.abs(np.stack(objective.points) - golden[f"{name}/iterates"]) > 2e-5
    # Later on some gradients, and in L1 some changes of pixels, should be 0 and are noise, here and there.
    assert not far[:8].any() and far.mean() < (0.02 if norm == "l1" else 0.002)
    np.testing.assert_allclose(objective(best), golden[f"{name}/best_loss"], rtol=1e-2 if norm == "l1" else 1e-4)


def test_apgd_succeeds_where_the_official_one_does(golden, search):
    _, case, name, predict, images, labels, arguments = search
    kind = {"ce": apgd.APGDCrossEntropy, "dlr": apgd.APGDDLR, "targeted": apgd.APGDTargeted}[case.split("_")[0]]
    attack = kind(**arguments, **({"targets": 1} if kind is apgd.APGDTargeted else {}))
    _, success = run_by_hand(attack, predict, images, labels, KEY)
    np.testing.assert_array_equal(success, ~golden[f"{name}/robust"])


# ------------------------------------------------------------------------------------------------- FAB


@pytest.mark.parametrize("norm", EPSILONS)
def test_fab_projections(golden, norm):
    points, normals, offsets = (golden[f"fab/projection/{name}"] for name in ("points", "normals", "offsets"))
    excess = np.sum(normals * points, axis=1) - offsets
    moves = hyperplane.move(*map(tf.constant, (points, normals, excess)), norm).numpy()
    expected, kinds = golden[f"fab/projection/{norm}"], golden["fab/projection/kinds"]
    np.testing.assert_allclose(
        np.sum(normals * moves, 1), np.sum(normals * expected, 1), atol=2e-5, err_msg="another plane is reached"
    )
    orders = {"linf": np.inf, "l2": 2, "l1": 1}
    lengths, theirs = (np.linalg.norm(vectors, orders[norm], axis=1) for vectors in (moves, expected))
    np.testing.assert_allclose(lengths, theirs, atol=2e-5)
    # Where normals tie, the L1 move may be any of many.
    unique = kinds != "equal normals" if norm == "l1" else kinds != ""
    np.testing.assert_allclose(moves[unique], expected[unique], atol=2e-5)


@pytest.mark.parametrize("norm", EPSILONS)
@pytest.mark.parametrize("targeted", [True, False])
def test_fab_takes_the_same_steps(golden, norm, targeted):
    name = f"fab/{norm}/{'targeted' if targeted else 'untargeted'}"
    (images, labels), predict = inputs(golden), Watched(perceptron(golden))
    threat, steps = ThreatModel(norm=norm, epsilon=EPSILONS[norm]), len(golden[f"{name}/iterates"])
    attack = (fab.FAB if targeted else fab.FABUntargeted)(threat, steps=steps)
    goal, rounds = Goal(labels), tf.ones_like(labels) * (1 if targeted else 0)  # the third class is the second target
    keys = tf.zeros([len(images), 2], tf.int32)
    state = attack.start(predict, images, goal, keys, rounds)
    if targeted:
        np.testing.assert_array_equal(state["target"], golden["fab/targets"])
    predict.points.clear()
    state = attack.advance(predict, images, goal, rounds, state, tf.constant(steps))
    # Asked at every point, and at every point it moves to.
    off = np.abs(np.stack(predict.points[::2]) - golden[f"{name}/iterates"]).max(axis=(2, 3, 4)) > 5e-5
    # FAB steps onto decision boundaries, where rounding chooses the side: there one of the three paths may part.
    agreeing = ~off.any(axis=0)
    assert not off[:4].any() and agreeing.sum() >= len(images) - 1
    np.testing.assert_allclose(state["distance"].numpy()[agreeing], golden[f"{name}/distance"][agreeing], rtol=1e-4)
    np.testing.assert_allclose(state["nearest"].numpy()[agreeing], golden[f"{name}/adversarial"][agreeing], atol=5e-5)


@pytest.mark.parametrize("norm", EPSILONS)
def test_fab_restarts_from_the_same_points(golden, monkeypatch, norm):
    noise = tf.constant(golden[f"fab/start/{norm}/noise"].astype(np.float32))
    monkeypatch.setattr(fab.randomness, "draw", lambda sampler, key, shape: noise)
    (images, labels), predict = inputs(golden), perceptron(golden)
    attack = fab.FABUntargeted(ThreatModel(norm=norm, epsilon=EPSILONS[norm]), restarts=2)
    keys = tf.zeros([len(images), 2], tf.int32)
    state = attack.start(predict, images, Goal(labels), keys, tf.ones_like(labels))
    np.testing.assert_allclose(state["point"], golden[f"fab/start/{norm}/point"], atol=1e-6)


# ------------------------------------------------------------------------------------------------- Square


@pytest.mark.parametrize("queries", [5000, 1000])
@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("norm", EPSILONS)
def test_square_schedule(golden, queries, rescale, norm):
    shares = golden[f"square/share/{queries}{'/rescaled' if rescale else ''}"].astype(np.float64)
    sides = square.sides(32, 28, norm, square.shares(steps=queries, initial_share=0.8, rescale=rescale))
    expected = np.rint(np.sqrt(shares[:queries] * 32 * 28))
    expected = np.maximum(expected, 1 if norm == "linf" else 3)
    expected += (norm != "linf") & (expected % 2 == 0)
    np.testing.assert_array_equal(sides, np.minimum(expected, 28))


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("side", [1, 2, 3, 4, 5, 6, 7, 9, 11, 27])
def test_square_patterns(golden, norm, side):
    expected = golden[f"square/pattern/{norm}/{side}"]
    np.testing.assert_allclose(square.window_pattern(side, norm), expected, atol=1e-6)


@pytest.mark.parametrize("side", [6, 8, 9, 11, 32])
@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_square_starts_from_the_same_tiles(golden, norm, side):
    name = f"square/{norm}/start/{side}"
    tile, before, down, across = square.tiling(side, side)
    signs, transposed, change = golden[f"{name}/signs"], golden[f"{name}/transposed"], np.zeros([2, side, side, 2])
    per_row = side // tile  # of the official loop, which runs over the edge of small images
    for row in range(down):
        for column in range(across):
            number, pattern = row * per_row + column, square.window_pattern(tile, norm)
            pattern = pattern.T if transposed[number] else pattern
            tile_rows = np.s_[:, before + row * tile : before + (row + 1) * tile]
            change[tile_rows][:, :, before + column * tile : before + (column + 1) * tile] += (
                pattern[None, :, :, None] * signs[number][:, None, None, :, 0, 0]
            )
    order = 2 if norm == "l2" else 1
    length = np.linalg.norm(change.reshape(2, -1), order, axis=1)[:, None, None, None]
    if norm == "l2":
        change *= EPSILONS[norm] / length
        np.testing.assert_allclose(0.5 + change, golden[f"{name}/point"], atol=1e-6)
    else:
        images = tf.fill(change.shape, 0.5)
        point = ThreatModel(norm="l1", epsilon=EPSILONS[norm]).project(images, images + tf.cast(change, tf.float32))
        np.testing.assert_allclose(point, golden[f"{name}/point"], atol=2e-6)


def window(start, side, size):
    pixels = np.arange(size)
    return (pixels >= start) & (pixels < start + side)


@pytest.mark.parametrize("norm", EPSILONS)
def test_square_makes_the_same_proposals(golden, norm):
    name = f"square/{norm}"
    images, queries, margins = (golden[f"{name}/{entry}"] for entry in ("images", "proposals", "margins"))
    count, height, width, channels = images.shape
    attack = square.Square(ThreatModel(norm=norm, epsilon=EPSILONS[norm]))
    propose, sides = attack._proposals(tf.constant(images)), np.unique(attack._sides(tf.constant(images)))
    best = queries[0]
    for step, share in enumerate(golden[f"{name}/shares"]):
        side = max(round(np.sqrt(share * height * width)), 1 if norm == "linf" else 3)
        side = min(side + (norm != "linf" and side % 2 == 0), height)
        row, column, *other = golden[f"{name}/positions"][step]
        signs = np.broadcast_to(golden[f"{name}/signs"][step] > 0, [count, channels])[:, None, None]
        rows = np.broadcast_to(window(row, side, height)[None, :, None, None], [count, height, 1, 1])
        columns = np.broadcast_to(window(column, side, width)[None, None, :, None], [count, 1, width, 1])
        extra = ()
        if norm != "linf":
            table = 2 * int(np.searchsorted(sides, side)) + int(golden[f"{name}/transposed"][step])
            assert sides[table // 2] == side
            corner = (table * 2 * height + height - row) * 2 * width + width - column
            extra = (
                tf.fill([count, 1], tf.constant(corner, tf.int32)),
                tf.constant(np.broadcast_to(window(other[0], side, height)[None, :, None, None], rows.shape)),
                tf.constant(np.broadcast_to(window(other[1], side, width)[None, None, :, None], columns.shape)),
            )
        draws = square._Draws(*map(tf.constant, (rows, columns, signs)), extra)
        np.testing.assert_allclose(propose(tf.constant(best), draws), queries[step + 1], atol=3e-6)
        better = margins[step + 1] < margins[: step + 1].min(0)
        best = np.where(better[:, None, None, None], queries[step + 1], best)
    np.testing.assert_array_equal(best, golden[f"{name}/best"])


# ------------------------------------------------------------------------------------------------- networks


@pytest.fixture(scope="module")
def resnet():
    encoder, head = ResNet(depth=20), LinearHead(seeded_networks.RESNET_CLASSES)
    encoder.build((None, 32, 32, 3))
    head.build((None, encoder.dim))
    values = list(seeded_networks.resnet20().values())
    variables = [*encoder.variables, *head.variables]
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    return tf.function(lambda images: head(encoder(images, training=False)), autograph=False)


def resnet_images():
    return np.clip(0.5 + 0.7 * seeded_networks.uniform("components/resnet/images", (4, 32, 32, 3)), 0, 1)


def test_resnet20_is_the_same_function(golden, resnet):
    images, labels = tf.constant(resnet_images()), golden["resnet/labels"].astype(np.int32)
    np.testing.assert_allclose(resnet(images), golden["resnet/logits"], rtol=1e-4, atol=1e-4)
    values, gradient = gradients.input_gradient(lambda x: objectives.dlr_of(resnet(x), labels), images)
    np.testing.assert_allclose(values, golden["resnet/dlr"], rtol=1e-4)
    expected = golden["resnet/dlr_gradient"]
    # A ReLU that is as good as zero may pass the gradient on one side and not on the other.
    far = np.abs(gradient[:2] - expected) > 1e-3 * np.abs(expected).max()
    assert np.mean(far) < 0.01


def test_apgd_on_resnet20(golden, resnet, monkeypatch):
    images, labels = tf.constant(resnet_images()), golden["resnet/labels"].astype(np.int32)
    noise = tf.constant(seeded_networks.uniform("components/resnet/start", (4, 32, 32, 3)))
    monkeypatch.setattr(apgd.randomness, "draw", lambda sampler, key, shape: noise)
    objective = Watched(lambda x: classification.cross_entropy(resnet(x), labels))
    attack = apgd.APGDCrossEntropy(ThreatModel(epsilon=8 / 255), steps=10)
    best = attack.perturb(objective, images, KEY)
    logits = np.stack([resnet(tf.constant(points)) for points in objective.points])
    # Where a gradient is as good as zero its sign is noise, so the two drift apart, slowly.
    np.testing.assert_allclose(logits[:6], golden["resnet/apgd/logits"][:6], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(logits, golden["resnet/apgd/logits"], rtol=0.01, atol=0.05)
    np.testing.assert_allclose(objective(best), golden["resnet/apgd/best_loss"], rtol=0.01)
    assert np.mean(np.abs(best[:1] - golden["resnet/apgd/best"]) > 1e-5) < 0.005


@pytest.mark.parametrize("name", ["supervised", "adversarial_training", "ascl_leaked"])
def test_the_digits_models_are_the_same_functions(name):
    logits = official_autoattack.model(name)(official_autoattack.data()[0], training=False)
    expected = official_autoattack.recorded("verdicts")[f"{name}/logits"]
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=2e-5 * np.abs(expected).max())


# ------------------------------------------------------------------------------------------------- verdicts


# One case per norm; `tools/golden/autoattack_equality.py` runs all of them, members alone included.
@pytest.mark.parametrize("model, norm", [("ascl_leaked", "linf"), ("supervised", "l2"), ("adversarial_training", "l1")])
def test_the_ensemble_gives_the_same_verdicts(model, norm):
    case = official_autoattack.case(model, norm, "ensemble")
    verdict = official_autoattack.compare(case, official_autoattack.attack_with_ours(case)[-1])
    assert verdict.equal, verdict
