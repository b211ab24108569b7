"""Ensembles: attacks that run one after the other on the remaining examples; custom ones and AutoAttack."""

from collections.abc import Callable

import keras

from tfrobust.attacks.apgd import APGDDLR, APGDCrossEntropy, APGDTargeted
from tfrobust.attacks.fab import FAB, FABUntargeted
from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.attacks.square import Square
from tfrobust.errors import InputError


class _Cascade(Attack):
    """Base of ensembles: an attack that consists of its members only."""

    def __init__(self, members: tuple[Attack, ...]):
        self._members = members
        self.threat = members[0].threat
        self.steps = sum(member.steps for member in members)
        self.needs_gradient = any(member.needs_gradient for member in members)

    @property
    def members(self) -> tuple[Attack, ...]:
        """The attacks, in their order."""
        return self._members

    def rounds(self, class_count: int) -> int:
        """Return the rounds of all members, summed."""
        return sum(member.rounds(class_count) for member in self.members)

    def most_passes(self, class_count: int) -> tuple[int, int]:
        """Return the largest numbers of forward and backward passes of all members, summed."""
        forward, backward = zip(*(member.most_passes(class_count) for member in self.members), strict=True)
        return sum(forward), sum(backward)

    def maximize(self, objective: Callable, images, key):
        """Raise NotImplementedError: ensembles are for evaluation."""
        raise NotImplementedError(f"{type(self).__name__} is for evaluation; train with one of its members.")

    def fallback(self, class_count: int) -> str:
        """Return the losses of members that are not defined for so few classes and their substitutes, or "" if none."""
        words = [member.fallback(class_count) for member in self.members if hasattr(member, "fallback")]
        return "; ".join(dict.fromkeys(filter(None, words)))


@keras.saving.register_keras_serializable(package="tfrobust")
class Ensemble(_Cascade):
    """Custom ensemble: each member attacks, from the clean images, the examples on which all before it failed.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * images[:, 0, 0]  # two classes: which of two channels is brighter
        >>> threat = robust.attacks.ThreatModel(epsilon=0.2)
        >>> members = (robust.attacks.UniformNoise(threat, draws=1), robust.attacks.FGSM(threat))
        >>> images = np.array([[0.6, 0.35], [1.0, 0.0]], "float32").reshape(2, 1, 1, 2)
        >>> result = robust.attacks.run_attack(robust.attacks.Ensemble(members), predict, images, np.array([0, 0]))
        >>> result.success.tolist(), bool(result.member.max() <= 1)
        ([True, False], True)

    Args:
        attacks: two or more in one threat model, cheap ones first, with different names.

    Raises:
        ValueError: fewer than two attacks, different threat models, equal names, or a member that is an ensemble or a
            minimal-norm attack.
    """

    name = "ensemble"

    def __init__(self, attacks: tuple[Attack, ...]):
        if not isinstance(attacks, (tuple, list)):
            raise InputError(f"Ensemble.attacks is a {type(attacks).__name__}; it must be a tuple of attacks.")
        self.attacks = tuple(attacks)
        if len(self.attacks) < 2:
            raise InputError(f"Ensemble.attacks has {len(self.attacks)} attacks; it needs two or more.")
        for attack in self.attacks:
            if attack.members or attack.minimal:
                kind = "an ensemble" if attack.members else "a minimal-norm attack"
                raise InputError(f"Ensemble.attacks holds {type(attack).__name__}, {kind}; its members are single.")
        if len({attack.threat for attack in self.attacks}) > 1:
            raise InputError("The attacks of an Ensemble must have one threat model; these have several.")
        names = [attack.name for attack in self.attacks]
        if len(set(names)) < len(names):
            raise InputError(f"The attacks of an Ensemble must have distinct names; these are {names}.")
        super().__init__(self.attacks)

    def with_epsilon(self, epsilon: float):
        """Return the ensemble with another radius for each member."""
        return type(self)(tuple(attack.with_epsilon(epsilon) for attack in self.attacks))


