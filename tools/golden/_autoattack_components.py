"""The outputs of the official AutoAttack's parts on small inputs, which `record_autoattack.py components` records.

Every function takes the checkout and a dictionary that it fills; the entries are listed in
tests/golden/autoattack_components.md.
"""

from unittest import mock

import numpy as np
import torch
from _autoattack_torch import (
    Perceptron,
    Recorder,
    ResNet20,
    at_return,
    copied,
    draw,
    drawing,
    first,
    last,
    normal,
    official,
    seeded_networks,
)

SHAPE, CLASSES, HIDDEN = (6, 6, 2), 10, 24
# Some images become misclassified, but no label drops to the third place, where the gradient of DLR is zero and its
# sign is noise.
EPSILONS = {"linf": 0.03, "l2": 0.2, "l1": 0.5}
OFFICIAL_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}
STEPS = 30
FAB_STEPS = 15
RESIDUE = 1e-6
SQUARE_SHAPE, SQUARE_STEPS, SQUARE_SHARES = (8, 8, 2), 12, (0.8, 0.4, 0.2, 0.1, 0.05)
SCHEDULE_STEPS = (1, 3, 5, 10, 20, 30, 40, 50, 100, 200, 1000)


def images(name: str, count: int, shape=SHAPE) -> np.ndarray:
    """Draw images, many pixels of which lie on the faces of the box."""
    return np.clip(0.5 + 0.7 * draw(name, (count, *shape)), 0, 1)


def record_losses(repository, record):
    """Record CE, DLR and targeted DLR with their gradients by the logits, and DLR's values on exact ties."""
    base = official(repository, "autopgd_base")
    for classes in (10, 4):
        logits = 3 * normal(f"losses/{classes}", (16, classes))
        order = np.argsort(-logits, axis=-1)
        # The label is the first, the second, the third, the last; the target the second, the third, the first.
        labels = np.take_along_axis(order, np.tile([0, 1, 2, classes - 1], 4)[:, None], 1)[:, 0]
        targets = np.take_along_axis(order, np.tile([1, 2, 0, 0], 4)[:, None], 1)[:, 0]
        attack = base.APGDAttack_targeted(None, eps=0.1)
        attack.y_target = torch.tensor(targets)
        losses = {
            "ce": torch.nn.CrossEntropyLoss(reduction="none"),
            "dlr": attack.dlr_loss,
            "targeted_dlr": attack.dlr_loss_targeted,
        }
        name = f"losses/{classes}"
        record |= {f"{name}/logits": logits, f"{name}/labels": labels, f"{name}/targets": targets}
        for loss, function in losses.items():
            source = torch.tensor(logits, requires_grad=True)
            values = function(source, torch.tensor(labels))
            (gradient,) = torch.autograd.grad(values.sum(), source)
            record |= {f"{name}/{loss}": values.detach().numpy(), f"{name}/{loss}_gradient": gradient.numpy()}
    ties = np.array([[1, 1, 0, -1], [1, 0, 1, 1], [2, 2, 2, 2], [0, 0, 3, -3], [1, 1, 1, 0]], np.float32)
    values = base.APGDAttack(None, eps=0.1).dlr_loss(torch.tensor(ties), torch.zeros(5, dtype=torch.long))
    record |= {
        "losses/ties/logits": ties,
        "losses/ties/labels": np.zeros(5, np.int64),
        "losses/ties/dlr": values.numpy(),
    }
    return record


def record_l1_projection(repository, record):
    """Record projections onto L1 ball and box: ordinary, already inside, far outside, flat, and onto tiny balls."""
    project = official(repository, "autopgd_base").L1_projection
    points = images("l1_projection/images", 12)
    changes = normal("l1_projection/changes", (12, *SHAPE))
    changes[3:5] *= 0.01
    changes[5:7] *= 20
    changes[7] = 0
    changes[8] = -points[8]  # to the faces exactly
    changes[9, :3] = 0
    points[10] = 1.0
    points[11] = np.round(points[11])
    record |= {"l1_projection/images": points, "l1_projection/changes": changes}
    for epsilon in (0.05, 3.0, 20.0):
        more = project(first(points), first(changes), epsilon)
        record[f"l1_projection/{epsilon}"] = changes + last(more)
    return record


