"""Check what models refuse, and the messages."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.models.cnn import CNN, DigitsCNN, PaperCNN
from tfrobust.models.heads.fitted import KNearestNeighbours, LogisticRegression
from tfrobust.models.heads.linear import LinearHead, LinearProjection, MLPHead, MLPProjection
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.models.lenet import LeNet
from tfrobust.models.resnets.preact_resnet import PreActResNet18
from tfrobust.models.resnets.r2plus1d import R3D18, R2Plus1D18
from tfrobust.models.resnets.resnet import ResNet
from tfrobust.models.resnets.resnet18 import ResNet18
from tfrobust.models.resnets.resnet50 import ResNet50
from tfrobust.models.resnets.wide_resnet import WideResNet
from tfrobust.models.shared.blocks import PreActivationBlock, ResidualBlock
from tfrobust.models.shared.normalization import BranchedBatchNormalization
from tfrobust.models.text_transformer import TextTransformer, TransformerStyle

PICTURE = np.zeros((2, 8, 8, 1), np.float32)
Norm = BranchedBatchNormalization
CASES = [
    (lambda: DigitsCNN(branches=0), "branches must be an integer >= 1"),
    (lambda: DigitsCNN(branches=1.5), "branches must be an integer >= 1"),
    (lambda: DigitsCNN(pixel_std=0.0), "pixel_std must be positive"),
    (lambda: DigitsCNN(pixel_std=(1.0, -1.0)), "pixel_std must be positive"),
    (lambda: DigitsCNN(pixel_mean="half"), "pixel_mean must be a number"),
    (lambda: DigitsCNN(normalization_momentum=1.0), "momentum must be in"),
    (lambda: DigitsCNN(normalization_epsilon=0.0), "epsilon must be positive"),
    (lambda: DigitsCNN(widht=3), "widht"),
    (lambda: DigitsCNN(branches=2)(PICTURE, branch=1.0), "branch must be an integer"),
    (lambda: DigitsCNN(branches=2)(PICTURE, branch="1"), "branch must be an integer"),
    (lambda: DigitsCNN(branches=2)(PICTURE, branch=None), "branch must be an integer"),
    (lambda: DigitsCNN()(PICTURE, at_stage=lambda index, hidden: None), "returned nothing"),
    (lambda: DigitsCNN()(PICTURE, at_stage=lambda index, hidden: hidden[:1]), "ompatible"),
    (lambda: CNN(resize_to=2.5), "resize_to"),
    (lambda: CNN(resize_to=2).build((None, 32, 32, 3)), "at least 4x4"),
    (lambda: CNN().build((None, None, None, 1)), "fixed image size"),
    (lambda: CNN(()), "CNN.stages"),
    (lambda: CNN(((),)), "CNN.stages"),
    (lambda: CNN((32, 64)), "CNN.stages"),
    (lambda: CNN(((0,),)), "each entry of CNN.stages"),
    (lambda: CNN((((16, 4),),)), "neither a width nor"),
    (lambda: CNN((((16, 4, 0),),)), "each entry of CNN.stages"),
    (lambda: CNN(padding="full"), "'same', 'valid'"),
    (lambda: CNN((((4, 4, 2),), ((4, 3, 1),)), padding="valid", pooling="stride")(PICTURE[:, 1:]), "at least 8x8"),
    (lambda: CNN(dense=(1.5,)), "each entry of CNN.dense"),
    (lambda: CNN(dense=128), "CNN.dense"),
    (lambda: CNN(pooling="min"), "'max', 'average', 'stride'"),
    (lambda: CNN(pooling="stride", final_pool=True), "final_pool"),
    (lambda: CNN(kernel_regularization=-1.0), "kernel_regularization"),
    (lambda: CNN(activation="rleu"), "rleu"),
    (lambda: CNN(batch_normalization=False, branches=2), "no batch normalization"),
    (lambda: PaperCNN("cifar"), "'cifar10', 'cifar100', 'mnist'"),
    (lambda: LeNet(filters=(6,)), "two filter counts"),
    (lambda: LeNet(dense=()), "two filter counts"),
    (lambda: ResNet(18), "nearest valid: 14 and 20"),
    (lambda: ResNet(57), "nearest valid: 56 and 62"),
    (lambda: ResNet(2), "nearest valid: 8"),
    (lambda: ResNet(-4), "nearest valid: 8"),
    (lambda: ResNet(20.0), "must be an integer"),
    (lambda: ResNet(True), "must be an integer"),
    (lambda: ResNet18(stem="mnist"), "'cifar', 'imagenet'"),
    (lambda: ResNet18(width=0), "width"),
    (lambda: R2Plus1D18(stem="imagenet"), "R2Plus1D18.stem is 'imagenet'; it is one of .'kinetics', 'small'"),
    (lambda: R3D18(width=0), "R3D18.width"),
    (lambda: R3D18().build((None, 32, 32, 3)), r"takes clips \[b, t, h, w, c\]"),
    (lambda: ResNet50(reading="v2"), "'bottleneck', 'cifar_6n\\+2'"),
    (lambda: ResNet50(stem="mnist"), "'cifar', 'imagenet'"),
    (lambda: ResNet50("cifar_6n+2", stem="imagenet"), "belongs to reading='bottleneck'"),
    (lambda: ResNet50("pooled", stem="imagenet"), "belongs to reading='bottleneck', not to 'pooled'"),
    (lambda: WideResNet(18, 2), "6n\\+4"),
    (lambda: WideResNet(4, 2), ">= 10|6n\\+4"),
    (lambda: WideResNet(10, 0), "WideResNet.width"),
    (lambda: WideResNet(10, 1, variant="code"), "'paper', 'noisymix'"),
    (lambda: WideResNet(10, 1, dropout=1.0), "rate of a dropout"),
    (lambda: PreActResNet18(width=0), "PreActResNet18.width"),
    (lambda: PreActResNet18(shortcut="code"), "'standard', 'activated', 'raw'"),
    (lambda: PreActivationBlock(((3, 3, 1),)).build((None, 4, 4, 2)), "set project=True"),
    (lambda: ResidualBlock(((3, 3, 1),)).build((None, 4, 4, 2)), "set project=True"),
    (lambda: Norm(branches=0), "BranchedBatchNormalization.branches must be"),
    (lambda: Norm(branches=True), "BranchedBatchNormalization.branches must be"),
    (lambda: Norm(momentum=1.0), "BranchedBatchNormalization.momentum must be"),
    (lambda: Norm(momentum=-0.1), "BranchedBatchNormalization.momentum must be"),
    (lambda: Norm(epsilon=0.0), "BranchedBatchNormalization.epsilon must be"),
    (lambda: Norm(2, name="norm")(PICTURE, branch=2), "norm: there is no branch 2.*0 to 1 are valid"),
    (lambda: LinearHead(1), "LinearHead.class_count must be an integer >= 2"),
    (lambda: LinearHead(2.0), "LinearHead.class_count"),
    (lambda: LinearHead(2, clases=3), "clases"),
    (lambda: MLPHead(3, hidden=0), "MLPHead.hidden"),
    (lambda: LinearProjection(0), "LinearProjection.dim"),
    (lambda: MLPProjection(0), "MLPProjection.hidden"),
    (lambda: MLPProjection(dim=-1), "MLPProjection.dim"),
    (lambda: ProjectionHead((0,)), "each entry of ProjectionHead.hidden"),
    (lambda: ProjectionHead(dim=0), "ProjectionHead.dim"),
    (lambda: ProjectionHead(normalization="last"), "ProjectionHead.normalization is 'last'; it is one of"),
    (lambda: ProjectionHead(branches=2), "without a normalization all would be the same"),
    (lambda: LogisticRegression(1), "class_count"),
    (lambda: LogisticRegression(3, regularization=-1.0), "LogisticRegression.regularization is -1.0"),
    (lambda: LogisticRegression(3, iterations=0), "LogisticRegression.iterations"),
    (lambda: LogisticRegression(3, kernel_regularization=0.1), "kernel_regularization"),
    (lambda: LogisticRegression(3, kernel_initializer="zeros"), "kernel_initializer"),
    (lambda: KNearestNeighbours(1), "KNearestNeighbours.class_count"),
    (lambda: KNearestNeighbours(3, neighbours=0), "KNearestNeighbours.neighbours"),
    (lambda: KNearestNeighbours(3, temperature=0.0), "KNearestNeighbours.temperature is 0.0"),
    (lambda: KNearestNeighbours(3).build((None, 4)), "set examples to their number"),
    (lambda: TextTransformer(1, 5), "vocabulary_size must be an integer >= 2"),
    (lambda: TextTransformer(20, 0), "length must be"),
    (lambda: TextTransformer(20, 5, width=20), "multiple of its 8 heads"),
    (lambda: TextTransformer(20, 5, pooling="max"), "pooling is 'max'; it is one of"),
    (lambda: TextTransformer(20, 5).build((None, 8, 8, 1)), "takes tokens"),
    (lambda: TextTransformer(20, 5)(np.ones((2, 5), np.float32)), "integer token ids, got float32"),
    (lambda: TextTransformer(20, 5)(np.ones((2, 6), np.int32)), "at most 5 places"),
    (lambda: TransformerStyle(positions="rotary"), "positions is 'rotary'; it is one of"),
    (lambda: TransformerStyle(normalization="both"), "normalization is 'both'; it is one of"),
    (lambda: TransformerStyle(dropout=1.0), "dropout is 1.0"),
]


@pytest.mark.parametrize(("make", "message"), CASES)
def test_what_does_not_fit_is_named(make, message):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        make()


def test_a_branch_that_is_a_tensor_of_the_graph_is_refused():
    encoder = DigitsCNN(branches=2)
    encoder.build((None, 8, 8, 1))
    with pytest.raises(ValueError, match="known before tracing"):
        tf.function(lambda x, k: encoder(x, branch=k))(PICTURE, tf.constant(1))
