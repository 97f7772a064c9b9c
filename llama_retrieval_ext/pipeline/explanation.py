"""`Explanation`: a search result with the full record of `explain`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.pipeline.why_not import (
    TracedRequest,
    WhyNot,
    ranked_children,
    requests_in,
    why_not,
)
from llama_retrieval_ext.query import described_binding
from llama_retrieval_ext.reordering import found_by
from llama_retrieval_ext.results import Contribution, Hit, SearchResult
from llama_retrieval_ext.trace import Trace


@dataclass(frozen=True, slots=True)
class StageRank:
    """Rank of a hit after a stage.

    Attributes:
        stage: Path of the stage, with its enclosing legs.
        rank: Rank, from 1.
        score: Score by the stage.
    """

    stage: str
    rank: int
    score: float | None


@dataclass(frozen=True, slots=True)
class HitAccount:
    """Explanation of a hit's rank.

    Attributes:
        rank: Rank in the result, from 1.
        hit: The hit, with its contributions, path and proof.
        stages: Rank after each stage that returned the hit, in the order of the stages.
        rescored: Rank and score before and after each stage that follows the first ranking, in
            pairs.
        merged: Ids of the nodes that were merged into it.
        filters: The scopes and filters that the hit satisfies.
        fields: The share of each field in the score of keyword search, and its matched words.
    """

    rank: int
    hit: Hit
    stages: tuple[StageRank, ...]
    rescored: tuple[tuple[StageRank, StageRank], ...] = ()
    merged: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    fields: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def legs(self) -> tuple[Contribution, ...]:
        """Contributions of the legs of a fusion; without a fusion, one for the source."""
        return found_by(self.hit, self.rank)

    def to_dict(self) -> dict[str, object]:
        """Return the account as JSON."""
        return {
            "rank": self.rank,
            "node_id": self.hit.node_id,
            "score": self.hit.score,
            "legs": [part.to_dict() for part in self.legs],
            "stages": [asdict(stage) for stage in self.stages],
            "rescored": [{"before": asdict(a), "after": asdict(b)} for a, b in self.rescored],
            "merged": list(self.merged),
            "filters": list(self.filters),
            "fields": {name: dict(share) for name, share in self.fields.items()},
            "path": self.hit.path,
            "proof": [edge.to_dict() for edge in self.hit.proof],
        }


@dataclass(frozen=True, slots=True)
class StageRanking:
    """Ranking that a stage returned."""

    name: str
    ranks: dict[str, StageRank]
    before: "StageRanking | None" = None


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(SearchResult):
    """A search result with a full record: an account of each hit and of missing nodes.

    It is the result of `search`. Printed or in a notebook, it shows each stage and its effect.
    The notes of its trace's steps contain the ids of their best hits (``top``), the operations
    pushed down to the engine (``pushed_down``), cache hits (``cache_hits``), nodes merged into
    others (``merged``) and the entities that rules start from (``entities``).

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> from llama_retrieval_ext import BM25Retriever, Top
        >>> texts = {"annual": "annual leave is 25 days", "sick": "sick leave", "lunch": "lunch"}
        >>> nodes = [TextNode(id_=id_, text=text) for id_, text in texts.items()]
        >>> explanation = (BM25Retriever(nodes) >> Top(1)).explain("annual leave")
        >>> [(each.stage, each.rank) for each in explanation.accounts[0].stages]
        [('bm25', 1), ('Top(k=1)', 1)]
        >>> print(explanation.why_not("sick"))
        'sick' was left out by Top(k=1), which kept 1: rank 2 before
        >>> print(explanation.why_not("lunch"))
        'lunch' was not found by any leg: bm25 returned 2 hits; the lowest scored 0.5235

    """

    _view: ClassVar[str] = "explanation.explanation"

    @property
    def recorded(self) -> Trace:
        """The trace, which is never None here.

        Raises:
            ConfigurationError: The explanation was created without a trace.
        """
        if self.trace is None:
            raise ConfigurationError(
                "this explanation has no trace; get it from retriever.explain(query)"
            )
        return self.trace

    @property
    def stages(self) -> list[StageRanking]:
        """Ranking of each stage, the legs of a fusion before the fusion."""
        return _stages(self.recorded)

    @property
    def accounts(self) -> list[HitAccount]:
        """Account of each hit, in the order of the hits."""
        stages = self.stages
        steps = [step for _, step in self.recorded.walk()]
        into: dict[str, str] = {}
        for step in steps:
            into |= step.notes.get("merged", {})  # type: ignore[call-overload]  # a dict
        requests = requests_in(self.recorded)
        shares: dict[str, Any] = {}  # Any: of notes
        for step in steps:
            shares |= step.notes.get("fields", {})  # type: ignore[call-overload]  # a dict
        return [
            HitAccount(
                rank,
                hit,
                tuple(stage.ranks[hit.node_id] for stage in stages if hit.node_id in stage.ranks),
                tuple(
                    (stage.before.ranks[hit.node_id], stage.ranks[hit.node_id])
                    for stage in stages
                    if stage.before is not None
                    and hit.node_id in stage.ranks
                    and hit.node_id in stage.before.ranks
                ),
                tuple(old for old, new in into.items() if new == hit.node_id),
                tuple(_passed(requests, hit)),
                shares.get(hit.node_id, {}),
            )
            for rank, hit in enumerate(self.hits, start=1)
        ]

    @blocking
    def why_not(self, node_id: str) -> Plan[WhyNot]:
        """Return the stage and the reason that excluded a node from the result.

        If no stage returned it, it is read by id from the searched stores that support this, to
        check whether the filters exclude it. A node outside the scope of the query is reported as
        if it did not exist.

        Raises:
            StoreUnavailableError: A searched server does not answer now.
        """
        return why_not(self.recorded, node_id)

    awhy_not = asynchronous(why_not)

    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON, with the accounts of its hits."""
        return {
            **SearchResult.to_dict(self),
            "accounts": [account.to_dict() for account in self.accounts],
        }


