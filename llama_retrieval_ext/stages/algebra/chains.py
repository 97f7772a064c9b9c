"""Several stages of one kind as one stage, so that ``a >> (b >> c)`` is ``(a >> b) >> c``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from llama_index.core.schema import QueryBundle

from llama_retrieval_ext.execution.effects import Plan
from llama_retrieval_ext.execution.steps import step
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.algebra.last_stage import check_last
from llama_retrieval_ext.stages.algebra.refine import Refine
from llama_retrieval_ext.stages.algebra.refining import refined
from llama_retrieval_ext.stages.algebra.rewrite import FanOut, Rewrite
from llama_retrieval_ext.stages.algebra.rewriting import rewritten


@dataclass(frozen=True, slots=True)
class RewriteChain(Rewrite):
    """Rewrites one after the other."""

    stages: tuple[Rewrite, ...]

    def rewrite_plan(self, query: Query) -> Plan[Query]:
        """The plan for the query after all of them."""
        return (yield from rewritten(query, self.stages))

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.stages))


@dataclass(frozen=True, slots=True)
class FanOutChain(FanOut):
    """Rewrites, and then a fan-out."""

    rewrites: tuple[Rewrite, ...]
    fan: FanOut

    @classmethod
    def of(cls, rewrites: tuple[Rewrite, ...], fan: FanOut) -> Self:
        """The chain, flat."""
        if isinstance(fan, FanOutChain):
            return cls((*rewrites, *fan.rewrites), fan.fan)
        return cls(rewrites, fan)

    def fan_out_plan(self, query: Query) -> Plan[Sequence[str | QueryBundle]]:
        """The plan for the queries made of the rewritten one."""
        changed = yield from rewritten(query, self.rewrites)
        return (yield from self.fan.fan_out_plan(changed))

    def __repr__(self) -> str:
        return " >> ".join(map(repr, (*self.rewrites, self.fan)))


@dataclass(frozen=True, slots=True)
class RefineChain(Refine):
    """Refinements one after the other."""

    stages: tuple[Refine, ...]

    def __post_init__(self) -> None:
        check_last(self.stages)

    @property
    def keeps_order(self) -> bool:
        """As the last of them: before it, nothing leaves the order."""
        return self.stages[-1].keeps_order

    @property
    def adds(self) -> bool:
        """Whether one of them does."""
        return any(stage.adds for stage in self.stages)

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """The plan for the ranking after all of them."""
        ranking = list(hits)
        for stage in self.stages:
            ranking = yield from step(repr(stage), refined(stage, query, ranking))
        return ranking

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.stages))