def network(classes: int) -> dict[str, np.ndarray]:
    return seeded_networks.perceptron(int(np.prod(SHAPE)), HIDDEN, classes)


def record_networks(repository, record):
    """Record the small networks' weights, images, and predictions there (the labels of all attacks)."""
    for classes in (10, 4):
        weights, points = network(classes), images(f"network/{classes}", 3)
        logits = Perceptron(weights)(first(points)).numpy()
        record |= {f"network/{classes}/{name}": value for name, value in weights.items()}
        record |= {f"network/{classes}/images": points, f"network/{classes}/logits": logits}
        record[f"network/{classes}/labels"] = logits.argmax(-1)
    return record


def is_attack_call(frame) -> bool:
    return frame.f_code.co_name == "attack_single_run"


def noise(norm: str, name: str, shape) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the name of the torch function that an attack's start calls, its value, and the noise that this means."""
    if norm == "linf":
        uniform = (draw(name, shape) + 1) / 2
        return "rand", uniform, 2 * uniform - 1
    gaussian = normal(name, shape)
    return "randn", gaussian, gaussian


def apgd(repository, recorder, norm: str, loss: str, steps: int, targets, epsilon=None):
    """Create an official APGD, ready for `attack_single_run`."""
    base = official(repository, "autopgd_base")
    kind = base.APGDAttack_targeted if targets is not None else base.APGDAttack
    keywords = {} if targets is not None else {"loss": loss}
    epsilon = EPSILONS[norm] if epsilon is None else epsilon
    attack = kind(recorder, n_iter=steps, norm=OFFICIAL_NORMS[norm], eps=epsilon, **keywords)
    if targets is not None:
        attack.y_target = torch.tensor(targets)
    return attack


def record_apgd_case(repository, record, name: str, norm: str, loss: str, classes: int, *, large: bool = False):
    """Record every point the model receives in one run, and the variables at its end."""
    points, labels = record[f"network/{classes}/images"], record[f"network/{classes}/labels"]
    targets = None
    if loss == "targeted_dlr":
        targets = np.argsort(record[f"network/{classes}/logits"], -1)[:, -2]
        record[f"{name}/targets"] = targets
    recorder = Recorder(Perceptron(network(classes)), is_attack_call, ("step_size", "topk"))
    attack = apgd(repository, recorder, norm, loss, STEPS, targets)
    attack.init_hyperparam(first(points))
    source, drawn, meaning = noise(norm, name, points.shape)
    ends, drawn = [], [np.moveaxis(drawn, -1, 1)] * 3
    # The L1 schedule draws its start by randn_like; each phase draws one more by randn, which it does not use.
    # The official count of changed pixels includes those that (x + y) - y left one rounding away from x.
    clean_count = mock.patch.object(
        official(repository, "autopgd_base"), "L0_norm", lambda change: (change.abs() > RESIDUE).flatten(1).sum(-1)
    )
    with drawing(source, *drawn), drawing("randn_like", *drawn), at_return("attack_single_run", ends), clean_count:
        if large:
            plan = [(scale * EPSILONS[norm], steps) for scale, steps in ((3.0, 9), (2.0, 9), (1.0, 12))]
            result = attack.decr_eps_pgd(first(points), torch.tensor(labels), *zip(*plan, strict=True))
        else:
            result = attack.attack_single_run(first(points), torch.tensor(labels))
    end = ends[-1]
    record |= {f"{name}/noise": meaning, f"{name}/iterates": np.stack(recorder.points)}
    # A step size is known from the first step on; the call before it receives the start.
    record[f"{name}/step_sizes"] = np.stack(
        [variables["step_size"] for variables in recorder.locals if "step_size" in variables]
    )
    if norm == "l1":
        record[f"{name}/top_shares"] = np.stack(
            [variables["topk"] for variables in recorder.locals if "topk" in variables]
        )
    record |= {f"{name}/best": last(result[0]), f"{name}/best_loss": copied(result[2])}
    record |= {f"{name}/robust": copied(result[1]), f"{name}/best_adversarial": last(result[3])}
    record |= {f"{name}/losses": end["loss_steps"].numpy(), f"{name}/end_step_size": copied(end["step_size"])}
    return record


