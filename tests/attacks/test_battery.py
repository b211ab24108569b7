"""Runs the battery of tests/conformance/attacks.py."""

from conformance.attacks import (  # noqa: F401 - pytest runs what it finds here
    test_config_survives_a_round_trip,
    test_counts_the_passes_that_the_model_sees,
    test_does_not_depend_on_the_batch_or_on_the_others_and_traces_each_graph_once,
    test_returns_images_of_the_threat_set_for_a_model_that_overflows,
    test_stays_inside_and_raises_the_objective,
    test_succeeds_exactly_where_the_best_attack_on_a_linear_model_does,
    test_the_engine_finds_what_whole_rounds_find,
)
