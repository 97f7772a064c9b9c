"""Pipeline built step by step."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Self

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import QueryType

from llama_retrieval_ext.arguments import value_expression
from llama_retrieval_ext.errors import CompositionError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.parameters import Advice
from llama_retrieval_ext.pipeline.operators import is_stage, then
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.searching import search_plan
from llama_retrieval_ext.pipeline.tree import name_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, SearchResult

# Number of hits of `RetrievalPipeline.execute`.
_TOP_K: Final = 10


class RetrievalPipeline(Retriever):
    """Pipeline ``a >> b >> c`` built stage by stage, for code that chooses stages at run time.

    Args:
        name: Name in traces.
        top_k: Number of hits if the query sets none; None for all.
        description: Purpose, in words.

    Raises:
        ConfigurationError: The name or the description is not a string.

    Examples:
        >>> from llama_retrieval_ext import RRF, Top
        >>> from llama_retrieval_ext.pipeline.branches import branches
        >>> from llama_retrieval_ext.testing.fakes import FakeRetriever
        >>> legs = branches(a=FakeRetriever([("n1", 0.9)]), b=FakeRetriever([("n2", 0.8)]))
        >>> pipeline = RetrievalPipeline("faq").add_stage(legs).add_stage(RRF()).add_stage(Top(1))
        >>> [hit.node_id for hit in pipeline.retrieve("leave")]
        ['n1']

    """

    def __init__(
        self,
        name: Annotated[str, Advice("stages are added with add_stage")] = "default",
        *,
        top_k: int | None = None,
        description: str = "",
    ) -> None:
        super().__init__(top_k=top_k, name=name)
        self.description = description
        self._value: object = None
        self._stages: tuple[object, ...] = ()

    def add_stage(self, stage: object) -> Self:
        """Add a stage at the end, and return the pipeline.

        Args:
            stage: Anything that ``>>`` accepts: a rewrite, a retriever, ``a | b``, a fusion, a
                refinement, or a LlamaIndex retriever or postprocessor.

        Raises:
            CompositionError: The stage cannot follow the existing ones; the message lists the
                stages that can.
        """
        if not is_stage(stage):
            advice = (
                "; in place of an object with process() write a function of (query, hits) that "
                "returns the hits, or a Refine with refine(query, hits)"
            )
            raise CompositionError(
                f"{stage!r} is no stage; add an object that is one: a rewrite, a retriever, "
                "branches(a, b), a fusion such as RRF(), or a refinement such as Top(10)"
                + (advice if hasattr(stage, "process") else "")
            )
        self._value = stage if self._value is None else then(self._value, stage)
        self._stages = (*self._stages, stage)
        return self

    @blocking
    def execute(
        self,
        query: QueryType,
        top_k: int | None = None,
        context: Mapping[str, object] | None = None,
    ) -> Plan[SearchResult]:
        """Return the result of `search`.

        Args:
            query: Text, ``QueryBundle`` or `Query`.
            top_k: Number of hits, for this call; None for that of the query, else of the pipeline,
                else 10.
            context: Values for the application's own stages.
        """
        bound = Query.of(query).but(top_k=top_k, context=context)
        if bound.top_k is None and self.top_k is None:
            bound = bound.but(top_k=_TOP_K)
        return search_plan(self, bound)

    aexecute = asynchronous(execute)

    @property
    def pipeline(self) -> Self:
        """The pipeline itself; in the designs, a retriever has one."""
        return self

    @property
    def stages(self) -> tuple[object, ...]:
        """Added stages, in order."""
        return self._stages

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """Pipeline as one retriever; empty until it is complete."""
        return [self._value] if isinstance(self._value, BaseRetriever) else []

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Run the stages added so far."""
        if not self.children:
            raise CompositionError(
                f"the pipeline {self.name!r} is no retriever yet: {self!r}; "
                "it needs a retriever, and a fusion behind several"
            )
        (retriever,) = self.children
        child = self._for_children(query)
        child.at_least = query.top_k or query.at_least  # also the pipeline's own number
        hits = yield from hits_of(retriever, child, source=name_of(retriever))
        return hits[: query.top_k]

    def _expression(self) -> str:
        added = (f".add_stage({value_expression(stage)})" for stage in self._stages)
        return "".join([super()._expression(), *added])