def record_apgd(repository, record):
    """Record runs of APGD from a given start on the small networks."""
    for norm in EPSILONS:
        for loss in ("ce", "dlr", "targeted_dlr"):
            record_apgd_case(repository, record, f"apgd/{norm}/{loss}", norm, loss, CLASSES)
    record_apgd_case(repository, record, "apgd/linf/targeted_dlr_4", "linf", "targeted_dlr", 4)
    return record_apgd_case(repository, record, "apgd/l1/ce_large", "l1", "ce", CLASSES, large=True)


def record_schedules(repository, record):
    """Record the steps of APGD's checkpoints, found by observing calls that only a checkpoint makes."""
    base = official(repository, "autopgd_base")
    points, labels = record["network/10/images"][:2], torch.tensor(record["network/10/labels"][:2])
    # Only a checkpoint calls these: the oscillation check, or in L1 the count of changed pixels.
    watched = {"linf": (base.APGDAttack, "check_oscillation", "schedule"), "l1": (base, "L0_norm", "schedule/l1")}
    for norm, (owner, function, name) in watched.items():
        for steps in SCHEDULE_STEPS:
            recorder, seen = Recorder(Perceptron(network(10)), is_attack_call), []
            attack = apgd(repository, recorder, norm, "ce", steps, None)
            attack.init_hyperparam(first(points))
            real = getattr(owner, function)

            def watch(*arguments, real=real, seen=seen, recorder=recorder, **keywords):
                seen.append(len(recorder.points) - 1)
                return real(*arguments, **keywords)

            with mock.patch.object(owner, function, watch):
                attack.attack_single_run(first(points), labels)
            record[f"{name}/{steps}"] = np.array(seen, np.int64)
    return record


