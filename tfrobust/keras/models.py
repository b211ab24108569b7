"""Encoders from pixels to an embedding, and their heads."""

from tfrobust.models.checkpoints import classifier as classifier_from_checkpoint
from tfrobust.models.checkpoints import load as load_checkpoint
from tfrobust.models.cnn import CNN, DigitsCNN, PaperCNN
from tfrobust.models.encoder import Encoder
from tfrobust.models.fitted_heads import KNearestNeighbours, LogisticRegression
from tfrobust.models.heads import LinearHead, LinearProjection, MLPHead, MLPProjection
from tfrobust.models.lenet import LeNet
from tfrobust.models.normalization import BranchedBatchNormalization
from tfrobust.models.preact_resnet import PreActResNet18
from tfrobust.models.projection import ProjectionHead
from tfrobust.models.resnet import ResNet
from tfrobust.models.resnet18 import ResNet18
from tfrobust.models.resnet50 import ResNet50
from tfrobust.models.text_transformer import TextTransformer, TransformerStyle
from tfrobust.models.wide_resnet import WideResNet

__all__ = [
    "BranchedBatchNormalization",
    "CNN",
    "DigitsCNN",
    "Encoder",
    "KNearestNeighbours",
    "LeNet",
    "LinearHead",
    "LinearProjection",
    "LogisticRegression",
    "MLPHead",
    "MLPProjection",
    "PaperCNN",
    "PreActResNet18",
    "ProjectionHead",
    "ResNet",
    "ResNet18",
    "ResNet50",
    "TextTransformer",
    "TransformerStyle",
    "WideResNet",
    "classifier_from_checkpoint",
    "load_checkpoint",
]
