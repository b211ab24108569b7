"""The line of a summary that says which weights a stage trains."""

from __future__ import annotations

import numpy as np

from tfrobust.methods.shared.method import Method


def trained_line(method: Method, frozen: bool | None = None) -> str:
    """Return which part of encoder and head is trained, and how many parameters it has; "" if all are, at one rate."""
    encoder, head = method.encoder, method.head
    encoder_trains = encoder.trainable if frozen is None else not frozen
    name, parts = type(encoder).__name__, [type(head).__name__]
    if encoder_trains:
        rank = getattr(encoder, "lora_rank", None)
        last = getattr(encoder, "trained", "all") == "last_stage"
        part = f"adapters of rank {rank} in {name}" if rank else f"the last stage of {name}" if last else name
        parts.insert(0, part + (f" at {method.encoder_rate:g} of the learning rate" * (method.encoder_rate != 1)))
    if parts[0] == name:
        return ""
    count = _size(head.trainable_variables) + (_size(encoder.trainable_variables) if encoder_trains else 0)
    return f"{' and '.join(parts)}: {count:,} of {encoder.count_params() + head.count_params():,} parameters"


def _size(variables: list) -> int:
    return int(sum(np.prod(variable.shape, dtype=int) for variable in variables))
