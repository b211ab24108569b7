"""Data sources, which `load()` reads, and published sets of corrupted, perturbed and shifted images."""

from tfrobust.data.published.cifar import CifarC, CifarP
from tfrobust.data.published.imagenet import ImageNetA, ImageNetC, ImageNetP, ImageNetR
from tfrobust.data.published.tfds import CorruptedTensorFlowDatasets
from tfrobust.data.sources.cifar import Cifar
from tfrobust.data.sources.corner_digits import CornerDigits
from tfrobust.data.sources.digits import Digits
from tfrobust.data.sources.folder import ImageFolder
from tfrobust.data.sources.hmdb51 import Hmdb51
from tfrobust.data.sources.idx import FashionMnist, Idx, Mnist
from tfrobust.data.sources.labelled_fraction import LabelledFraction
from tfrobust.data.sources.moving_digits import MovingDigits
from tfrobust.data.sources.npz import Npz
from tfrobust.data.sources.sentiment_grammar import SentimentGrammar
from tfrobust.data.sources.source import Source
from tfrobust.data.sources.sst2 import Sst2
from tfrobust.data.sources.stanford_sentiment import StanfordSentimentTreebank
from tfrobust.data.sources.subset import ClassSubset
from tfrobust.data.sources.tfds import TensorFlowDatasets
from tfrobust.data.sources.ucf101 import Ucf101
from tfrobust.data.sources.with_generated import WithGenerated
from tfrobust.data.spec import ArrayExamples

__all__ = [
    "ArrayExamples",
    "Cifar",
    "CifarC",
    "CifarP",
    "ClassSubset",
    "CornerDigits",
    "CorruptedTensorFlowDatasets",
    "Digits",
    "FashionMnist",
    "Hmdb51",
    "Idx",
    "ImageFolder",
    "ImageNetA",
    "ImageNetC",
    "ImageNetP",
    "ImageNetR",
    "LabelledFraction",
    "Mnist",
    "MovingDigits",
    "Npz",
    "SentimentGrammar",
    "Source",
    "Sst2",
    "StanfordSentimentTreebank",
    "TensorFlowDatasets",
    "Ucf101",
    "WithGenerated",
]
