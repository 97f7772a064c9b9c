"""`Pipeline` (a retriever with its stages) and `FusionRetriever` (fused legs)."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.arguments import value_expression
from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.execution.context import current_context, emit_fusion, is_heard, step
from llama_retrieval_ext.execution.legs import Ask, Leg, Rankings, ask
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.retrieval import check_retriever, hits_of
from llama_retrieval_ext.pipeline.branches import Unfused, chosen_names
from llama_retrieval_ext.pipeline.chains import fanned_out, refined, rewritten
from llama_retrieval_ext.pipeline.fusion import (
    Fusion,
    check_languages,
    resolved_min_success,
    resolved_weights,
    weighted_name,
    weights_for,
)
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.stages import Refine, Rewrite, check_last
from llama_retrieval_ext.pipeline.tree import Sketch, name_of, sketch_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import in_order
from llama_retrieval_ext.results import Hit

PIPELINE: Final = "pipeline"
FUSION: Final = "fusion"


class _Composite(Retriever):
    """Composite that prints, and is flattened, as an expression if it has only its parts."""

    _default_name: ClassVar[str]

    @property
    def is_plain(self) -> bool:
        """Whether it has no limit, filter, scope or name of its own."""
        return self._is_unnamed and not self.requires_scope and self.scope is None

    @property
    def _is_unnamed(self) -> bool:
        """Whether the constructor got only the parts."""
        return self.name == self._default_name and self.top_k is None and self.filters is None


class Pipeline(_Composite):
    """Retriever with rewrites and refinements: ``rewrite >> retriever >> refine``.

    The retriever gets the rewritten query; refining stages get the original one. A query's
    ``top_k`` cuts only the final result: the stages process all hits of the retriever.

    Args:
        source: The inner retriever; any LlamaIndex retriever.
        rewrites: Rewrites of the query, in order.
        refines: Refinements of the ranking, in order.
        top_k: Number of hits to return if the query does not set it; None for all.
        filters: Conditions on metadata that every hit satisfies.
        name: Name in traces.

    Raises:
        CompositionError: A stage follows one that does not keep the best-first order.
    """

    _default_name = PIPELINE

    def __init__(
        self,
        source: BaseRetriever,
        *,
        rewrites: Sequence[Rewrite] = (),
        refines: Sequence[Refine] = (),
        top_k: int | None = None,
        filters: MetadataFilters | None = None,
        name: str = PIPELINE,
    ) -> None:
        super().__init__(top_k=top_k, filters=filters, name=name)
        self.source = check_retriever(source, "a pipeline's source")
        self.rewrites = tuple(rewrites)
        self.refines = tuple(refines)
        check_last([*(source.refines if isinstance(source, Pipeline) else ()), *self.refines])

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """The inner retriever."""
        return [self.source]

    @property
    def label(self) -> str:
        """The stages around the retriever."""
        return " >> ".join(repr(stage) for stage in (*self.rewrites, *self.refines)) or self.name

    def sketch(self) -> Sketch:
        """Return the drawing: one box per stage."""
        if not (self.rewrites or self.refines):
            return super().sketch()
        after = (*map(repr, self.refines), *self.binding)
        return Sketch(tuple(map(repr, self.rewrites)), (("", sketch_of(self.source)),), after)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Rewrite the query, retrieve, then refine."""
        inner = yield from rewritten(self._for_children(query), self.rewrites)
        name = name_of(self.source)
        search = hits_of(self.source, inner, source=name)
        hits: list[Hit] = yield from step(name, search, reports=True)
        for stage in self.refines:
            hits = yield from step(stage, refined(stage, query, hits))
        if any(hit.score is None for hit in hits):  # LlamaIndex does not require scores
            hits = in_order(hits)
        return hits[: query.top_k]

    @property
    def _most(self) -> int | None:
        return min((stage.most for stage in self.refines if stage.most is not None), default=None)

    def _curated_below(self) -> dict[Hashable, Retriever]:
        # After a stage that does not keep the order, hits cannot be ordered by rules.
        keeps_order = all(stage.keeps_order for stage in self.refines)
        return super()._curated_below() if keeps_order else {}

    def _expression(self) -> str:
        if type(self) is not Pipeline or not self._is_unnamed:
            return super()._expression()
        return " >> ".join(map(value_expression, (*self.rewrites, self.source, *self.refines)))


