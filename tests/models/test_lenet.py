"""LeNet's shapes."""

import numpy as np
import pytest

from tfrobust.models.lenet import LeNet


@pytest.mark.parametrize(("side", "flat"), [(28, 400), (32, 576)])
def test_maps_and_units(side, flat):
    encoder = LeNet()
    seen = []
    images = np.zeros((1, side, side, 1), np.float32)
    encoder(images, at_stage=lambda index, hidden: seen.append(hidden.shape[1:]) or hidden)
    last = (side // 2 - 4) // 2
    assert seen == [(side, side, 1), (side // 2, side // 2, 6), (last, last, 16)]
    kernels = [tuple(v.shape) for v in encoder.trainable_variables if v.path.endswith("kernel")]
    assert kernels == [(5, 5, 1, 6), (5, 5, 6, 16), (flat, 120), (120, 84)]


@pytest.mark.parametrize("arguments", [{"filters": (6,)}, {"dense": ()}])
def test_bad_arguments_are_named(arguments):
    with pytest.raises(ValueError, match="two filter counts"):
        LeNet(**arguments)
