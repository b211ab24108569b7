"""Accuracy of whole videos, each of which has several clips: clean, and under an attack on all its clips jointly."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.modes import video_predict
from tfrobust.common.kinds import CLIPS
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import chunks, searching, statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.predictor import Predictor
from tfrobust.evaluation.evaluators.accuracy import accuracy
from tfrobust.evaluation.evaluators.adversarial import AttackAccuracy
from tfrobust.report.catalog.under_attack import VIDEO
from tfrobust.structs import Finding, Measurement, Series


@dataclasses.dataclass(frozen=True, kw_only=True)
class VideoAccuracy(Evaluator):
    """Accuracy of videos, `video.accuracy`, and that of their clips, `video.clip_accuracy`.

    The class of a video has the largest mean of the softmax over its clips. Clips of one video are not independent:
    both intervals are over videos, and n is their number. For clips it is that of the mean over videos of the share of
    correctly classified clips. `accuracy.clean` has the same value, but counts each clip as an example of its own.
    """

    kinds: ClassVar[tuple[str, ...]] = (CLIPS.name,)

    def run(self, setting: Setting) -> Outcome:
        """Measure both accuracies."""
        videos = as_videos(setting)
        settings = {"clips_per_video": _clips(setting), "prediction": "mean softmax over clips"} | setting.vote_settings
        shares = setting.clean_correct.reshape(len(videos.labels), -1).mean(axis=1)
        low, high = statistics.share_interval(shares)
        of_clips = Measurement(
            VIDEO.id("clip_accuracy"),
            float(shares.mean()),
            n=len(shares),
            low=low,
            high=high,
            settings={
                **settings,
                "prediction": "clip",
                "interval": f"95 % over videos, {statistics.share_kind('video')}",
            },
        )
        return Outcome([accuracy(VIDEO.id("accuracy"), videos.clean_correct, settings, "videos"), of_clips])

    def check(self, setting: Setting) -> None:
        """Raise ValueError if the clips are not those of videos."""
        _clips(setting)

    def ids(self) -> tuple[str, ...]:
        """Return ("video.accuracy", "video.clip_accuracy")."""
        return (VIDEO.id("accuracy"), VIDEO.id("clip_accuracy"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class VideoAttackAccuracy(Evaluator):
    """Accuracy of videos under an attack on all their clips jointly, `video.attack.<label>_<norm>_<epsilon>.accuracy`.

    The attack sees the clips of a video as one input, and `attacks.video_predict` of the model as its outputs. The norm
    of a perturbation is that over all clips of the video. The other measurements are those of `AttackAccuracy` with
    "video." in front. The memory of a step is that of `batch_size` clips, or of one video if that has more.

    Attributes:
        attack: the attack, with its own threat model.
        label: see `AttackAccuracy`.
        seconds: see `AttackAccuracy`.
        limit: maximum number of videos, drawn by the seed; None: all.
    """

    attack: Attack
    label: str | None = None
    seconds: float | None = None
    limit: int | None = None

    kinds: ClassVar[tuple[str, ...]] = (CLIPS.name,)
    whole_examples: ClassVar[bool] = False

    def run(self, setting: Setting) -> Outcome:
        """Run the attack and measure the accuracy it leaves."""
        outcome = self._of_videos.run(as_videos(setting))
        renamed = ([_renamed(part) for part in parts] for parts in (outcome.measurements, outcome.series))
        return Outcome(*renamed, [_of_whole_videos(finding) for finding in outcome.findings])

    def share(self, setting: Setting, shard: chunks.Shard) -> int:
        """Search a shard's chunks of the videos and store them; return the number of its videos."""
        videos = as_videos(setting)
        return searching.search_shard(videos, self._of_videos.searches(videos), shard)

    def check(self, setting: Setting) -> None:
        """Raise ValueError if the clips are not those of videos, or the attack suits neither them nor the model."""
        frames, *shape = setting.images.shape[1:]
        examples = (_clips(setting) * frames, *shape)
        for attack in (self.attack, *self.attack.members):
            attack.threat.check_examples(examples)
        searching.check_gradients(setting, self.attack)

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the accuracies, the drop and the median distance."""
        return tuple(f"video.{name}" for name in self._of_videos.ids())

    @property
    def _of_videos(self) -> AttackAccuracy:
        return AttackAccuracy(attack=self.attack, label=self.label, seconds=self.seconds, limit=self.limit)


def as_videos(setting: Setting) -> Setting:
    """Return a setting whose examples are videos: the frames of all clips one after the other, as one long clip.

    Returns:
        The setting, whose predictor gives the logarithm of the mean softmax over the clips of a video.

    Raises:
        ValueError: clips without `groups`, with different numbers of clips of a video, or not in order.
    """
    return setting.cached("as videos", lambda: _as_videos(setting))


def _as_videos(setting: Setting) -> Setting:
    clips = _clips(setting)
    count, *shape = setting.images.shape
    store = setting.store and dataclasses.replace(setting.store, common={**setting.store.common, "clips": clips})
    return dataclasses.replace(
        setting,
        predictor=joint(setting.predictor, clips, shape),
        images=setting.images.reshape(count // clips, clips * shape[0], *shape[1:]),
        labels=setting.labels[::clips],
        groups=None,
        validation_images=None,  # these remain clips
        validation_labels=None,
        batch_size=max(1, setting.batch_size // clips),
        store=store,
    )


def joint(predictor: Predictor, clips: int, shape) -> Predictor:
    """Return a predictor of videos from one of clips.

    Args:
        predictor: takes clips, and returns logits.
        clips: number of clips of a video.
        shape: (t, h, w, c) of a clip.

    Returns:
        A predictor of float32 [b, clips t, h, w, c], whose logits are those of `attacks.video_predict`.
    """
    return dataclasses.replace(
        predictor,
        logits=video_predict(predictor.logits, clips),
        embedding=None,
        image_shape=(clips * shape[0], *shape[1:]),
        name=f"{predictor.name}, mean over {clips} clips",
        outputs_probabilities=False,
        surrogate=predictor.surrogate and joint(predictor.surrogate, clips, shape),
        normalization=None,
    )


def _clips(setting: Setting) -> int:
    """Return the number of clips of each video."""
    if setting.groups is None:
        raise InputError("The accuracy of videos needs test clips with `groups`, as robust.data.Ucf101 makes them.")
    groups = np.asarray(setting.groups)
    clips = int(np.count_nonzero(groups == groups[0]))
    videos = groups[::clips]
    if len(np.unique(videos)) < len(videos) or not np.array_equal(np.repeat(videos, clips), groups):
        raise InputError("The accuracy of videos needs the same number of clips of each video, in the order of videos.")
    if not np.array_equal(np.repeat(setting.labels[::clips], clips), setting.labels):
        raise InputError("The accuracy of videos needs one label for all clips of a video.")
    return clips


def _of_whole_videos(finding: Finding) -> Finding:
    """Return a finding on an attack under the id of videos, which it counts in place of clips."""
    evidence = finding.evidence.replace("attack.", "video.attack.", 1).replace(" clips", " videos")
    return dataclasses.replace(finding, evidence=evidence)


def _renamed(item: Measurement | Series) -> Measurement | Series:
    """Return a measurement or a series of videos under its own id, and with intervals over videos."""
    head, _, rest = item.id.rpartition("attack.")
    interval = item.settings.get("interval")
    more = {} if interval is None else {"interval": interval.replace("over clips", "over videos")}
    return dataclasses.replace(item, id=f"{head}video.attack.{rest}", settings={**item.settings, **more})
