"""Kinds of examples (text, images, clips): the rank of one example tells them apart, here and nowhere else."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of examples.

    Attributes:
        name: "text", "images" or "clips", as parts of the library list it in their attribute `kinds`.
        examples: plural noun of reports and messages.
        input: name of the batch in a served model.
        axes: of one example.
        dtype: of the batch.
    """

    name: str
    examples: str
    input: str
    axes: str
    dtype: str

    @property
    def example(self) -> str:
        """The singular of `examples`."""
        return self.examples.removesuffix("s")

    @property
    def layout(self) -> str:
        """The batch in messages, such as "images [n, h, w, c]"."""
        return f"{self.input} [n, {self.axes}]"


TEXT = Kind("text", "sentences", "tokens", "length", "int32")
IMAGES = Kind("images", "images", "images", "h, w, c", "float32")
CLIPS = Kind("clips", "clips", "clips", "t, h, w, c", "float32")

_BY_RANK = {1: TEXT, 3: IMAGES, 4: CLIPS}
# Kinds that consist of pixels.
OF_PIXELS = (IMAGES.name, CLIPS.name)
ANY = (*OF_PIXELS, TEXT.name)


def kind_of(shape: Sequence[int | None]) -> Kind:
    """Return the kind of examples of a shape, without the batch axis; a rank that no kind has counts as images."""
    return _BY_RANK.get(len(shape), IMAGES)


def takes(part, kind: Kind) -> bool:
    """Return True if a part of the library accepts such examples.

    Args:
        part: anything; its attribute `kinds` lists the names of the kinds. Parts without one accept pixels.
        kind: of the examples.
    """
    return kind.name in getattr(part, "kinds", OF_PIXELS)
