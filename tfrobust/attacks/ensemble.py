"""Attacks one after the other on what still stands: any, and the official AutoAttack."""

from collections.abc import Callable

import keras

from tfrobust.attacks import base
from tfrobust.attacks.apgd import APGDDLR, APGDCrossEntropy, APGDTargeted
from tfrobust.attacks.fab import FAB, FABUntargeted
from tfrobust.attacks.square import Square
from tfrobust.attacks.threat import ThreatModel
from tfrobust.errors import InputError


class _Cascade(base.Attack):
    """An attack that is nothing but its members."""

    @property
    def steps(self) -> int:
        """Of one round of each member."""
        return sum(member.steps for member in self.members)

    @property
    def needs_gradient(self) -> bool:
        return any(member.needs_gradient for member in self.members)

    def rounds(self, class_count: int) -> int:
        return sum(member.rounds(class_count) for member in self.members)

    def perturb(self, objective: Callable, images, key):
        raise NotImplementedError(f"{type(self).__name__} judges models; train with one of its members.")

    def fallback(self, class_count: int) -> str:
        """What members do where their loss is not defined for so few classes; "" if all are."""
        words = [member.fallback(class_count) for member in self.members if hasattr(member, "fallback")]
        return "; ".join(dict.fromkeys(filter(None, words)))


@keras.saving.register_keras_serializable(package="tfrobust")
class Ensemble(_Cascade):
    """Attacks of your choice: each starts from the clean images that all before it left standing.

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
    """

    name = "ensemble"

    def __init__(self, attacks: tuple[base.Attack, ...]):
        """Args:

        attacks: two or more in one threat model, cheap ones first, with different names.

        Raises:
            ValueError: fewer, different threats, equal names, or one that is an ensemble or minimal.
        """
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
            raise InputError(f"The attacks of an Ensemble are told apart by their names; these are {names}.")

    @property
    def members(self):
        return self.attacks

    @property
    def threat(self) -> ThreatModel:
        """The one of all members."""
        return self.attacks[0].threat

    def with_epsilon(self, epsilon: float):
        return type(self)(tuple(attack.with_epsilon(epsilon) for attack in self.attacks))


@keras.saving.register_keras_serializable(package="tfrobust")
class AutoAttack(_Cascade):
    """The official ensemble: each member attacks, from the clean images, what those before it left standing.

    `standard`: APGD on the cross-entropy, APGD on the targeted DLR loss, targeted FAB, Square, without any
    parameter to tune. `plus`: more restarts, and the untargeted APGD-DLR and FAB. `rand`: for models that draw,
    APGD on gradients averaged over `expectation_samples` passes. An ensemble of your own is an `Ensemble`.

    Differences from the authors' package: a successful point ends the search for its image; draws follow from each
    image's own key; every success is projected and predicted again. With a model that answers alike when asked
    again, none of them can raise an accuracy. With one that draws, the last may: the authors count a point that was
    wrong in one draw, here one met in the search must be wrong in a second one too, else the search goes on.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.AutoAttack(robust.attacks.ThreatModel(norm="l2", epsilon=0.5))
        >>> [member.name for member in attack.members]
        ['apgd_ce', 'apgd_t', 'fab_t', 'square']

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/2003.01690; L1: Croce & Hein 2021,
        https://arxiv.org/abs/2103.01208.
    """

    def __init__(self, threat: ThreatModel | None = None, *, version: str = "standard", expectation_samples: int = 20):
        """Args:

        threat: where; the default ThreatModel if None.
        version: 'standard', 'plus' or 'rand'.
        expectation_samples: of 'rand', passes per gradient, >= 1.

        Raises:
            ValueError: no such version.
        """
        self.threat = threat or ThreatModel()
        self.version = version
        self.expectation_samples = expectation_samples
        if version not in _VERSIONS:
            hint = "; an ensemble of your own is an Ensemble" if version == "custom" else ""
            raise InputError(f"AutoAttack.version is {version!r}; it is one of {list(_VERSIONS)}{hint}.")
        self._members = _VERSIONS[version](self.threat, expectation_samples)

    @property
    def name(self) -> str:
        """`autoattack`, and the version behind it if it is not the standard one."""
        return "autoattack" if self.version == "standard" else f"autoattack_{self.version}"

    @property
    def members(self):
        return self._members

    @property
    def resolved_expectation_samples(self) -> int | None:
        """What a report says: None where the version averages nothing."""
        return self.expectation_samples if self.version == "rand" else None


def standard_member(threat: ThreatModel | None = None, *, name: str = "apgd_ce") -> base.Attack:
    """One member of AutoAttack's standard version alone, with the parameters that it has there in the threat's norm.

    Example:
        >>> from tfrobust import keras as robust
        >>> threat = robust.attacks.ThreatModel(norm="l1", epsilon=12.0)
        >>> robust.attacks.standard_member(threat, name="apgd_t").targets
        5

    Args:
        threat: where; the default ThreatModel if None.
        name: 'apgd_ce', 'apgd_t', 'fab_t' or 'square'.

    Raises:
        ValueError: no such member.
    """
    members = {member.name: member for member in AutoAttack(threat).members}
    if name not in members:
        raise InputError(f"AutoAttack has no member {name!r}; its members are {list(members)}.")
    return members[name]


def _standard(threat: ThreatModel, _) -> tuple[base.Attack, ...]:
    # The sparse L1 landscape takes more restarts, and fewer targets pay for them.
    restarts, targets = (5, 5) if threat.norm == "l1" else (1, 9)
    return (
        APGDCrossEntropy(threat, restarts=restarts),
        APGDTargeted(threat, targets=targets),
        FAB(threat),
        Square(threat),
    )


def _plus(threat: ThreatModel, _) -> tuple[base.Attack, ...]:
    return (
        APGDCrossEntropy(threat, restarts=5),
        APGDDLR(threat, restarts=5),
        FABUntargeted(threat, restarts=5),
        Square(threat),
        APGDTargeted(threat),
        FAB(threat),
    )


def _rand(threat: ThreatModel, expectation_samples: int) -> tuple[base.Attack, ...]:
    return (
        APGDCrossEntropy(threat, expectation_samples=expectation_samples),
        APGDDLR(threat, expectation_samples=expectation_samples),
    )


_VERSIONS = {"standard": _standard, "plus": _plus, "rand": _rand}
