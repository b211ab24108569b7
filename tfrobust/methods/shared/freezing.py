"""Variables that an optimizer skips during the first steps, or changes by a part of its steps."""

import contextlib

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import keras_private


@contextlib.contextmanager
def skipped_updates(optimizer: keras.optimizers.Optimizer, variables: list, when: tf.Tensor):
    """Undo all changes of variables, and of the optimizer's state of them, that the context makes.

    A zero gradient would not do: momentum and weight decay change a variable without one, and the means of Adam would
    start earlier.

    Args:
        optimizer: built; of Keras or of this library, maybe with a loss scale around it.
        variables: some of its variables.
        when: bool scalar; where it is False, nothing is undone.
    """
    states = [state.value for variable in variables for state in (variable, *slots(optimizer, variable))]
    before = [tf.identity(variable) for variable in states]
    yield
    context = tf.distribute.get_replica_context()

    def restore(strategy, when, *values):
        for variable, value in zip(states, values, strict=True):
            strategy.extended.update(variable, _put_back, args=(value, when))

    # State of an optimizer has no aggregation, so that it cannot be assigned within one replica.
    context.merge_call(restore, args=(when, *before))


@contextlib.contextmanager
def scaled_updates(variables: list, factor: float):
    """Multiply all changes of variables that the context makes by a factor: a learning rate of their own.

    The gradients of an optimizer that normalizes them, as Adam does, could not be scaled instead.

    Args:
        variables: Keras variables.
        factor: > 0; 1 changes nothing.
    """
    if factor == 1:
        yield
        return
    states = [variable.value for variable in variables]
    before = [tf.identity(variable) for variable in states]
    yield

    def shrink(strategy, *values):
        for variable, value in zip(states, values, strict=True):
            strategy.extended.update(variable, lambda new, old: new.assign(old + factor * (new - old)), args=(value,))

    tf.distribute.get_replica_context().merge_call(shrink, args=tuple(before))


def check_rate(owner: str, optimizer: keras.optimizers.Optimizer, factor: float) -> None:
    """Raise InputError if an optimizer keeps averages of the weights, which `scaled_updates` would not scale."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if factor == 1 or inner is None:
        return
    name = f"{type(inner).__name__}{'.use_ema' * bool(inner.use_ema)}"
    if inner.use_ema or isinstance(inner, keras.optimizers.ScheduleFreeAdamW):
        raise InputError(
            f"{owner}.encoder_rate scales the steps of the encoder, but {name} averages the weights behind whole "
            "steps: leave one of them out."
        )


def slots(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> list[keras.Variable]:
    """Return the optimizer's own variables for one of the trained ones, such as its momentum."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    trained = keras_private.trained_variables(inner)
    index = [id(other) for other in trained].index(id(variable))
    lists = [held for held in vars(inner).values() if isinstance(held, list) and len(held) == len(trained)]
    candidates = [held[index] for held in lists if held is not trained]
    return [slot for slot in candidates if isinstance(slot, keras.Variable) and slot is not variable]


def _put_back(variable, value, when):
    variable.assign(tf.where(when, value, variable))
