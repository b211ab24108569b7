"""Records of numbers on changed images without an attacker: corruptions, sequences, random pixels, shifted sets."""

from __future__ import annotations

from tfrobust.report.catalog.record import Absence, Family, Quantity, Record
from tfrobust.report.catalog.spelling import text
from tfrobust.report.formats import nice

# Settings that say how images were changed, and by which baseline errors were divided.
_IMAGES = ("source", "constants_of", "frost", "corruptions", "names", "severities", "images_sha256", "classes")
_BASELINE = ("baseline", "baseline_sha256")
_SHARE = Quantity(better=1)
_DROP = Quantity(better=-1, signed=True)


def _mean(label: str, **more) -> Quantity:
    return Quantity(label=label, better=1, **more)


_CORRUPTION_FAMILY = Family(
    name="corruption",
    place=40,
    natural="natural corruptions",
    absences={
        "images": Absence(
            sentence="Natural corruptions (noise, blur, weather, digital).", words="noise, blur and weather"
        )
    },
    other_images="corrupted",
)
CORRUPTION = Record(
    family=_CORRUPTION_FAMILY,
    prefix=lambda settings: f"corruption.{text(settings['corruption'])}.{settings['severity']}",
    quantities={"accuracy": _SHARE, "drop": _DROP},
    must_agree=(*_IMAGES, *_BASELINE, "severity"),
)
CORRUPTION_MEAN = Record(
    family=_CORRUPTION_FAMILY,
    prefix="corruption",
    quantities={
        "mean.accuracy": _mean("Corruptions, mean accuracy", headline=0, corruptions=15, has_frost=True),
        "mean_without_noise.accuracy": _mean(
            "Corruptions without noise, mean accuracy", corruptions=12, has_frost=True
        ),
        "mean_noise.accuracy": _mean("Noise, mean accuracy"),
        "mean_blur.accuracy": _mean("Blur, mean accuracy"),
        "mean_weather.accuracy": _mean("Weather, mean accuracy", has_frost=True),
        "mean_digital.accuracy": _mean("Digital, mean accuracy"),
        "mce": Quantity(label="Mean corruption error (mCE)", better=-1, headline=0, has_frost=True),
        "relative_mce": Quantity(label="Relative mCE", better=-1, has_frost=True),
    },
    must_agree=(*_IMAGES, *_BASELINE),
)
_CLIP_CORRUPTION_FAMILY = Family(
    name="clip_corruption",
    place=50,
    is_ranked=False,
    natural="clip corruptions",
    absences={
        "clips": Absence(
            sentence="Corruptions of frames and of time (noise, blur, lost, frozen or reordered frames).",
            words="noisy, blurred or lost frames",
            order=1,
        )
    },
)
CLIP_CORRUPTION = Record(
    family=_CLIP_CORRUPTION_FAMILY,
    prefix=lambda settings: f"clip_corruption.{text(settings['corruption'])}.{settings['severity']}",
    quantities={"accuracy": _SHARE, "drop": _DROP},
    must_agree=(*_IMAGES, "severity"),
)
CLIP_CORRUPTION_MEAN = Record(
    family=_CLIP_CORRUPTION_FAMILY,
    prefix="clip_corruption",
    quantities={
        "mean_temporal.accuracy": _mean("Clip corruptions in time, mean accuracy"),
        "mean_frames.accuracy": _mean("Clip corruptions of frames, mean accuracy"),
    },
    must_agree=_IMAGES,
)
_STABILITY_FAMILY = Family(
    name="stability",
    place=60,
    natural="perturbation sequences",
    absences={
        # Of single images: clips have none.
        "images": Absence(sentence="Stability of predictions along small natural changes (perturbation sequences).")
    },
    other_images="sequences",
)
STABILITY = Record(
    family=_STABILITY_FAMILY,
    prefix=lambda settings: f"stability.{text(settings['sequence'])}",
    quantities={"flip_probability": Quantity(better=-1), "flip_rate": Quantity(better=-1)},
    must_agree=("source", "constants_of", "sequences", "images_sha256", "classes", *_BASELINE),
)
STABILITY_MEAN = Record(
    family=_STABILITY_FAMILY,
    prefix="stability",
    quantities={
        "mean.flip_probability": Quantity(label="Mean flip probability", better=-1, headline=0),
        "mfr": Quantity(label="Mean flip rate (mFR)", better=-1, headline=0),
    },
    must_agree=("source", "constants_of", "sequences", "images_sha256", "classes", *_BASELINE),
)
_NOISE_FAMILY = Family(name="noise", place=70, natural="random pixels", other_images="noise")
NOISE = Record(
    family=_NOISE_FAMILY,
    prefix="noise",
    quantities={
        "uniform.accuracy": _mean("Uniform noise (UN), accuracy", headline=0),
        "non_uniform.accuracy": _mean("Non-uniform noise (NUN), accuracy", headline=0),
    },
    must_agree=("source", "share", "levels", "count"),
)

_SETS = {"imagenet_r": "ImageNet-R", "imagenet_a": "ImageNet-A"}
_SHIFT_FAMILY = Family(name="shift", place=80, natural="the measured shifted sets")
SHIFT = Record(
    family=_SHIFT_FAMILY,
    prefix=lambda settings: f"shift.{text(settings['set'])}",
    quantities={
        "accuracy": _mean("accuracy", headline=0),
        "ece": Quantity(label="calibration error (ECE)", better=-1),
        "rms": Quantity(label="calibration error (RMS)", better=-1),
        "aurra": Quantity(label="AURRA", better=1),
    },
    label=lambda settings, quantity: f"{_SETS.get(settings['set'], nice(settings['set']))}, {quantity.label}",
    must_agree=("source", "classes", "bins", "bin_size"),
)
