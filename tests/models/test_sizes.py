"""Encoders against published numbers of parameters and the sizes of their maps."""

import functools

import numpy as np
import pytest

from tfrobust.models.cnn import CNN, DigitsCNN, PaperCNN
from tfrobust.models.lenet import LeNet
from tfrobust.models.resnets.preact_resnet import PreActResNet18
from tfrobust.models.resnets.r2plus1d import R3D18, R2Plus1D18
from tfrobust.models.resnets.resnet import ResNet
from tfrobust.models.resnets.resnet18 import ResNet18
from tfrobust.models.resnets.resnet50 import ResNet50
from tfrobust.models.resnets.wide_resnet import WideResNet
from tfrobust.models.text_transformer import TextTransformer, TransformerStyle
from tfrobust.models.vit import ViT

COLOR, GREY = (32, 32, 3), (28, 28, 1)
TEXT = functools.partial(TextTransformer, 20, 6, width=8, depth=2, heads=2, inner=5)
BEFORE, BEHIND = TransformerStyle(), TransformerStyle(positions="sinusoidal", normalization="behind")
PLAIN = {"batch_normalization": False, "pooling": "stride"}
UNPADDED = {"batch_normalization": False, "padding": "valid"}
NOISYMIX = functools.partial(PreActResNet18, shortcut="activated", final_normalization=False)


@pytest.mark.parametrize(
    ("make", "image_shape", "classes", "published"),
    [
        # Keras's CIFAR networks; each block of three stages less takes 48,496 and 224 of its norms.
        (functools.partial(ResNet, 20), COLOR, 10, 273_066),
        (functools.partial(ResNet, 56), COLOR, 10, 857_706),
        (functools.partial(ResNet50, "cifar_6n+2"), COLOR, 10, 857_706 - 2 * 48_496 - 2 * 224),
        # Of TRADES and RobustBench, and of torchvision.
        (ResNet18, COLOR, 10, 11_173_962),
        (functools.partial(ResNet18, "imagenet"), COLOR, 1000, 11_689_512),
        (functools.partial(ResNet50, stem="imagenet"), COLOR, 1000, 25_557_032),
        # Keras's own second version trains 25,568,360; 3,840 + 15,104 + 64 of them are biases that are left out here.
        (functools.partial(ResNet50, "bottleneck_v2", stem="imagenet"), COLOR, 1000, 25_568_360 - 19_008),
        # Report 002's: convolutions with a bias, behind each an offset alone.
        (functools.partial(ResNet50, "pooled"), COLOR, 0, 1_516_448),
        # torchvision's for Kinetics-400.
        pytest.param(R2Plus1D18, (16, 112, 112, 3), 400, 31_505_325, marks=pytest.mark.rest),
        pytest.param(R3D18, (16, 112, 112, 3), 400, 33_371_472, marks=pytest.mark.rest),
        # The released PyTorch networks.
        (PreActResNet18, COLOR, 10, 11_172_170),
        (NOISYMIX, COLOR, 10, 11_171_146),
        (functools.partial(WideResNet, 28, 2), COLOR, 10, 1_467_610),
        (functools.partial(WideResNet, 28, 10), COLOR, 10, 36_479_194),
        # Biases where the paper's variant has none.
        (functools.partial(WideResNet, 10, 2, variant="noisymix"), COLOR, 0, 303_104),
        (LeNet, GREY, 10, 61_706),
        # Wong and Kolter's published file: 16x1x4x4, 32x16x4x4, 100x1568, 10x100 and biases; TRADES' SmallCNN.
        (functools.partial(CNN, **PLAIN, stages=(((16, 4, 2),), ((32, 4, 2),)), dense=(100,)), GREY, 10, 166_406),
        (
            functools.partial(CNN, ((32, 32), (64, 64)), dense=(200, 200), final_pool=True, **UNPADDED),
            GREY,
            10,
            312_202,
        ),
        # 9*32 + 9*32*64 + 9*64*128 without bias, 2 * (32 + 64 + 128) for batch norm, 128 * 128 + 128
        (DigitsCNN, (8, 8, 1), 0, 109_408),
        # Word and place vectors; in each layer four matrices of attention, two of the feed-forward, two norms.
        (functools.partial(TEXT, pooling="average", style=BEFORE), (6,), 0, 8 * (20 + 6 + 2) + 2 * 381),
        (functools.partial(TEXT, pooling="class", style=BEHIND), (6,), 0, 8 * (20 + 1) + 2 * 381),
        # DeiT-Ti, DeiT-S and torchvision's vit_b_16, which state these counts.
        (functools.partial(ViT, heads=3, width=192), (224, 224, 3), 1000, 5_717_416),
        (functools.partial(ViT, heads=6), (224, 224, 3), 1000, 22_050_664),
        (functools.partial(ViT, heads=12, width=768), (224, 224, 3), 1000, 86_567_656),
        # 1,792 + 36,928 + 73,856 + 147,584 + (8*8*128 * 256 + 256 = 2,097,408) + 65,792
        (PaperCNN, COLOR, 0, 2_423_360),
        # + one more 64-64 (36,928), 128-128 (147,584) and 256-256 (65,792)
        (functools.partial(PaperCNN, "cifar100"), COLOR, 0, 2_673_664),
        # 320 + 9,248 + 18,496 + 36,928 + (7*7*64 * 200 + 200 = 627,400) + 40,200
        (functools.partial(PaperCNN, "mnist"), GREY, 0, 732_592),
    ],
)
def test_the_published_number_of_parameters(make, image_shape, classes, published):
    encoder = make()
    encoder.build((None, *image_shape))
    trainable = sum(int(np.prod(variable.shape)) for variable in encoder.trainable_variables)
    assert trainable + (encoder.dim + 1) * classes == published


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (LeNet, [(28, 28, 1), (14, 14, 6), (5, 5, 16)]),
        (LeNet, [(32, 32, 1), (16, 16, 6), (6, 6, 16)]),
        (DigitsCNN, [(8, 8, 1), (8, 8, 32), (4, 4, 64), (2, 2, 128)]),
        (
            functools.partial(ResNet, 8, widths=(4, 8, 16, 32)),
            [COLOR, (32, 32, 4), (16, 16, 8), (8, 8, 16), (4, 4, 32)],
        ),
        (functools.partial(ResNet50, width=2), [(16, 16, 3), (16, 16, 8), (8, 8, 16), (4, 4, 32), (2, 2, 64)]),
        (functools.partial(PreActResNet18, width=2), [COLOR, (32, 32, 2), (16, 16, 4), (8, 8, 8), (4, 4, 16)]),
        (functools.partial(WideResNet, 10, 1), [COLOR, (32, 32, 16), (16, 16, 32), (8, 8, 64)]),
        # Clips: the stem halves the sides alone, stages 2 to 4 the frames, too; but the dilated stage 4.
        (
            functools.partial(R2Plus1D18, width=2),
            [(16, 32, 32, 1), (16, 16, 16, 2), (8, 8, 8, 4), (4, 4, 4, 8), (2, 2, 2, 16)],
        ),
        (
            functools.partial(R2Plus1D18, "small", width=2, dilated=True),
            [(7, 8, 8, 1), (7, 8, 8, 2), (4, 4, 4, 4), (2, 2, 2, 8), (2, 1, 1, 16)],
        ),
        (
            functools.partial(R3D18, width=2, dilated=True),
            [(16, 32, 32, 1), (16, 16, 16, 2), (8, 8, 8, 4), (4, 4, 4, 8), (4, 2, 2, 16)],
        ),
    ],
)
def test_stage_shapes(make, expected):
    encoder, shapes = make(), []
    images = np.zeros((1, *expected[0]), np.float32)
    encoder(images, at_stage=lambda index, hidden: shapes.append(tuple(hidden.shape[1:])) or hidden)
    assert shapes == expected


