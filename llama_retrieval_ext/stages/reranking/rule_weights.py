"""What `RuleRerank` looks at, and how much each counts."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from llama_retrieval_ext.arguments import is_number
from llama_retrieval_ext.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWeights:
    """How much each rule of `RuleRerank` counts, relative to the others; 0 switches it off.

    Attributes:
        place: Where the hit stood before: 1 for the first, one half for the eleventh.
        terms: The share of the query's words that the text or the title has.
        phrase: How long a part of the query stands in the text as it is, word by word.
        title: The share of the title's words that the query has.
        recency: The factor of the hit's age, where `RuleRerank` is told how to read it.

    Raises:
        ConfigurationError: A weight is negative or not finite, or all are 0.
    """

    place: float = 1.0
    terms: float = 1.0
    phrase: float = 0.5
    title: float = 0.5
    recency: float = 0.5

    def __post_init__(self) -> None:
        weights = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, weight in weights.items():
            check_weight(weight, name)
        if not any(weights.values()):
            raise ConfigurationError("at least one of the weights must be above 0")


@dataclass(frozen=True, slots=True)
class Boost:
    """A weight for hits whose metadata has a certain value.

    Args:
        key: The metadata key.
        values: The value, or several of which one must be there. A list in the metadata has a value
            when it is one of its items.
        weight: How much it counts beside the `RuleWeights`; above 0. What a hit that is not boosted
            lacks, it lacks: to punish a value, boost the others.

    Raises:
        ConfigurationError: The weight is not finite and above 0.

    Examples:
        >>> Boost("kind", "regulation").given({"kind": ["law", "regulation"]})
        True

    """

    key: str
    values: str | float | tuple[str | float, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if check_weight(self.weight, self.key) == 0:
            raise ConfigurationError(f"the weight of the boost for {self.key!r} must be above 0")

    def given(self, metadata: Mapping[str, object]) -> bool:
        """Whether a hit with this metadata is boosted."""
        value = metadata.get(self.key)
        wanted = self.values if isinstance(self.values, tuple) else (self.values,)
        items = value if isinstance(value, list | tuple | set) else (value,)
        return any(item == each for item in items for each in wanted)


def check_weight(weight: float, name: str) -> float:
    """The same weight, if it can be one.

    Raises:
        ConfigurationError: It is negative or not finite.
    """
    if not (is_number(weight) and weight >= 0):
        raise ConfigurationError(
            f"the weight of {name!r} must be finite and not negative, got {weight!r}"
        )
    return weight