def hyperplanes() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return points, normals, offsets and kinds (the special property): 30 rows of 20 coordinates."""
    points = np.clip(0.5 + 0.7 * draw("fab/points", (30, 20)), 0, 1)
    normals = normal("fab/normals", (30, 20))
    offsets = (points * normals).sum(-1) + 3 * draw("fab/offsets", (30,))
    kinds = np.array(["ordinary"] * 30, dtype="U16")

    def special(rows, kind):
        kinds[rows] = kind
        return rows

    normals[special(slice(14, 16), "some zeros"), ::3] = 0
    normals[special(slice(16, 18), "tiny"), ::4] = 1e-9
    offsets[special(slice(18, 20), "out of reach")] = 100.0
    offsets[special(slice(20, 21), "out of reach")] = -100.0
    rows = special(slice(21, 23), "on the plane")
    offsets[rows] = (points[rows] * normals[rows]).sum(-1)
    points[special(slice(23, 25), "corner")] = np.round(points[23:25])
    normals[special(slice(25, 26), "equal normals")] = 1.0
    offsets[25] = points[25].sum() - 2.0
    normals[special(slice(26, 27), "one coordinate"), 1:] = 0
    offsets[26] = normals[26, 0] * (1 - points[26, 0])
    normals[special(slice(27, 28), "zero normal")] = 0
    offsets[special(slice(28, 30), "near")] = (points[28:] * normals[28:]).sum(-1) + 1e-3
    return points, normals, offsets.astype(np.float32), kinds


def record_fab_projections(repository, record):
    """Record box-constrained projections onto hyperplanes, ordinary and degenerate."""
    module = official(repository, "fab_projections")
    points, normals, offsets, kinds = hyperplanes()
    record |= {"fab/projection/points": points, "fab/projection/normals": normals}
    record |= {"fab/projection/offsets": offsets, "fab/projection/kinds": kinds}
    for norm in EPSILONS:
        project = getattr(module, f"projection_{norm}")
        moves = project(torch.tensor(points), torch.tensor(normals), torch.tensor(offsets)).numpy()
        record[f"fab/projection/{norm}"] = moves
    return record


def record_fab(repository, record):
    """Record runs of FAB: the points of its gradients, the nearest adversarial examples found, and random starts."""
    module = official(repository, "fab_pt")
    points, labels = record["network/10/images"], record["network/10/labels"]
    record["fab/targets"] = np.argsort(record["network/10/logits"], -1)[:, -3]
    for norm in EPSILONS:
        for targeted in (True, False):
            name = f"fab/{norm}/{'targeted' if targeted else 'untargeted'}"
            recorder = Recorder(Perceptron(network(10)), lambda frame: "diff_logits" in frame.f_code.co_name)
            keywords = {"norm": OFFICIAL_NORMS[norm], "n_iter": FAB_STEPS, "eps": EPSILONS[norm]}
            attack = module.FABAttack_PT(recorder, **keywords)
            attack.target_class = 3
            ends = []
            with at_return("attack_single_run", ends):
                adversarial = attack.attack_single_run(first(points), torch.tensor(labels), is_targeted=targeted)
            distance = copied(ends[-1]["res2"])
            record |= {f"{name}/iterates": np.stack(recorder.points), f"{name}/adversarial": last(adversarial)}
            record[f"{name}/distance"] = np.where(distance < 1e10, distance, np.inf)
        source, drawn, meaning = noise(norm, f"fab/start/{norm}", points.shape)
        recorder.points.clear()
        attack.n_iter = 1
        with drawing(source, np.moveaxis(drawn, -1, 1)):
            attack.attack_single_run(first(points), torch.tensor(labels), use_rand_start=True)
        record |= {f"fab/start/{norm}/noise": meaning, f"fab/start/{norm}/point": recorder.points[0]}
    return record


def watch_square(attack) -> dict[str, list]:
    """Wrap the random draws of a Square attack so that they are kept in order."""
    draws = {"positions": [], "signs": [], "transposed": []}
    integer, choice, pattern = attack.random_int, attack.random_choice, attack.eta

    def random_int(*arguments):
        draws["positions"].append(int(integer(*arguments)))
        return torch.tensor([draws["positions"][-1]])

    def random_choice(shape):
        draws["signs"].append(choice(shape))
        return draws["signs"][-1]

    def eta(side):
        before = pattern(side)
        rows_differ = not torch.equal(before[0].sign(), before[-1].sign())  # the halves are stacked vertically
        draws["transposed"].append(side > 1 and not rows_differ)
        return before

    attack.random_int, attack.random_choice, attack.eta = random_int, random_choice, eta
    return draws


def record_square_run(repository, record, norm: str):
    """Record the proposals of the first steps, with the draws they were made from."""
    module, name = official(repository, "square"), f"square/{norm}"
    points, labels = images("square/images", 3, SQUARE_SHAPE), torch.tensor([0, 1, 2])
    small = Perceptron(seeded_networks.perceptron(int(np.prod(SQUARE_SHAPE)), HIDDEN, CLASSES))
    # Very confident in the labels, so that the attack never succeeds and all images stay in the batch.
    offset = 50 * torch.nn.functional.one_hot(labels, CLASSES)
    recorder = Recorder(lambda x: small(x) + offset, lambda frame: "margin" in frame.f_code.co_name)
    attack = module.SquareAttack(recorder, OFFICIAL_NORMS[norm], SQUARE_STEPS, EPSILONS[norm])
    attack.init_hyperparam(first(points))
    attack.p_selection = lambda step: SQUARE_SHARES[step % len(SQUARE_SHARES)]
    draws, margins, judge = watch_square(attack), [], attack.margin_and_loss
    # Copies, because the attack overwrites the tensors with the lowest margins.
    attack.margin_and_loss = lambda x, y: margins.append(judge(x, y)[0]) or (margins[-1].clone(), margins[-1].clone())
    torch.manual_seed(0)
    queries, best = attack.attack_single_run(first(points), labels)
    steps = SQUARE_STEPS
    starts = len(draws["signs"]) - steps
    record |= {f"{name}/images": points, f"{name}/proposals": np.stack(recorder.points), f"{name}/best": last(best)}
    record[f"{name}/shares"] = np.resize(SQUARE_SHARES, steps)
    record[f"{name}/margins"] = np.stack([margin.numpy() for margin in margins])
    record[f"{name}/positions"] = np.array(draws["positions"], np.int64).reshape(steps, -1)
    record[f"{name}/signs"] = np.stack([sign.numpy().squeeze((-1, -2)) for sign in draws["signs"][starts:]])
    if norm != "linf":
        record[f"{name}/transposed"] = np.array(draws["transposed"][starts:])
    return record


def record_square_start(repository, record, norm: str, side: int):
    """Record the first query on gray images, with the signs drawn for it."""
    module, name = official(repository, "square"), f"square/{norm}/start/{side}"
    grey = np.full([2, side, side, 2], 0.5, np.float32)
    recorder = Recorder(lambda x: torch.tensor([[9.0, 0.0]]).repeat(len(x), 1))
    attack = module.SquareAttack(recorder, OFFICIAL_NORMS[norm], 0, EPSILONS[norm])
    attack.init_hyperparam(first(grey))
    draws = watch_square(attack)
    torch.manual_seed(side)
    attack.attack_single_run(first(grey), torch.zeros(2, dtype=torch.long))
    record[f"{name}/point"] = recorder.points[0]
    record[f"{name}/signs"] = np.stack([sign.numpy() for sign in draws["signs"]])
    record[f"{name}/transposed"] = np.array(draws["transposed"])
    return record


def record_square(repository, record):
    """Record Square's schedule, patterns, starts and proposals."""
    module = official(repository, "square")
    for queries in (5000, 1000):
        for rescaled in (False, True):
            attack = module.SquareAttack(None, n_queries=queries, eps=0.1, resc_schedule=rescaled)
            shares = [attack.p_selection(step) for step in range(12000 if queries == 5000 else 1000)]
            record[f"square/share/{queries}{'/rescaled' if rescaled else ''}"] = np.array(shares, np.float32)
    for norm in ("l2", "l1"):
        attack = module.SquareAttack(None, OFFICIAL_NORMS[norm], eps=0.1)
        attack.init_hyperparam(torch.zeros(1, 1, 1, 1))
        for side in (1, 2, 3, 4, 5, 6, 7, 9, 11, 27):
            with drawing("rand", np.zeros(1, np.float32)):
                record[f"square/pattern/{norm}/{side}"] = attack.eta(side).numpy()
        for side in (6, 8, 9, 11, 32):
            record_square_start(repository, record, norm, side)
    for side in (6, 9):
        record_square_start(repository, record, "linf", side)
    for norm in EPSILONS:
        record_square_run(repository, record, norm)
    return record


