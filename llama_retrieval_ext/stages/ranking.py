"""`Ranking`: boosts, pins, blocks and synonyms as data, and what they do to hits."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

import yaml

from llama_retrieval_ext.arguments import RecordsArguments
from llama_retrieval_ext.checks import checked_arguments
from llama_retrieval_ext.errors import ConfigFileError, ConfigurationError, RetrievalExtError
from llama_retrieval_ext.filter_syntax import parse_filter_texts
from llama_retrieval_ext.filters import Condition, matches, parse_filters
from llama_retrieval_ext.hits import score_of
from llama_retrieval_ext.parameters import Count, Range, is_number
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import found_by, in_order, with_score
from llama_retrieval_ext.results import Contribution, Hit
from llama_retrieval_ext.stages.decay import Recency
from llama_retrieval_ext.text.yaml_nodes import Reader, composed, position

T = TypeVar("T")

_ROUNDING: Final = 1e-9
_MOST_FILTERS: Final = 200  # which become one filter of each query
_SYNONYMS: Final = re.compile(r"\s*(=|->)\s*")


@checked_arguments
@dataclass(frozen=True, kw_only=True, repr=False)
class Boost(RecordsArguments):
    r"""A rule that raises or lowers the scores of hits by their metadata.

    The score :math:`s` of a hit becomes :math:`s + |s| \sum_i w_i v_i`, over all boosts with weight
    :math:`w_i` and value :math:`v_i`. One of ``where``, ``number`` and ``date`` gives the value.

    Args:
        weight: Share of the score that a value of 1 adds; below 0 it is taken away, at least -1.
        where: A filter in words, as of ``--filter``: ``"lang=en and year>=2020"``. The value is 1
            for hits that satisfy it.
        number: A metadata key with a number, such as ``votes``; without a number, or below 0, the
            value is 0.
        curve: ``log``, the value is :math:`\ln(1 + x) / \ln(1 + scale)`; or ``saturation``,
            :math:`x / (x + scale)`.
        scale: The number with the value 1 (``log``) or 0.5 (``saturation``); above 0.
        date: A metadata key with a date; the value is 1 now, 0.5 after ``half_life``, as of
            `Recency`, and 0 without a date.
        half_life: In days.

    Raises:
        ConfigurationError: A value is out of range, or the filter is malformed.

    Source:
        Both curves: the ``rank_feature`` query of Elasticsearch, which follows Craswell, Robertson,
        Zaragoza and Taylor, "Relevance weighting for query independent evidence", SIGIR 2005,
        https://doi.org/10.1145/1076034.1076106. Here they scale the score instead of adding to it,
        because the scores of searches and fusions have different ranges.

    Examples:
        >>> Boost(number="votes", scale=999, weight=0.2).value({"votes": 999})
        1.0
        >>> Boost(where="kind=draft", weight=-0.5).value({"kind": "law"})
        0.0

    """

    weight: Annotated[float, Range(least=-1)]
    where: str = ""
    number: str = ""
    curve: Literal["log", "saturation"] = "log"
    scale: Annotated[float, Range(above=0)] = 1000.0
    date: str = ""
    half_life: Annotated[float, Range(above=0)] = 30.0

    def __post_init__(self) -> None:
        if self.weight == 0:
            raise ConfigurationError("a boost with weight 0 does nothing; leave it out")
        if [bool(kind) for kind in (self.where, self.number, self.date)].count(True) != 1:
            raise ConfigurationError(
                f"a boost has one of where, number and date, got {self.where!r}, {self.number!r} "
                f"and {self.date!r}"
            )
        _ = self._condition, self._recency  # raise if they are invalid

    @property
    def name(self) -> str:
        """Its name in contributions."""
        return f"boost {self.where or self.number or self.date}"

    def value(self, metadata: Mapping[str, object]) -> float:
        """Return the value for a hit with this metadata; 0 or more."""
        if self._condition is not None:
            return float(matches(self._condition, metadata))
        if self._recency is not None:
            return self._recency.factor(metadata) or 0.0
        x = metadata.get(self.number)
        if not isinstance(x, int | float) or not is_number(x) or x <= 0:
            return 0.0
        if self.curve == "saturation":
            return x / (x + self.scale)
        return math.log1p(x) / math.log1p(self.scale)

    def most(self, largest: Callable[[str], float]) -> float:
        """Return the largest value that a hit can have, by the largest number under a key."""
        if not self.number or self.curve == "saturation":
            return 1.0
        return math.log1p(largest(self.number)) / math.log1p(self.scale)

    @cached_property
    def _condition(self) -> Condition | None:
        return condition_of(self.where) if self.where else None

    @cached_property
    def _recency(self) -> Recency | None:
        return Recency(self.date, half_life=self.half_life, unknown=0.0) if self.date else None


def condition_of(where: str) -> Condition:
    """Return the condition of a filter in words; raise `ConfigurationError` if it is malformed."""
    filters = parse_filter_texts([where], name="where")
    if filters is None:
        raise ConfigurationError("where is empty; write a filter such as 'lang=en'")
    return parse_filters(filters)


@checked_arguments
@dataclass(frozen=True, repr=False)
class Pin(RecordsArguments):
    """A document at a position of the hits, if the scope and the filters of the query allow it.

    Args:
        document: Its id, or the path of its file. Its best hit is moved, or, if no hit is among
            those that are read, its passage with most words of the question.
        position: The rank, from 1.
        query: The question that it is pinned for, in any spelling that keyword search takes for the
            same; empty for every question.
    """

    document: str
    _: KW_ONLY
    position: Count = 1
    query: str = ""

    def __post_init__(self) -> None:
        _check_text(self.document, "document")


@checked_arguments
@dataclass(frozen=True, repr=False)
class Block(RecordsArguments):
    """Documents that are never found; they can still be read by their names.

    Args:
        document: The id of a document, or the path of its file.
        where: A filter in words, as of `Boost`, in place of a document.
    """

    document: str = ""
    _: KW_ONLY
    where: str = ""

    def __post_init__(self) -> None:
        _check_text(self.document or self.where, "document or where")
        if self.document and self.where:
            raise ConfigurationError("a block has a document or a filter (where), not both")
        if self.where:
            condition_of(self.where)


@checked_arguments
@dataclass(frozen=True, repr=False)
class Ranking(RecordsArguments):
    """Rules of a scope for the order of hits, as data; see ``KnowledgeBase.set_ranking``.

    Args:
        boosts: Raise or lower scores.
        pins: Documents at fixed positions.
        blocks: Documents that are never found.
        synonyms: ``"laptop = notebook"`` for words that mean the same, ``"CI -> continuous
            integration"`` for one direction. Keyword search looks for both.

    Raises:
        ConfigurationError: A synonym is malformed, a value has another type, or there are more than
            200 blocks with a filter.

    Examples:
        >>> Ranking(boosts=(Boost(number="votes", weight=0.1),), pins=(Pin("leave"),))
        Ranking(boosts=(Boost(weight=0.1, number='votes'),), pins=(Pin(document='leave'),))

    """

    _: KW_ONLY
    boosts: Sequence[Boost] = ()
    pins: Sequence[Pin] = ()
    blocks: Sequence[Block] = ()
    synonyms: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in (*_KINDS, "synonyms"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        n_filters = sum(bool(block.where) for block in self.blocks)
        if n_filters > _MOST_FILTERS:
            raise ConfigurationError(
                f"a ranking has at most {_MOST_FILTERS} blocks with a filter (where), got "
                f"{n_filters}; write many values of a key in one, as where='lang in (en, de)'"
            )
        _ = self.expansions  # raises if one is malformed

    @cached_property
    def expansions(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each word or phrase with the others that it is also searched as."""
        expansions: list[tuple[str, tuple[str, ...]]] = []
        for synonym in self.synonyms:
            first, *parts = _SYNONYMS.split(synonym)
            signs, others = set(parts[::2]), parts[1::2]
            if len(signs) != 1 or not all(part.strip() for part in (first, *others)):
                raise ConfigurationError(
                    f"synonyms are words with = between them, as 'laptop = notebook', or one with "
                    f"-> before its meaning, as 'CI -> continuous integration', got {synonym!r}"
                )
            words = [first.strip(), *(part.strip() for part in others)]
            expansions += [
                (word, tuple(other for other in words if other != word))
                for word in (words if signs == {"="} else words[:1])
            ]
        return tuple(expansions)

    def to_dict(self) -> dict[str, list[object]]:
        """Return the rules as JSON, without default values."""
        shown: dict[str, list[object]] = {"synonyms": [*self.synonyms]}
        for name, kind in _KINDS.items():
            defaults = {field.name: field.default for field in fields(kind)}
            shown[name] = [
                {key: v for key, v in asdict(item).items() if v != defaults[key]}
                for item in getattr(self, name)
            ]
        return {name: items for name, items in shown.items() if items}

    def to_yaml(self) -> str:
        """Return the rules as YAML, as `from_yaml` reads them; empty without rules."""
        shown = self.to_dict()
        return yaml.safe_dump(shown, allow_unicode=True, sort_keys=False) if shown else ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Sequence[Any]]) -> Self:
        """Return the rules in the result of `to_dict`."""
        return cls(
            **{
                name: tuple(_KINDS[name](**item) if name in _KINDS else item for item in items)
                for name, items in data.items()
            }
        )

    @classmethod
    def from_yaml(cls, text: str, *, file: str = "") -> Self:
        """Return the rules of a YAML text: the names of the arguments, with lists.

        Raises:
            ConfigFileError: A rule is invalid; the message has its line.
        """
        reader = _Reader(file)
        root = reader.fields(composed(text, reader), [*_KINDS, "synonyms"], "a ranking").nodes
        made: dict[str, tuple[object, ...]] = {}
        for name, node in root.items():
            items = reader.items(node, name)
            made[name] = tuple(
                reader.item(item, _KINDS[name]) if name in _KINDS else reader.synonym(item)
                for item in items
            )
        return cls(**made)  # type: ignore[arg-type]  # read by their kinds

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the rules of a YAML file; see `from_yaml`."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigFileError(str(path), [f"it cannot be read: {error}"]) from error
        return cls.from_yaml(text, file=str(path))


