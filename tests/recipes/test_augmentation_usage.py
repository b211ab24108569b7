"""What a comment in a gin file tells users to write is what works."""

import pathlib
import re

import gin

from tfrobust import cli
from tfrobust.augment.policies import AutoAugment
from tfrobust.augment.standard import Compose, PadCrop, RandomFlip

GIN = pathlib.Path(__file__).resolve().parents[2] / "gin"


def test_the_flags_for_an_augmentation_of_cifar_build_it():
    data = GIN / "data" / "cifar.gin"
    flags = [line.split('"')[1] for line in data.read_text().splitlines() if re.match(r"#   --gin_param=", line)]
    assert len(flags) == 3
    cli.configure([str(GIN / "supervised.gin"), str(data)], flags)
    given = gin.get_bindings("tfrobust.experiment.train", resolve_references=True)
    assert given["augmentation"] == Compose(augmentations=(RandomFlip(), PadCrop(), AutoAugment(policy="cifar10")))
