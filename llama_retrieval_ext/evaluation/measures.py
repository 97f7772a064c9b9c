"""Measures of rankings against judgements, computed by `ir-measures`."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from llama_retrieval_ext.errors import ConfigurationError, optional_module

MEASURES = ("nDCG@10", "R@10", "RR@10")


def parse_measures(names: Sequence[str]) -> list[Any]:  # Any: the package has no types
    """Return the `ir-measures` objects with these names, such as ``nDCG@10`` or ``R@100``.

    Examples:
        >>> parse_measures(["nDCG@10", "RR@10"])
        [nDCG@10, RR@10]

    """
    ir_measures = optional_module("ir_measures", "evaluation", "eval")
    if isinstance(names, str) or not names:
        raise ConfigurationError(f"measures are a list such as {list(MEASURES)}, got {names!r}")
    try:
        return [ir_measures.parse_measure(str(name)) for name in names]
    except (NameError, ValueError) as error:
        raise ConfigurationError(
            f"{error}; measures are those of ir-measures, such as nDCG@10, R@100, RR, AP, Success@5"
        ) from error


def measure_queries(
    names: Sequence[str],
    relevant: Mapping[str, Mapping[str, int]],
    run: Mapping[str, Mapping[str, float]],
) -> dict[str, dict[str, float]]:
    """Return the value of each measure for each judged query.

    Examples:
        >>> measure_queries(["RR"], {"q1": {"a": 1}, "q2": {"b": 1}}, {"q1": {"x": 2.0, "a": 1.0}})
        {'RR': {'q1': 0.5, 'q2': 0.0}}

    """
    measures = parse_measures(names)
    values: dict[str, dict[str, float]] = {
        str(measure): dict.fromkeys(relevant, 0.0) for measure in measures
    }
    answered = {query_id: dict(scores) for query_id, scores in run.items() if scores}
    grades = {query_id: dict(targets) for query_id, targets in relevant.items()}
    metrics: Iterable[Any] = (
        import_module("ir_measures").iter_calc(measures, grades, answered) if answered else ()
    )
    for metric in metrics:
        values[str(metric.measure)][metric.query_id] = float(metric.value)
    return values