_KINDS: Final[dict[str, type]] = {"boosts": Boost, "pins": Pin, "blocks": Block}


class _Reader(Reader):
    what: ClassVar[str] = "a ranking"
    example: ClassVar[str] = "'pins:' and a list"

    def error(self, at: object, message: str) -> RetrievalExtError:
        line, column = position(at)
        return ConfigFileError(self.file, [f"line {line}, column {column}: {message}"])

    def item(self, node: object, kind: type[T]) -> T:
        names = [field.name for field in fields(kind) if field.name != "_"]  # type: ignore[arg-type]
        nodes = self.fields(node, names, f"a {kind.__name__.lower()}").nodes  # type: ignore[arg-type]
        arguments = {name: self.value(value) for name, value in nodes.items()}
        try:
            return kind(**arguments)
        except ConfigurationError as error:
            raise self.error(node, str(error)) from error

    def synonym(self, node: object) -> str:
        text = self.value(node)  # type: ignore[arg-type]
        try:
            return Ranking(synonyms=(text,)).synonyms[0]
        except ConfigurationError as error:
            raise self.error(node, str(error)) from error


def _check_text(value: object, what: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{what} must be a text that is not empty, got {value!r}")


def boosted(
    hits: Sequence[Hit],
    boosts: Sequence[tuple[Condition | None, Boost]],
    *,
    top_k: int | None = None,
) -> list[Hit]:
    """Return the hits with boosted scores, best first; each boost is a contribution.

    A boost has the condition of the hits that it is for; None for all.
    """
    scored: list[tuple[float, str, int, list[tuple[Boost, float]]]] = []
    for at, hit in enumerate(hits):
        score, metadata = score_of(hit), hit.node.metadata
        values = [
            (boost, value)
            for condition, boost in boosts
            if (condition is None or matches(condition, metadata))
            and (value := boost.value(metadata))
        ]
        shares = (abs(score) * boost.weight * value for boost, value in values)
        scored.append((-math.fsum([score, *shares]), hit.node.node_id, at, values))
    return [
        _boosted(hits[at], at + 1, -total, values)
        for total, _, at, values in sorted(scored, key=itemgetter(0, 1))[:top_k]
    ]


def least_share(boosts: Sequence[Boost], largest: Callable[[str], float]) -> float:
    """Return the share of a score above 0 that lets a hit pass it by boosts; 0 if any does.

    ``largest`` returns a number that no hit exceeds under a key.
    """
    changes = [boost.weight * boost.most(largest) for boost in boosts]
    least, most = (1 + sum(clamp(0.0, change) for change in changes) for clamp in (min, max))
    return max(0.0, (1 - _ROUNDING) * least / most)


def _boosted(hit: Hit, rank: int, total: float, values: list[tuple[Boost, float]]) -> Hit:
    if not values:
        return hit
    size = abs(score_of(hit))
    parts = (
        Contribution(boost.name, rank, value, boost.weight, size * boost.weight * value)
        for boost, value in values
    )
    return with_score(hit, total, (*found_by(hit, rank), *parts))


@dataclass(frozen=True, slots=True, repr=False)
class Boosts(Refine):
    """Refinement that boosts hits, for pipelines without a knowledge base.

    Args:
        boosts: The boosts.

    Examples:
        >>> Boosts([Boost(where="kind=law", weight=0.5)])
        Boosts([Boost(weight=0.5, where='kind=law')])

    """

    boosts: Sequence[Boost]

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002 - the same for all
        """Return the hits with boosted scores."""
        return boosted(hits, [(None, boost) for boost in self.boosts])


def placed(hits: Sequence[Hit], pins: Sequence[tuple[int, Hit]]) -> list[Hit]:
    """Return the hits with pinned ones at their positions, from 1, each once.

    A pinned hit gets a score between those of its neighbours, so that sorting keeps its place; the
    difference is the share of its last contribution, ``pin``. The first of several pins for one
    position or hit is kept there; others follow.
    """
    first: dict[str, tuple[int, Hit]] = {}
    for at, hit in sorted(pins, key=lambda pin: pin[0]):
        first.setdefault(hit.node_id, (at, hit))
    others = [hit for hit in hits if hit.node_id not in first]
    ranks = {hit.node_id: rank for rank, hit in enumerate(hits, start=1)}
    ranking = [*others]
    for at, hit in first.values():
        index = min(at - 1, len(ranking))
        before = score_of(ranking[index - 1]) if index else math.inf
        after = score_of(ranking[index]) if index < len(ranking) else -math.inf
        least, most = math.nextafter(after, math.inf), math.nextafter(before, -math.inf)
        is_ranked = hit.score is not None and hit.node_id in ranks
        earlier = score_of(hit) if is_ranked else (after if math.isfinite(after) else before)
        score = min(max(earlier, least), most) if math.isfinite(earlier) else 0.0
        parts = found_by(hit, ranks[hit.node_id]) if is_ranked else ()
        pin = Contribution("pin", at, None, 1.0, score - earlier if is_ranked else score)
        ranking.insert(index, with_score(hit, score, (*parts, pin)))
    return in_order(ranking)
