"""A global dtype policy for one test, as a fixture."""

import keras
import pytest


@pytest.fixture
def policy(request):
    """Give it by `@pytest.mark.parametrize("policy", ..., indirect=True)`."""
    keras.config.set_dtype_policy(request.param)
    return request.param
