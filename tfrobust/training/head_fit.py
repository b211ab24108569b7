"""What stands in the place of a training loop where the head is fitted at once and not trained by steps."""

import dataclasses
import time

import keras
import tensorflow as tf

from tfrobust.data.pipeline import of_all
from tfrobust.data.spec import Examples
from tfrobust.errors import InputError


def fitted_at_once(head) -> bool:
    """Whether a head, or a constructor of one, is fitted to features (`models.fitted_heads`) and takes no steps."""
    return hasattr(head, "fit_features")


def refuse_method(method: keras.Model) -> None:
    """InputError where a method, whose head is fitted at once, would train otherwise than on clean labels alone."""
    if method.all_terms == ("ce",):
        return
    wrong = f"@{type(method).__name__}" if method.terms != ("ce",) else "one with a penalty"
    head = type(method.head).__name__
    raise InputError(f"{head} is fitted to clean features at once; METHOD is @Supervised then, not {wrong}.")


def unused(head: keras.layers.Layer, *, epochs: int, **parts) -> str:
    """One line on what a head that is fitted at once does without, or "" where nothing was asked for.

    Args:
        head: with `fit_features`.
        epochs: 1 asks for nothing.
        **parts: by name; None or empty where they were left out.
    """
    named = [f"EPOCHS {epochs}"] * (epochs > 1) + [name for name, part in parts.items() if part]
    return f"{type(head).__name__} is fitted at once; not used: {', '.join(named)}." if named else ""


@dataclasses.dataclass
class HeadFit:
    """Fits a method's head to the features of the training images as they are, without augmentation.

    Features are taken in inference mode of a frozen encoder, all at once: nothing is left to resume, and a run that
    was stopped fits again, to the same bit.

    Attributes:
        method: built; plain `Supervised`, for it is nothing but encoder and head here.
        examples: the training split.
        batch_size: images per call.
        title: written before what is printed.
        verbose: 1 prints one line, 0 nothing.
        facts: once it has run, what a report says of it: no epochs, and what the head says of its `fit`.

    Raises:
        InputError: an encoder that is not frozen, or a method that would train otherwise than on labels alone.
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
        """Fits.

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