@keras.saving.register_keras_serializable(package="tfrobust")
class AutoAttack(_Cascade):
    """AutoAttack: each member attacks, from the clean images, the examples on which all before it failed.

    `standard`: APGD on the cross-entropy, APGD on the targeted DLR loss, targeted FAB and Square, without any parameter
    to tune. `plus`: more restarts, and the untargeted APGD-DLR and FAB. `rand`: for stochastic models, APGD with
    gradients averaged over `expectation_samples` passes. For a custom ensemble see `Ensemble`.

    Differences from the authors' package: a successful point ends the search for its image; random draws follow from
    each image's own key; every success is projected and predicted again. With a deterministic model none of them can
    increase the reported accuracy. With a stochastic model the last one can: the authors count a point that was
    misclassified once. Here a point met in the search must be misclassified a second time, or the search continues.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.AutoAttack(robust.attacks.ThreatModel(norm="l2", epsilon=0.5))
        >>> [member.name for member in attack.members]
        ['apgd_ce', 'apgd_t', 'fab_t', 'square']

    Args:
        threat: the threat model, with its radius.
        version: 'standard', 'plus' or 'rand'.
        expectation_samples: passes per gradient in version 'rand', >= 1.

    Raises:
        ValueError: unknown version.

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/2003.01690; L1: Croce & Hein 2021, https://arxiv.org/abs/2103.01208.
    """

    def __init__(self, threat: ThreatModel | None = None, *, version: str = "standard", expectation_samples: int = 20):
        self.threat = required_threat(threat, type(self).__name__)
        self.version = version
        self.expectation_samples = expectation_samples
        if version not in _VERSIONS:
            hint = "; an ensemble of your own is an Ensemble" if version == "custom" else ""
            raise InputError(f"AutoAttack.version is {version!r}; it is one of {list(_VERSIONS)}{hint}.")
        checks.check_norm(self)
        self.name = "autoattack" if version == "standard" else f"autoattack_{version}"
        super().__init__(_VERSIONS[version](self.threat, expectation_samples))

    @property
    def resolved_expectation_samples(self) -> int | None:
        """The number of passes per gradient for reports; None for versions without averaging."""
        return self.expectation_samples if self.version == "rand" else None


def standard_member(threat: ThreatModel | None = None, *, name: str = "apgd_ce") -> Attack:
    """Return one member of AutoAttack's standard version, with its parameters for the threat's norm.

    Example:
        >>> from tfrobust import keras as robust
        >>> threat = robust.attacks.ThreatModel(norm="l1", epsilon=12.0)
        >>> robust.attacks.standard_member(threat, name="apgd_t").targets
        5

    Args:
        threat: the threat model, with its radius.
        name: 'apgd_ce', 'apgd_t', 'fab_t' or 'square'.

    Raises:
        ValueError: no such member.
    """
    # The others may refuse the threat model.
    makers = _makers(required_threat(threat, "standard_member"))
    if name not in makers:
        raise InputError(f"AutoAttack has no member {name!r}; its members are {list(makers)}.")
    return makers[name]()


def _makers(threat: ThreatModel) -> dict[str, Callable]:
    # The L1 landscape needs more restarts; fewer targets keep the cost equal.
    restarts, targets = (5, 5) if threat.norm == "l1" else (1, 9)
    return {
        "apgd_ce": lambda: APGDCrossEntropy(threat, restarts=restarts),
        "apgd_t": lambda: APGDTargeted(threat, targets=targets),
        "fab_t": lambda: FAB(threat),
        "square": lambda: Square(threat),
    }


def _standard(threat: ThreatModel, _) -> tuple[Attack, ...]:
    return tuple(make() for make in _makers(threat).values())


def _plus(threat: ThreatModel, _) -> tuple[Attack, ...]:
    return (
        APGDCrossEntropy(threat, restarts=5),
        APGDDLR(threat, restarts=5),
        FABUntargeted(threat, restarts=5),
        Square(threat),
        APGDTargeted(threat),
        FAB(threat),
    )


def _rand(threat: ThreatModel, expectation_samples: int) -> tuple[Attack, ...]:
    return (
        APGDCrossEntropy(threat, expectation_samples=expectation_samples),
        APGDDLR(threat, expectation_samples=expectation_samples),
    )


_VERSIONS = {"standard": _standard, "plus": _plus, "rand": _rand}
