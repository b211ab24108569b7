"""Fitting of a head to features all at once, in place of a training loop."""

import dataclasses
import time

import keras
import tensorflow as tf

from tfrobust.data.pipeline import of_all
from tfrobust.data.spec import Examples
from tfrobust.errors import InputError


def fitted_at_once(head) -> bool:
    """Return True if a head, or its constructor, is fitted to features (`models.heads.fitted`) instead of by steps."""
    return hasattr(head, "fit_features")


def refuse_method(method: keras.Model) -> None:
    """Raise InputError unless a method whose head is fitted at once trains on clean labels alone."""
    if method.all_terms == ("ce",):
        return
    wrong = f"@{type(method).__name__}" if method.terms != ("ce",) else "one with a penalty"
    head = type(method.head).__name__
    raise InputError(f"{head} is fitted to clean features at once; METHOD is @Supervised then, not {wrong}.")


def unused_settings(head: keras.layers.Layer, *, epochs: int, **parts) -> str:
    """Describe in one line what a head that is fitted at once does not use; "" if nothing was requested.

    Args:
        head: with `fit_features`.
        epochs: 1 requests nothing.
        **parts: requested parts by name; None or empty if they were left out.
    """
    named = [f"EPOCHS {epochs}"] * (epochs > 1) + [name for name, part in parts.items() if part]
    return f"{type(head).__name__} is fitted at once; not used: {', '.join(named)}." if named else ""


@dataclasses.dataclass
class HeadFit:
    """A fit of a method's head to the features of the training images, without augmentation.

    The features come from a frozen encoder in inference mode and are computed all at once. Hence there is nothing to
    resume, and an interrupted run fits again with the same result, bit for bit.

    Attributes:
        method: built; plain `Supervised`, which serves only as encoder and head here.
        examples: the training split.
        batch_size: images per call.
        title: prefix of what is printed.
        verbose: 1 prints one line, 0 nothing.
        seconds: duration of `run`.
        facts: after `run`, entries for the report: no epochs, and what the head reports about its `fit`.

    Raises:
        InputError: the encoder is not frozen, or the method would train on more than labels.
    """

    method: keras.Model
    examples: Examples
    batch_size: int = 128
    title: str = ""
    verbose: int = 1
    seconds: float = dataclasses.field(default=0.0, init=False)
    facts: dict = dataclasses.field(default_factory=dict, init=False)

    def __post_init__(self):
        head = type(self.method.head).__name__
        refuse_method(self.method)
        if self.method.encoder.trainable:
            raise InputError(
                f"{head} is fitted at once and needs an encoder that is trained already and frozen: set "
                "train.pretraining or train.pretrained, with frozen = True."
            )

    def run(self) -> dict[str, list]:
        """Fit the head.

        Returns:
            An empty history: there are no epochs.
        """
        started = time.monotonic()
        embed = tf.function(
            lambda index: tf.cast(self.method.embed(self.examples.fetch(index)), tf.float32),
            autograph=False,
            reduce_retracing=True,
        )
        features = of_all(embed, len(self.examples), self.batch_size)
        fit = self.method.head.fit_features(features, self.examples.labels)
        self.facts = {"epochs": 0, "fit": {"head": type(self.method.head).__name__, **fit}}
        self.seconds = time.monotonic() - started
        if self.verbose:
            name = type(self.method.head).__name__
            print(f"{self.title and self.title + ': '}fitted {name} to {len(self.examples)} examples", flush=True)
        return {}
