"""Weights of the legs of a fusion, and the number of legs that must answer."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import current_context
from llama_retrieval_ext.formulas.scores import LARGEST, weighted_legs
from llama_retrieval_ext.parameters import Check, WholeNumber, is_number
from llama_retrieval_ext.text.normalization import LANGUAGES, share_outside

if TYPE_CHECKING:
    from llama_retrieval_ext.pipeline.fusion import Fusion


# Share of the weight of a leg that does not know the script of a question. Measured on three sets
# of Chinese questions; see tests/benchmarks/README.md.
_FOREIGN_SHARE: Final = 0.1


def check_weights(weights: Mapping[str, float] | Sequence[float] | None) -> None:
    """Raise if a weight is invalid, or no weight of a list is above 0."""
    if weights is None:
        return
    if not isinstance(weights, Mapping | list | tuple):
        raise ConfigurationError(
            f"weights must be a mapping by leg name or a list in the order of the legs, "
            f"got {weights!r}"
        )
    named = weights.items() if isinstance(weights, Mapping) else enumerate(weights)
    for leg, weight in named:
        if not (is_number(weight) and 0.0 <= weight <= LARGEST):
            which = (
                f"the weight of leg {leg!r}" if isinstance(weights, Mapping) else f"weight {leg}"
            )
            raise ConfigurationError(
                f"{which} is {weight!r}; pass a number from 0 (which switches the leg off) to 1e100"
            )
    if weights and not isinstance(weights, Mapping) and not any(weights):
        raise ConfigurationError(
            f"all {len(weights)} weights are 0, so nothing can be ranked; pass at least one above 0"
        )


Weights: TypeAlias = Annotated[Mapping[str, float] | Sequence[float] | None, Check(check_weights)]
MinSuccess: TypeAlias = WholeNumber | None


def resolved_weights(
    weights: Weights, names: Sequence[str], defaults: Iterable[float]
) -> dict[str, float]:
    """Return the weight of every leg by name."""
    check_weights(weights)
    if weights is None:
        resolved = list(defaults)
    elif isinstance(weights, Mapping):
        unknown = sorted(set(weights) - set(names))
        if unknown:
            raise ConfigurationError(
                f"weights name {', '.join(map(repr, unknown))}, which is no leg; "
                f"the legs are {', '.join(map(repr, names))}"
            )
        pairs = zip(names, defaults, strict=True)
        resolved = [weights.get(name, default) for name, default in pairs]
    else:
        resolved = list(weights)
    weighted_legs(names, weights=resolved)
    return dict(zip(names, map(float, resolved), strict=True))


def resolved_min_success(min_success: int | None, fusion: "Fusion", *, legs: int) -> int:
    """Return the number of legs that must answer: the composite's, the fusion's, or else 1."""
    if min_success is not None and fusion.min_success not in (None, min_success):
        raise ConfigurationError(
            f"min_success is {min_success} for the legs and {fusion.min_success} in {fusion!r}; "
            "give it once"
        )
    least = fusion.min_success if min_success is None else min_success
    return 1 if least is None else check_min_success(least, legs=legs)


def check_min_success(min_success: int, *, legs: int) -> int:
    """Return the number if it is valid for the number of legs; otherwise raise."""
    if check_count(min_success, "min_success", least=0) > legs:
        raise ConfigurationError(
            f"min_success must be between 0 and the number of legs, {legs}, got {min_success}"
        )
    return min_success


def weighted_name(name: str, weights: Mapping[str, float]) -> str:
    """Return the name of a leg, with its weight unless all weights are equal.

    Examples:
        >>> weighted_name("law", {"law": 2.0, "web": 1.0}), weighted_name("law", {"law": 2.0})
        ('law (2)', 'law')

    """
    return name if len(set(weights.values())) == 1 else f"{name} ({weights[name]:g})"


def check_languages(languages: Sequence[str]) -> tuple[str, ...]:
    """Return the languages if each is a known code; otherwise raise."""
    given = (languages,) if isinstance(languages, str) else tuple(languages)
    codes = sorted({code for codes in LANGUAGES.values() for code in codes.split()})
    for language in given:
        if str(language).partition("-")[0] not in codes:
            raise ConfigurationError(
                f"languages are codes such as ['en', 'zh'], got {language!r}; "
                f"known: {' '.join(codes)}"
            )
    return given


def weights_for(
    text: str, weights: Mapping[str, float], languages: Mapping[str, Sequence[str]]
) -> Mapping[str, float]:
    """Return the weights of legs for a question, and note in the trace if they differ.

    The share of a leg in the sum of the weights falls to 0.1 for a question in scripts that its
    languages, if it has any, do not use; for a mixed question by the share of such letters. The
    other legs divide the rest as before.

    Examples:
        >>> equal, known = {"vector": 1.0, "keyword": 1.0}, {"vector": ["en"]}
        >>> weights_for("年假有几天", equal, known)
        {'vector': 0.1, 'keyword': 0.9}
        >>> weights_for("annual leave", equal, known)
        {'vector': 1.0, 'keyword': 1.0}

    """
    outside: dict[str, float] = {}
    for leg, codes in languages.items():
        foreign = share_outside(text, codes) if codes and weights.get(leg) else 0.0
        if foreign:
            outside[leg] = foreign
    if not outside:
        return weights
    others = math.fsum(weight for leg, weight in weights.items() if leg not in outside)
    if not others:
        return weights
    whole = math.fsum(weights.values())
    reduced: dict[str, float] = {}
    for leg, foreign in outside.items():
        share = weights[leg] / whole
        reduced[leg] = (1 - foreign) * share + foreign * min(share, _FOREIGN_SHARE)
    left = 1 - math.fsum(reduced.values())
    changed = {leg: reduced.get(leg, left * weight / others) for leg, weight in weights.items()}
    trace = current_context().trace
    if trace is not None:
        named = ", ".join(f"{leg} {weight:.2g}" for leg, weight in changed.items())
        share = max(outside.values())
        trace.notes["weights"] = (
            f"{named}: {share:.0%} of the letters are in no script that the embedding model knows"
        )
    return changed
