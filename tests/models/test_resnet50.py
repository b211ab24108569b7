"""The readings of ResNet-50; the rows of the battery check sizes and behaviour."""

from tfrobust.models.blocks import PreActivationBlock
from tfrobust.models.resnet50 import ResNet50


def test_bottleneck_is_three_four_six_three():
    encoder = ResNet50()
    blocks = [[b for b in stage if hasattr(b, "convolutions")] for stage in encoder.stage_layers]
    assert [len(stage) for stage in blocks] == [3, 4, 6, 3]
    assert [stage[0].convolutions for stage in blocks] == [
        ((64, 1, 1), (64, 3, 1), (256, 1, 1)),
        ((128, 1, 1), (128, 3, 2), (512, 1, 1)),
        ((256, 1, 1), (256, 3, 2), (1024, 1, 1)),
        ((512, 1, 1), (512, 3, 2), (2048, 1, 1)),
    ]
    assert all(block.project == (i == 0) for stage in blocks for i, block in enumerate(stage))
    assert not encoder.stage_layers[0][0].style.use_bias


def test_the_second_version_has_the_same_paths():
    encoders = [ResNet50(width=2), ResNet50("bottleneck_v2", width=2)]
    first, second = ([b for stage in one.stage_layers for b in stage if hasattr(b, "project")] for one in encoders)
    assert [(b.convolutions, b.project) for b in first] == [(b.convolutions, b.project) for b in second]
    assert all(isinstance(b, PreActivationBlock) and b.shortcut == "standard" for b in second)
    stem = encoders[1].stage_layers[0][0]
    assert not (stem.normalize or stem.activate or stem.style.use_bias) and len(encoders[1].neck) == 3


def test_cifar_reading_is_resnet_of_depth_50():
    encoder = ResNet50("cifar_6n+2")
    blocks = [[b for b in stage if hasattr(b, "convolutions")] for stage in encoder.stage_layers]
    assert [len(stage) for stage in blocks] == [8, 8, 8]
    assert encoder.dim == 64 and encoder.stage_layers[0][0].style.use_bias


def test_the_pooled_reading_has_identities_of_constant_width():
    encoder = ResNet50("pooled")
    blocks = [[b for b in stage if hasattr(b, "convolutions")] for stage in encoder.stage_layers]
    assert [len(stage) for stage in blocks] == [3, 4, 6, 3] and encoder.dim == 512
    for stage, width in zip(blocks, (64, 128, 256, 512), strict=True):
        quarter = width // 4
        assert {b.convolutions for b in stage} == {((quarter, 1, 1), (quarter, 3, 1), (width, 1, 1))}
        assert not any(b.project for b in stage)
    assert [type(stage[1]).__name__ for stage in encoder.stage_layers[1:]] == ["AveragePooling2D"] * 3
