"""Kinds of examples: how they are distinguished and named."""

import pytest

from tfrobust.common.kinds import CLIPS, IMAGES, TEXT, kind_of


@pytest.mark.parametrize(("kind", "example"), [(IMAGES, "image"), (CLIPS, "clip"), (TEXT, "sentence")])
def test_an_example_has_a_name(kind, example):
    assert (kind.example, kind.examples) == (example, f"{example}s")


def test_the_rank_tells_kinds_apart():
    assert [kind_of((None,) * rank).name for rank in (1, 3, 4)] == ["text", "images", "clips"]
