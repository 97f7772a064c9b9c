"""Stages as JSON, for stages without a model, a store or a function."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, Final, get_args, get_type_hints

from llama_retrieval_ext.arguments import arguments_of
from llama_retrieval_ext.checks import checked_call, nearest, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.stages.decay import ScoreDecay
from llama_retrieval_ext.stages.rerank.mmr import MMR
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.stages.selection import (
    Collapse,
    Dedupe,
    LongContextReorder,
    Threshold,
    Top,
)

_STAGES: Final[Mapping[str, type[Refine]]] = {
    kind.__name__: kind
    for kind in (
        *(Collapse, Dedupe, LongContextReorder, MMR, RuleRerank),
        *(ScoreDecay, Threshold, Top),
    )
}


def stage_to_dict(stage: Refine) -> dict[str, object]:
    """Return a stage as JSON: its name as ``stage``, and the non-default arguments.

    Examples:
        >>> stage_to_dict(Threshold(0.3))
        {'stage': 'Threshold', 'min_score': 0.3}

    """
    name = type(stage).__name__
    if _STAGES.get(name) is not type(stage):
        raise ConfigurationError(
            f"{stage!r} cannot be written as JSON; the stages that can are {', '.join(_STAGES)}"
        )
    return {"stage": name, **value_to_dict(stage)}


def stage_from_dict(data: Mapping[str, Any]) -> Refine:
    """Return the stage from the output of `stage_to_dict`.

    Examples:
        >>> stage_from_dict({"stage": "ScoreDecay", "key": "published", "half_life": 365})
        ScoreDecay(key='published', half_life=365)

    """
    values = dict(of_type(data, Mapping, "a stage", instead="write {'stage': 'Top', 'k': 10}"))
    name = values.pop("stage", None)
    if not isinstance(name, str) or name not in _STAGES:
        near = nearest(str(name), _STAGES)
        advice = f"did you mean {near!r}?" if near else f"write one of {', '.join(_STAGES)}"
        raise ConfigurationError(f"there is no stage {name!r}; {advice}")
    stage: Refine = _value(_STAGES[name], values)
    return stage


def value_to_dict(value: object) -> dict[str, object]:
    """Return the non-default fields of a dataclass as JSON."""
    return {
        name: _json(each, of=f"{name} of {type(value).__name__}")
        for name, each in arguments_of(value).items()
    }


def _json(value: object, *, of: str) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _json(each, of=of) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each, of=of) for each in value]
    if is_dataclass(value):
        return value_to_dict(value)
    raise ConfigurationError(f"{of} cannot be written as JSON: {value!r}")


def _value(hint: Any, data: Any) -> Any:  # noqa: ANN401 - of the type that the hint names
    """Return the value of JSON for a field of this type."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        if data not in [each.value for each in hint]:
            expected = ", ".join(repr(each.value) for each in hint)
            raise ConfigurationError(f"a {hint.__name__} is one of {expected}, got {data!r}")
        return hint(data)
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(data, Mapping):
        hints = get_type_hints(hint)
        values = {name: _value(hints.get(name), each) for name, each in data.items()}
        return checked_call(hint)(**values)
    parts = get_args(hint)
    if isinstance(data, list):
        return tuple(_value(parts[0] if parts else None, each) for each in data)
    structured = [part for part in parts if is_dataclass(part)]
    return _value(structured[0], data) if structured else data
