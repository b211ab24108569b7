"""The sides of bench_minimal_norm.py: tfrobust, adv-lib and Foolbox; each imports its libraries when it is built."""

import time

import numpy as np

ORDERS = {"linf": np.inf, "l2": 2, "l1": 1, "l0": 0}


def tfrobust(task):
    """Build the compiled attacks of tfrobust."""
    import _peers_tensorflow

    from tfrobust.attacks.shared.runner import compile_attack
    from tfrobust.keras.attacks import DDN, FMN, ThreatModel

    model, engines = _peers_tensorflow.model_of(task), {}
    for name in task.settings["attacks"]:
        kind, norm = name.split()
        attack = {"fmn": FMN, "ddn": DDN}[kind](ThreatModel(norm=norm, epsilon=1), steps=task.settings["steps"])
        engines[name] = compile_attack(attack, model)

    def run_attack(name):
        result = engines[name].run(task.images, task.logits.argmax(1), batch_size=len(task.images))
        return result.adversarial, result.passes.mean(axis=0)

    return *_measured(task, run_attack, model.predict_on_batch), _peers_tensorflow.versions()


def adv_lib(task):
    """Build adv-lib's attacks; DDN without the rounding to 256 levels."""
    from adv_lib.attacks import ddn, fmn

    def make(model, kind, norm):
        steps = task.settings["steps"]
        if kind == "ddn":
            return lambda images, labels: ddn(model, images, labels, steps=steps, levels=None)
        return lambda images, labels: fmn(model, images, labels, ORDERS[norm], steps=steps)

    return _torch_side(task, make, "adv-lib")


def foolbox(task):
    """Build Foolbox's attacks on PyTorch."""
    import foolbox

    names = {"linf": "LInfFMNAttack", "l2": "L2FMNAttack", "l1": "L1FMNAttack", "l0": "L0FMNAttack"}

    def make(model, kind, norm):
        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
        name = "DDNAttack" if kind == "ddn" else names[norm]
        attack = getattr(foolbox.attacks, name)(steps=task.settings["steps"])
        return lambda images, labels: attack.run(wrapped, images, labels)

    return _torch_side(task, make, "foolbox")


def _torch_side(task, make, package: str):
    """Build a side from `make`: model, attack, norm -> (images, labels -> adversarial images)."""
    import _peers_torch
    import torch

    model, passes = _peers_torch.network(task), np.zeros(2)

    def count(module, inputs, logits):
        passes[0] += len(logits)
        if logits.requires_grad:
            logits.register_hook(lambda gradient: passes.__setitem__(1, passes[1] + len(gradient)))

    model.register_forward_hook(count)
    images, labels = _peers_torch.first(task.images), torch.from_numpy(task.logits.argmax(1))
    attacks = {name: make(model, *name.split()) for name in task.settings["attacks"]}

    def run_attack(name):
        passes[:] = 0
        points = attacks[name](images, labels).detach().numpy()
        return np.moveaxis(points, 1, -1), passes / len(images)

    def predict(points):
        with torch.no_grad():
            return model(_peers_torch.first(points)).numpy()

    return *_measured(task, run_attack, predict), _peers_torch.versions(package)


def _measured(task, run_attack, predict):
    """Return the functions (run, outcome) of a side.

    Args:
        task: its predictions are the labels, so that every image is attacked.
        run_attack: name -> adversarial images [n, h, w, c], and the forward and backward passes of an image.
        predict: images -> logits [n, k].
    """

    def run():
        results = {}
        for name in task.settings["attacks"]:
            start = time.perf_counter()
            adversarial, passes = run_attack(name)
            results[name] = adversarial, passes.tolist(), time.perf_counter() - start
        return results

    def outcome(results):
        attacks = {}
        for name, (adversarial, passes, seconds) in results.items():
            change = (adversarial - task.images).reshape(len(adversarial), -1)
            distance = np.linalg.norm(change, ORDERS[name.split()[1]], axis=1)
            distance[predict(adversarial).argmax(1) == task.logits.argmax(1)] = np.inf
            attacks[name] = {
                "seconds": seconds,
                "passes": passes,
                "median": float(np.median(distance)),
                "missing": int(np.isinf(distance).sum()),
            }
        return {"attacks": attacks}

    return run, outcome