def record_resnet(repository, record):
    """Record a ResNet-20 of seeded weights: logits, DLR's gradient, and ten steps of APGD in Linf."""
    network_ = ResNet20(seeded_networks.resnet20())
    points = images("resnet/images", 4, (32, 32, 3))
    source = first(points).requires_grad_()
    logits = network_(source)
    labels = logits.argmax(-1)
    base = official(repository, "autopgd_base")
    values = base.APGDAttack(None, eps=0.1).dlr_loss(logits, labels)
    (gradient,) = torch.autograd.grad(values.sum(), source)
    record |= {"resnet/logits": logits.detach().numpy(), "resnet/labels": labels.numpy()}
    record |= {"resnet/dlr": values.detach().numpy(), "resnet/dlr_gradient": last(gradient)[:2]}
    recorder = Recorder(network_, is_attack_call)
    attack = apgd(repository, recorder, "linf", "ce", 10, None, epsilon=8 / 255)
    attack.init_hyperparam(first(points))
    drawn = (draw("resnet/start", points.shape) + 1) / 2
    ends = []
    with drawing("rand", np.moveaxis(drawn, -1, 1)), at_return("attack_single_run", ends):
        best, robust, loss, _ = attack.attack_single_run(first(points), labels)
    with torch.no_grad():
        record["resnet/apgd/logits"] = np.stack([network_(first(point)).numpy() for point in recorder.points])
    record |= {"resnet/apgd/best_loss": copied(loss), "resnet/apgd/robust": copied(robust)}
    record |= {"resnet/apgd/losses": ends[-1]["loss_steps"].numpy(), "resnet/apgd/best": last(best)[:1]}
    return record


RECORDERS = (
    record_losses,
    record_l1_projection,
    record_networks,
    record_schedules,
    record_apgd,
    record_fab_projections,
    record_fab,
    record_square,
    record_resnet,
)
