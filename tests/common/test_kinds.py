"""Kinds of examples: their wording."""

import pytest

from tfrobust.common.kinds import CLIPS, IMAGES, TEXT, kind_of, worded


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (IMAGES, "Images: 9 of 10 images, one image, imagery, image_of"),
        (CLIPS, "Clips: 9 of 10 clips, one clip, imagery, image_of"),
        (TEXT, "Sentences: 9 of 10 sentences, one sentence, imagery, image_of"),
    ],
)
def test_a_text_names_the_examples(kind, text):
    assert worded("Images: 9 of 10 images, one image, imagery, image_of", kind.examples) == text


def test_the_rank_tells_kinds_apart():
    assert [kind_of((None,) * rank).name for rank in (1, 3, 4)] == ["text", "images", "clips"]