def explanation_of(result: SearchResult) -> Explanation:
    """Return the result of a search with a verbose trace as an explanation."""
    return Explanation(*(getattr(result, attribute.name) for attribute in fields(SearchResult)))


def _stages(
    step: Trace, legs: tuple[str, ...] = (), before: StageRanking | None = None
) -> list[StageRanking]:
    """Return the stages of a step, its own last, without steps that only forward a ranking."""
    stages: list[StageRanking] = []
    for child in step.children:
        is_leg = child.beside and not _is_itself(child, step)
        inside = _stages(child, (*legs, child.name)) if is_leg else _stages(child, legs, before)
        if child.ranking is not None and inside:
            before = None if is_leg else inside[-1]
        stages += inside
    if step.ranking is None:
        return stages
    inner = ranked_children(step)
    is_passed_on = inner and (not inner[-1].beside or _is_itself(inner[-1], step))
    if is_passed_on and inner[-1].ranking == step.ranking:
        if len(inner) > 1:
            return stages
        before = stages.pop().before
    name = "/".join(legs if step.beside else (*legs, step.name))
    ranks = {
        node_id: StageRank(name, rank, score)
        for rank, (node_id, score) in enumerate(step.ranking, start=1)
    }
    return [*stages, StageRanking(name, ranks, before)]


def _is_itself(child: Trace, step: Trace) -> bool:
    """Return whether a nested step is the stage itself, as for a stage that may be left out."""
    return not step.beside and step.name.partition("(")[0] == child.name


def _passed(requests: Sequence[TracedRequest], hit: Hit) -> dict[str, None]:
    return {
        text: None
        for request in requests
        if matches(request.query.condition, hit.node.metadata)
        for text in described_binding(request.query)
    }
