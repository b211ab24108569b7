"""Checks of the arguments of `compile`, some of which Keras would ignore without a word."""

from collections.abc import Iterator

from tfrobust.errors import InputError


def check_arguments(method, arguments: dict) -> None:
    """Raise InputError for arguments of `compile` that have no effect on a method."""
    owner = type(method).__name__
    if arguments.get("loss_weights") is not None:
        raise InputError(
            f"{owner} weights its terms by term_weights of its constructor, such as "
            f"term_weights={{{method.all_terms[0]!r}: 0.5}}: remove loss_weights from compile."
        )
    taken = {"loss", "regularization", *method.all_terms, *method.observations}
    for kind in ("metrics", "weighted_metrics"):
        for metric in _flat(arguments.get(kind)):
            name = metric if isinstance(metric, str) else getattr(metric, "name", "")
            if name in taken:
                raise InputError(
                    f"a metric has the name {name!r}, under which {owner} logs a term: give the metric another name."
                )


def _flat(metrics) -> Iterator:
    """Yield the metrics of a list, a dict, or both nested."""
    if isinstance(metrics, dict):
        metrics = list(metrics.values())
    for item in metrics if isinstance(metrics, (list, tuple)) else [metrics]:
        if isinstance(item, (list, tuple, dict)):
            yield from _flat(item)
        elif item is not None:
            yield item
