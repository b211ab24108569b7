"""Results of the official AutoAttack on three digits models (tests/golden/autoattack_verdicts.npz), and ours."""

import functools
import pathlib
from typing import NamedTuple

import keras
import numpy as np
import recordings

from tfrobust.attacks import ensemble
from tfrobust.attacks.shared import runner, threat
from tfrobust.keras.models import DigitsCNN, LinearHead

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
MEMBERS = ("apgd-ce", "apgd-t", "fab-t", "square")
# The deployable's variables in the order of Keras and of an export.
_UNIT = ("kernel", "norm/gamma", "norm/beta", "norm/moving_mean", "norm/moving_variance")
VARIABLES = (
    *(f"stage{stage}/{name}" for stage in range(3) for name in _UNIT),
    *(f"{layer}/{name}" for layer in ("dense", "head") for name in ("kernel", "bias")),
)


class Case(NamedTuple):
    """One model in one norm under the ensemble or one member, as recorded.

    robust: bool [seeds, n]: still classified correctly at the end. cumulative: bool [members, n], of the first
    seed, after each member of the ensemble in their order. seconds: of the first seed.
    """

    model: str
    norm: str
    attack: str
    epsilon: float
    robust: np.ndarray
    cumulative: np.ndarray
    seconds: float


class Comparison(NamedTuple):
    """differing: verdicts of ours that are not the official ones, spread: of its seeds among each other."""

    differing: int
    spread: int
    allowed: int

    @property
    def equal(self) -> bool:
        return self.differing <= self.allowed


def recorded(name: str) -> dict[str, np.ndarray]:
    return recordings.arrays(f"autoattack_{name}")


def data() -> tuple[np.ndarray, np.ndarray]:
    """The images, float32 [n, 8, 8, 1], and the labels, int32 [n]."""
    return recorded("models")["images"].astype(np.float32) / 16, recorded("models")["labels"].astype(np.int32)


@functools.cache
def model(name: str) -> keras.Model:
    """A digits model of the recorded weights."""
    encoder, head = DigitsCNN(), LinearHead(10)
    built = keras.Sequential([keras.Input((8, 8, 1)), encoder, head])
    built.set_weights([recorded("models")[f"{name}/{variable}"].astype(np.float32) for variable in VARIABLES])
    return built


def cases() -> list[Case]:
    """All of them, ensembles first."""
    verdicts, count = recorded("verdicts"), len(data()[1])
    listed = []
    for attack in ("ensemble", *MEMBERS):
        for key in verdicts:
            name, norm, *rest = key.split("/")
            if rest == [attack, "0", "robust"]:
                seeds = [seed for seed in range(9) if f"{name}/{norm}/{attack}/{seed}/robust" in verdicts]
                packed = [verdicts[f"{name}/{norm}/{attack}/{seed}/robust"] for seed in seeds]
                flags = [np.unpackbits(bits, axis=-1, count=count).astype(bool) for bits in packed]
                epsilon, seconds = verdicts[f"{name}/{norm}/epsilon"], verdicts[f"{name}/{norm}/{attack}/0/seconds"]
                last = np.stack([seed_flags[-1] for seed_flags in flags])
                listed.append(Case(name, norm.lower(), attack, float(epsilon), last, flags[0], float(seconds)))
    return listed


def case(model: str, norm: str, attack: str) -> Case:
    (match,) = [
        candidate
        for candidate in cases()
        if (candidate.model, candidate.norm, candidate.attack) == (model, norm, attack)
    ]
    return match


def compare(case: Case, robust: np.ndarray) -> Comparison:
    """Ours, bool [n], against the nearest of the official seeds; allowed: their spread, or 1 % of n if that is more."""
    spread = max(int(np.sum(first != second)) for first in case.robust for second in case.robust)
    differing = min(int(np.sum(robust != official)) for official in case.robust)
    return Comparison(differing, spread, max(spread, len(robust) // 100))


def attack_with_ours(case: Case, seed: int = 0) -> np.ndarray:
    """Ours on a case, bool [members, n]: still classified correctly after each member."""
    autoattack = ensemble.AutoAttack(threat.ThreatModel(norm=case.norm, epsilon=case.epsilon))
    attack = autoattack if case.attack == "ensemble" else autoattack.members[MEMBERS.index(case.attack)]
    result = runner.run_attack(attack, model(case.model), *data(), seed=seed, batch_size=len(data()[1]))
    if case.attack != "ensemble":
        return ~result.success[None]
    return np.stack([~(result.success & (result.member <= number)) for number in range(len(MEMBERS))])
