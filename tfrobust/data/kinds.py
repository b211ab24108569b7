"""Check that the parts of a training fit the kind of its examples."""

from __future__ import annotations

from tfrobust.common import configured
from tfrobust.common.kinds import TEXT, takes
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError


def refuse_other_parts(dataset: Dataset, method, **parts) -> None:
    """Check, before training starts, that every part accepts the examples, and that a vocabulary fits the encoder.

    Args:
        dataset: the examples.
        method: declares by `kinds` what it accepts, as its own parts do.
        **parts: other configured parts by name; None for parts that are left out. Parts without `kinds` are for pixels.

    Raises:
        ValueError: a method or part that does not accept such examples, or an encoder with too small a vocabulary.
    """
    kind, name = dataset.kind, type(method).__name__
    if not takes(method, kind):
        remedy = " @Supervised or another" if kind is TEXT else " a"
        raise InputError(
            f"{name} trains on {' or '.join(method.kinds)}, but {dataset.name} is {kind.name}: set METHOD to{remedy} "
            f"method with {kind.name!r} in its kinds."
        )
    attributes = {
        argument: getattr(method, argument, None) for argument in configured.constructor_arguments(type(method))
    }
    parts |= {argument: part for argument, part in attributes.items() if hasattr(part, "kinds")}
    parts |= {argument: getattr(method, argument, None) for argument in ("adversary", "noise", "penalty")}
    for argument, part in parts.items():
        if part is not None and not takes(part, kind):
            remedy = f"set {argument} = None" if kind is TEXT else f"wrap it for {kind.name}, or leave it out"
            raise InputError(f"{argument} is for images, but {dataset.name} is {kind.name}: {remedy}.")
    room = getattr(method.encoder, "vocabulary_size", len(dataset.vocabulary))
    if kind is TEXT and room < len(dataset.vocabulary):
        raise InputError(
            f"{type(method.encoder).__name__}.vocabulary_size is {room}, but {dataset.name} has "
            f"{len(dataset.vocabulary)} words: set vocabulary_size to that, or use a smaller vocabulary."
        )
