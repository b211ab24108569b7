"""The parts of gin/stage_two and gin/optimizers behind a method in two stages: what they hand to the training."""

import gin
import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance.recipes import GIN, arguments, rates
from tfrobust.keras.models import KNearestNeighbours, LinearHead, LogisticRegression, MLPHead
from tfrobust.training.optimizers import LARS

PARTS = sorted(
    path.relative_to(GIN).as_posix() for name in ("stage_two", "optimizers") for path in GIN.glob(f"{name}/*")
)


# Parts that fine-tune as the recipe of this name trains from random weights.
ADVERSARIAL = ("ascl", "trades")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_stays_a_run_in_two_stages(part):
    bindings = arguments("simclr.gin", part)
    head, pretraining = bindings["head"](class_count=10), bindings["pretraining"]
    assert bindings["name"] == "simclr" and pretraining.method.__name__ == "SimCLR"
    fine_tuned = ("fine_tuning", *ADVERSARIAL)
    assert pretraining.frozen == (part not in [f"stage_two/{name}.gin" for name in fine_tuned])
    heads = {"nearest": KNearestNeighbours, "logistic": LogisticRegression, "fine_tuning": MLPHead}
    kind = next((heads[word] for word in heads if word in part), LinearHead)
    assert type(head) is kind
    # Those that are fitted at once have no epochs to validate after.
    assert (bindings["validation"] is None) == hasattr(head, "fit_features") == (bindings["epochs"] == 1)


@pytest.mark.parametrize(("percent", "labels"), [(10, 134), (1, 13)])
def test_few_labels_are_those_of_the_second_stage_alone(percent, labels):
    few = f"stage_two/labels_{percent}_percent.gin"
    bindings = arguments("simclr.gin", few, "stage_two/logistic_regression.gin")
    second, first = bindings["data"].load(), bindings["pretraining"].data.load()
    assert len(second.train) == labels and len(first.train) == 1337
    assert second.test.fingerprint == first.test.fingerprint
    assert bindings["batch_size"] <= labels and bindings["pretraining"].batch_size == 128
    other = arguments("simclr.gin", few, params=["LabelledFraction.seed=1"])["data"].load()
    assert other.train.fingerprint != second.train.fingerprint


def test_lars_rises_for_a_tenth_of_the_first_stage_and_falls_to_nothing():
    bindings = arguments("simclr.gin", "optimizers/lars.gin")
    optimizer, pretraining = bindings["pretraining"].optimizer(), bindings["pretraining"]
    steps = pretraining.epochs * (1337 // pretraining.batch_size)
    assert type(optimizer) is LARS and optimizer.decay == 1e-4
    found_rates = rates(optimizer, (0, steps // 20, steps // 10, (steps + steps // 10) // 2, steps))
    np.testing.assert_allclose(found_rates, [0.0, 0.075, 0.15, 0.075, 0.0], atol=1e-6)
    assert type(bindings["optimizer"]()) is not LARS


@pytest.mark.parametrize("name", ["rocl", "acl", "rocl_at", "acl_trades", "augmented_rocl", "augmented_acl"])
@pytest.mark.parametrize("params, first, behind", stored.rows(globals(), "the_knobs_reach_the_adversaries_of_both"))
def test_the_knobs_reach_the_adversaries_of_both_stages(name, params, first, behind):
    bindings = arguments(f"{name}.gin", params=params)
    encoder, head = bindings["encoder"](), LinearHead(10)
    stages = [make(encoder=encoder, head=head, seed=0) for make in (bindings["pretraining"].method, bindings["method"])]
    watched = gin.get_bindings("RobustAccuracy", resolve_references=True)["attack"]
    judged = [evaluator.attack for evaluator in bindings["evaluators"] if getattr(evaluator, "attack", None)]
    after = [stages[1].adversary.attack] if hasattr(stages[1], "adversary") else []
    assert hasattr(stages[1], "adversary") == (name in ("rocl_at", "acl_trades")) and judged
    assert size(stages[0].adversary.attack) == first
    assert {size(attack) for attack in (*after, *judged, watched)} == {behind}


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.parametrize("first", ["moco_v3", "acl"])
def test_adversarial_fine_tuning_is_the_recipe_s_training(name, first):
    bindings, alone = arguments(f"{first}.gin", f"stage_two/{name}.gin"), arguments(f"{name}.gin")
    keys = ("epochs", "batch_size")
    assert [bindings[key] for key in keys] == [alone[key] for key in keys]
    assert float(bindings["optimizer"]().learning_rate) == float(alone["optimizer"]().learning_rate)
    methods = [run["method"](encoder=run["encoder"](), head=LinearHead(10), seed=0) for run in (bindings, alone)]
    configs = [method.get_config() for method in methods]
    for config in configs:
        del config["encoder"], config["head"], config["name"]
    assert configs[0] == configs[1] and type(methods[0]) is type(methods[1])


def size(attack):
    return attack.threat.norm, attack.threat.epsilon


def test_a_normalised_probe_has_the_optimizer_of_the_report():
    bindings = arguments("simclr.gin", "stage_two/normalized_probe.gin")
    optimizer = bindings["optimizer"]()
    assert bindings["head"](class_count=10).normalized and float(optimizer.learning_rate) == pytest.approx(0.8)
    assert optimizer.momentum == 0.0


def test_the_weight_decay_of_nesterov_is_that_of_the_authors_optimizer():
    """Theirs passes through the momentum: v = 0.9 v + 5e-4 w, w = w - rate (0.9 v + 5e-4 w), without gradients."""
    optimizer = arguments("trades.gin", "optimizers/nesterov.gin", params=["SGD.learning_rate=0.2"])["optimizer"]()
    ours, w, v = keras.Variable(1.0), 1.0, 0.0
    for _ in range(300):
        optimizer.apply([tf.zeros(())], [ours])
        v = 0.9 * v + 5e-4 * w
        w -= 0.2 * (0.9 * v + 5e-4 * w)
    assert float(ours) == pytest.approx(w, rel=0.02) and w < 0.8
