"""Encoders from pixels to an embedding, and their heads."""

from tfrobust.models.backbone import Backbone
from tfrobust.models.cnn import CNN, DigitsCNN, PaperCNN
from tfrobust.models.heads.fitted import KNearestNeighbours, LogisticRegression
from tfrobust.models.heads.linear import LinearHead, LinearProjection, MLPHead, MLPProjection
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.models.heads.prototypes import Prototypes
from tfrobust.models.lenet import LeNet
from tfrobust.models.resnets.preact_resnet import PreActResNet18
from tfrobust.models.resnets.r2plus1d import R3D18, R2Plus1D18
from tfrobust.models.resnets.resnet import ResNet
from tfrobust.models.resnets.resnet18 import ResNet18
from tfrobust.models.resnets.resnet50 import ResNet50
from tfrobust.models.resnets.wide_resnet import WideResNet
from tfrobust.models.shared.encoder import Encoder
from tfrobust.models.shared.group_sort import GroupSort
from tfrobust.models.shared.normalization import BranchedBatchNormalization
from tfrobust.models.text_transformer import TextTransformer, TransformerStyle
from tfrobust.models.vit import ViT
from tfrobust.models.weights.checkpoints import classifier as classifier_from_checkpoint
from tfrobust.models.weights.checkpoints import load as load_checkpoint
from tfrobust.models.weights.checkpoints import shapes as checkpoint_shapes

__all__ = [
    "Backbone",
    "BranchedBatchNormalization",
    "CNN",
    "DigitsCNN",
    "Encoder",
    "GroupSort",
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
    "Prototypes",
    "R2Plus1D18",
    "R3D18",
    "ResNet",
    "ResNet18",
    "ResNet50",
    "TextTransformer",
    "TransformerStyle",
    "ViT",
    "WideResNet",
    "checkpoint_shapes",
    "classifier_from_checkpoint",
    "load_checkpoint",
]