class FusionRetriever(_Composite):
    """Retriever that runs legs in parallel and fuses their rankings: ``(a | b) >> RRF()``.

    A failed leg is left out and the answer is marked degraded, unless the leg is required.

    Args:
        branches: The legs.
        fusion: The fusion of their rankings.
        top_k: Number of hits to return if the query does not set it; None for all.
        min_success: Number of legs that must answer, or the query fails; None for the number of the
            fusion or the branches, by default 1.
        filters: Conditions on metadata that every hit satisfies.
        name: Name in traces and ``Hit.source``.

    Raises:
        CompositionError: A leg ends with a stage that does not keep the best-first order.
        ConfigurationError: The fusion's weights do not fit the legs, or ``min_success`` is out of
            range.
    """

    _default_name = FUSION

    def __init__(
        self,
        branches: Unfused,
        fusion: Fusion,
        *,
        top_k: int | None = None,
        min_success: int | None = None,
        filters: MetadataFilters | None = None,
        name: str = FUSION,
    ) -> None:
        super().__init__(top_k=top_k, filters=filters, name=name)
        if min_success is not None:
            branches = replace(branches, min_success=min_success)
        self.branches = branches
        _check_order(branches.legs, fusion)
        self._fuse_by(fusion)

    def _fuse_by(self, fusion: Fusion) -> None:
        legs = self.branches.legs
        weights = resolved_weights(
            fusion.weights, [leg.name for leg in legs], [leg.weight for leg in legs]
        )
        self.leg_languages = {
            leg.name: check_languages(leg.languages) for leg in legs if leg.languages
        }
        min_success = self.branches.min_success
        self.min_success = resolved_min_success(min_success, fusion, legs=len(legs))
        self.fusion, self.weights = fusion, weights

    @property
    def legs(self) -> tuple[Leg, ...]:
        """The legs, in their order."""
        return self.branches.legs

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """The retrievers of the legs."""
        return [leg.retriever for leg in self.branches.legs]

    @property
    def leg_names(self) -> list[str | None]:
        """The given names of the legs."""
        return chosen_names(self.legs)

    @property
    def label(self) -> str:
        """The fusion, after the rewrites and fan-out of the query."""
        before = [*self.branches.rewrites, self.branches.fan_out, self.fusion]
        return " >> ".join(repr(stage) for stage in before if stage is not None)

    def sketch(self) -> Sketch:
        """Return the drawing: the legs with their names and weights."""
        fan_out = self.branches.fan_out
        before = (*self.branches.rewrites, *([] if fan_out is None else [fan_out]))
        legs = (
            (weighted_name(leg.name, self.weights), sketch_of(leg.retriever)) for leg in self.legs
        )
        after = (repr(self.fusion), *self.binding)
        return Sketch(tuple(map(repr, before)), tuple(legs), after)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Run the legs together, then fuse and refine."""
        first, fan_out = self._for_children(query), self.branches.fan_out
        if self.branches.rewrites:
            first = yield from rewritten(first, self.branches.rewrites)
        queries = [first] if fan_out is None else (yield from fanned_out(first, fan_out))
        by_leg: Mapping[str, float] = self.weights
        if self.leg_languages:
            by_leg = weights_for(query.query_str, self.weights, self.leg_languages)
        asks: dict[str, Ask] = {}
        weights: dict[str, float] = {}
        for number, form in enumerate(queries, start=1):
            for leg in self.branches.legs:
                if self.weights[leg.name] > 0:
                    name = leg.name if len(queries) == 1 else f"{leg.name}[{number}]"
                    asks[name], weights[name] = Ask(leg, form), by_leg[leg.name]
        fuse, report = self.fusion.fuse_legs, current_context().on_partial
        fused = partial(fuse, weights=weights, top_k=query.top_k, source=self.name)
        rankings = yield from ask(
            asks,
            min_success=self.min_success,
            on_answer=None if report is None else lambda rankings: report(fused(rankings)),
        )
        self._note(asks, rankings)
        hits = fused(rankings)
        if is_heard():
            emit_fusion(self.name, self.fusion, rankings, weights, returned=len(hits))
        return hits

    def _note(self, asks: Mapping[str, Ask], rankings: Rankings) -> None:
        """Process the requests to the legs and their rankings; a hook for subclasses."""

    def _expression(self) -> str:
        if type(self) is not FusionRetriever or not self._is_unnamed:
            return super()._expression()
        return f"{self.branches!r} >> {self.fusion!r}"


def _check_order(legs: Sequence[Leg], fusion: Fusion) -> None:
    """Raise if a leg ends with a stage that does not keep the best-first order."""
    last: Refine | None = None
    before: list[str] = []
    for leg in legs:
        source = leg.retriever
        if isinstance(source, Pipeline) and not all(
            refine.keeps_order for refine in source.refines
        ):
            *refines, last = source.refines
            stages = (*source.rewrites, source.source, *refines)
            before.append(" >> ".join(map(value_expression, stages)))
        else:
            before.append(value_expression(source))
    if last is not None:
        raise CompositionError(
            f"a fusion needs rankings that are best first, which {last!r} leaves; put it behind "
            f"the fusion: ({' | '.join(before)}) >> {fusion!r} >> {last!r}"
        )