@pytest.mark.parametrize(
    ("make", "image_shape", "kernels"),
    [
        (LeNet, (28, 28, 1), [(5, 5, 1, 6), (5, 5, 6, 16), (400, 120), (120, 84)]),
        (LeNet, (32, 32, 1), [(5, 5, 1, 6), (5, 5, 6, 16), (576, 120), (120, 84)]),
        (DigitsCNN, (8, 8, 1), [(3, 3, 1, 32), (3, 3, 32, 64), (3, 3, 64, 128), (128, 128)]),
        # Gowal et al.'s medium network.
        (
            functools.partial(
                CNN, ((32, (32, 4, 2)), ((64, 3, 1), (64, 4, 2))), dense=(512, 512), pooling="stride", **UNPADDED
            ),
            GREY,
            [(3, 3, 1, 32), (4, 4, 32, 32), (3, 3, 32, 64), (4, 4, 64, 64), (1024, 512), (512, 512)],
        ),
        (CNN, (8, 8, 1), [(3, 3, 1, 32), (3, 3, 32, 64), (3, 3, 64, 128), (512, 128)]),
    ],
)
def test_kernels(make, image_shape, kernels):
    encoder = make()
    encoder.build((None, *image_shape))
    assert [tuple(v.shape) for v in encoder.trainable_variables if v.path.endswith("kernel")] == kernels
