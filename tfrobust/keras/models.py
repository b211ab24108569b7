"""Encoders from pixels to an embedding, and the heads that stand on them."""

from tfrobust.models.cnn import CNN, DigitsCNN, PaperCNN
from tfrobust.models.encoder import Encoder
from tfrobust.models.heads import LinearHead, LinearProjection, MLPProjection
from tfrobust.models.lenet import LeNet
from tfrobust.models.normalization import BranchedBatchNormalization
from tfrobust.models.preact_resnet import PreActResNet18
from tfrobust.models.resnet import ResNet
from tfrobust.models.resnet50 import ResNet50
from tfrobust.models.wide_resnet import WideResNet

__all__ = [
    "BranchedBatchNormalization",
    "CNN",
    "DigitsCNN",
    "Encoder",
    "LeNet",
    "LinearHead",
    "LinearProjection",
    "MLPProjection",
    "PaperCNN",
    "PreActResNet18",
    "ResNet",
    "ResNet50",
    "WideResNet",
]
