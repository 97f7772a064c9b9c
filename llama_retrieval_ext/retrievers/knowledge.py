"""`KnowledgeRetriever`: one entry to conclusions of rules and hits of a vector search."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Self, TypeAlias, Unpack

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.schema import QueryType
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import checked_call, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import arun, run
from llama_retrieval_ext.execution.legs import Ask, Leg, ask
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.graph.open import Graph, open_graph
from llama_retrieval_ext.graph.text_to_cypher import TextToCypher
from llama_retrieval_ext.pipeline.branches import chosen_names, leg_of
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.searching import search_plan
from llama_retrieval_ext.query import Query, Scope, SearchOptions
from llama_retrieval_ext.results import Hit, ordered
from llama_retrieval_ext.retrievers.generated import GeneratedRetriever
from llama_retrieval_ext.retrievers.kg_rule import KGRetriever, KGRuleRetriever, Rules
from llama_retrieval_ext.retrievers.knowledge_policy import (
    GENERATED,
    RULE_SIDE,
    VECTOR_SIDE,
    KnowledgePolicy,
    each_text_once,
    items_of,
)
from llama_retrieval_ext.retrievers.knowledge_response import (
    CHAPTER_KEY,
    TYPE_KEY,
    KnowledgeResponse,
    RetrievalItem,
    is_or_lacks,
    knowledge_query,
    named,
)
from llama_retrieval_ext.retrievers.vector import VectorRetriever
from llama_retrieval_ext.stores.open import Storage, open_store

Side: TypeAlias = BaseRetriever | Leg


class KnowledgeRetriever(Retriever):
    """Rules and cases in one answer: what must be done, with proofs, and how others did it.

    Both sides run at the same time. Their hits are merged, each text once, by the policy's
    priority and then by score. Either side may be missing; one that fails or finds nothing leaves
    the other, and ``degraded`` says so. Rules are asked for the chapters that the policy names.

    Scores of hits put the priorities into bands of [0, 1]: a sentence of a rule is above any case.
    The score of its own side is in ``contributions``, and in `RetrievalItem.score`.

    Args:
        vector: Any retriever with scores in [0, 1], for cases and templates; a `Leg` brings its own
            timeout and retries. None for rules only.
        rules: A `KGRuleRetriever`; likewise. None for cases only.
        text_to_cypher: For ``infer_rules(use_llm=True)``; None for none.
        policy: Which chapters ask the rules, priorities, templates, limits.
        top_k: How many items to return when the query does not say; None for all.
        filters: Conditions on metadata that every hit satisfies.
        scope: The rows that are visible, on both sides.
        name: Name in traces.

    Raises:
        ConfigurationError: There is neither side.

    Examples:
        >>> from llama_retrieval_ext.samples.construction_safety import open_construction_safety
        >>> graph, rules = open_construction_safety()
        >>> knowledge = KnowledgeRetriever(rules=KGRuleRetriever(graph, rules))
        >>> response = knowledge.search("Which hazards does blasting have?", chapter="safety")
        >>> (item,) = [each for each in response.regulations if "noise" in each.content]
        >>> item.content
        'blasting has the hazard noise, against which the graph names no measure'
        >>> item.metadata["proof"]
        ['blasting -HAS_HAZARD-> noise']
        >>> graph.close()

    """

    def __init__(  # noqa: PLR0913 - the four that every retriever has, and its sides
        self,
        vector: Side | None = None,
        rules: Side | None = None,
        *,
        text_to_cypher: TextToCypher | None = None,
        policy: KnowledgePolicy | None = None,
        top_k: int | None = None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        name: str = "knowledge",
    ) -> None:
        super().__init__(top_k=top_k, filters=filters, scope=scope, name=name)
        sides = {VECTOR_SIDE: vector, RULE_SIDE: rules}
        self.legs = {side: leg_of(leg, name=side) for side, leg in sides.items() if leg is not None}
        if not self.legs:
            raise ConfigurationError(
                "KnowledgeRetriever needs a side: vector=, a retriever of cases, or rules=, a "
                "KGRuleRetriever"
            )
        own = KnowledgePolicy() if policy is None else policy
        self.policy = of_type(own, KnowledgePolicy, "policy")
        self.text_to_cypher = text_to_cypher
        self.owned = ExitStack()

    @classmethod
    def from_storage(  # noqa: PLR0913 - what both sides are made of
        cls,
        store: Storage | None = None,
        *,
        graph: Graph | None = None,
        rules: Rules | None = None,
        embed_model: BaseEmbedding | None = None,
        llm: LLM | None = None,
        policy: KnowledgePolicy | None = None,
        scope: Scope | None = None,
    ) -> Self:
        """Return a retriever over a vector store and a graph, either of which may be missing.

        `close` closes what was opened by URL here.

        Args:
            store: A URL such as ``embedded:./kb``, a LlamaIndex vector store or index.
            graph: A URL such as ``graph:./dir``, a LlamaIndex property graph store or index.
            rules: Rules, or the path of their file; None for those of `KGRetriever`.
            embed_model: The embedding model of the store.
            llm: For ``infer_rules(use_llm=True)``, over a graph on Neo4j; None for none.
            policy: As for the constructor.
            scope: The rows that are visible.

        Raises:
            ConfigurationError: There is neither a store nor a graph, or rules without a graph.
            StoreError: One of them cannot be opened.
        """
        if graph is None and (rules is not None or llm is not None):
            what = "rules need" if rules is not None else "llm writes statements for"
            raise ConfigurationError(f"{what} a graph: pass graph='graph:./dir' or 'neo4j://…'")
        with ExitStack() as opened:
            if isinstance(store, str):
                store = open_store(store, must_exist=True)
                opened.callback(store.close)
            if isinstance(graph, str):
                graph = open_graph(graph)
                opened.callback(graph.close)
            side: KGRuleRetriever | None = None
            if graph is not None:
                side = KGRetriever(graph) if rules is None else KGRuleRetriever(graph, rules)
            retriever = cls(
                None if store is None else VectorRetriever(store, embed_model=embed_model),
                side,
                text_to_cypher=None
                if side is None or llm is None
                else TextToCypher(side.graph, llm),
                policy=policy,
                scope=scope,
            )
            retriever.owned = opened.pop_all()
        return retriever

    def close(self) -> None:
        """Close what `from_storage` opened; a second call does nothing."""
        self.owned.close()

    async def aclose(self) -> None:
        """`close`, for ``async with`` and the like."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """The retrievers of the sides."""
        return [leg.retriever for leg in self.legs.values()]

    @property
    def leg_names(self) -> list[str | None]:
        """The names of the sides."""
        return chosen_names([*self.legs.values()])

    @property
    def label(self) -> str:
        """Its class."""
        return type(self).__name__

    @checked_call
    def search(  # noqa: PLR0913 - those of every search, and what knowledge is asked by
        self,
        query: QueryType,
        *,
        chapter: str | None = None,
        engineering_type: str | None = None,
        processes: Sequence[str] | None = None,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        top_k: int | None = None,
        timeout_s: float | None = None,
        context: Mapping[str, object] | None = None,
    ) -> KnowledgeResponse:
        """Return conclusions of rules, and cases, for a question.

        Args:
            query: Text, ``QueryBundle`` or `Query`.
            chapter: The chapter that is being written, such as ``safety``.
            engineering_type: Such as ``subway``; conditions of rules see both.
            processes: Names or ids of processes; None for those that the query names.
            filters: Further conditions on metadata, for this call.
            scope: Narrows the scope of the retriever for this call.
            top_k: How many items, for this call.
            timeout_s: Seconds for the whole answer.
            context: Further values for conditions of rules.
        """
        bound = knowledge_query(query, chapter, engineering_type, processes, context).but(
            filters=filters, scope=scope, top_k=top_k, timeout_s=timeout_s
        )
        return KnowledgeResponse.of(run(search_plan(self, bound)), self._query_context(bound))

    @checked_call
    async def asearch(  # pyright: ignore[reportIncompatibleMethodOverride] - has options of its own
        self,
        query: QueryType,
        *,
        chapter: str | None = None,
        engineering_type: str | None = None,
        processes: Sequence[str] | None = None,
        **options: Unpack[SearchOptions],
    ) -> KnowledgeResponse:
        """`search` without blocking the event loop."""
        context = options.pop("context", None)
        bound = knowledge_query(query, chapter, engineering_type, processes, context).but(**options)
        result = await arun(search_plan(self, bound))
        return KnowledgeResponse.of(result, self._query_context(bound))

    def retrieve_regulations(
        self, engineering_type: str | None, processes: Sequence[str], *, scope: Scope | None = None
    ) -> list[RetrievalItem]:
        """Return the conclusions of rules for processes; an empty list without a rule side.

        Args:
            engineering_type: For the conditions of rules; None for none.
            processes: Names or ids.
            scope: The rows that are visible.

        Raises:
            TooFewLegsError: The rule side failed.
        """
        only = self._only(RULE_SIDE)
        query = knowledge_query(named(processes), None, engineering_type, processes)
        return only.search(query, scope=scope).regulations

    async def aretrieve_regulations(
        self, engineering_type: str | None, processes: Sequence[str], *, scope: Scope | None = None
    ) -> list[RetrievalItem]:
        """`retrieve_regulations` without blocking the event loop."""
        only = self._only(RULE_SIDE)
        query = knowledge_query(named(processes), None, engineering_type, processes)
        return (await only.asearch(query, scope=scope)).regulations

    def retrieve_cases(
        self,
        query: QueryType,
        chapter: str | None = None,
        engineering_type: str | None = None,
        limit: int = 3,
        *,
        scope: Scope | None = None,
    ) -> list[RetrievalItem]:
        """Return the cases nearest to a question; an empty list without a vector side.

        Args:
            query: The question.
            chapter: Leaves out the cases of other chapters.
            engineering_type: Leaves out the cases of other engineering types.
            limit: How many cases at most.
            scope: The rows that are visible.

        Raises:
            TooFewLegsError: The vector side failed.
        """
        only = self._only(VECTOR_SIDE, limit=limit)
        asked = knowledge_query(query, chapter, engineering_type)
        return only.search(asked, scope=scope).cases

    async def aretrieve_cases(
        self,
        query: QueryType,
        chapter: str | None = None,
        engineering_type: str | None = None,
        limit: int = 3,
        *,
        scope: Scope | None = None,
    ) -> list[RetrievalItem]:
        """`retrieve_cases` without blocking the event loop."""
        only = self._only(VECTOR_SIDE, limit=limit)
        asked = knowledge_query(query, chapter, engineering_type)
        return (await only.asearch(asked, scope=scope)).cases

    def infer_rules(
        self,
        context: str | Mapping[str, object],
        processes: Sequence[str],
        use_llm: bool = False,  # noqa: FBT001, FBT002 - the agreed signature
        *,
        scope: Scope | None = None,
    ) -> list[RetrievalItem]:
        """Return the conclusions of rules for processes, optionally with rows by an LLM's Cypher.

        Args:
            context: The question; or what conditions of rules see, with the question as ``query``.
            processes: Names or ids; none for those that the question names.
            use_llm: Whether an LLM may also write a statement for the question. Its rows come
                after the conclusions of rules; where it fails, the conclusions stand alone.
            scope: The rows that are visible.

        Raises:
            ConfigurationError: There is no LLM to use.
            TooFewLegsError: The rule side failed.
        """
        only = self._inferring(use_llm)
        return only.search(_question(context, processes), scope=scope).regulations

    async def ainfer_rules(
        self,
        context: str | Mapping[str, object],
        processes: Sequence[str],
        use_llm: bool = False,  # noqa: FBT001, FBT002 - the agreed signature
        *,
        scope: Scope | None = None,
    ) -> list[RetrievalItem]:
        """`infer_rules` without blocking the event loop."""
        only = self._inferring(use_llm)
        return (await only.asearch(_question(context, processes), scope=scope)).regulations

    def _inferring(self, use_llm: bool) -> Self:  # noqa: FBT001 - private
        only = self._only(RULE_SIDE)
        if use_llm:
            if self.text_to_cypher is None:
                raise ConfigurationError(
                    "use_llm=True needs text_to_cypher=TextToCypher(graph, llm), or "
                    "from_storage(graph='neo4j://…', llm=…)"
                )
            only.legs[GENERATED] = Leg(GENERATED, GeneratedRetriever(self.text_to_cypher))
        return only

    def _only(self, *sides: str, limit: int | None = None) -> Self:
        """The same with fewer sides."""
        only = copy.copy(self)
        only.owned = ExitStack()
        only.legs = {side: leg for side, leg in self.legs.items() if side in sides}
        only.top_k = None
        if limit is not None:
            only.policy = replace(self.policy, case_top_k=limit)
        return only

    def _query_context(self, query: Query) -> dict[str, object]:
        chapter = query.context.get(CHAPTER_KEY)
        return {
            "query": query.query_str,
            "chapter": chapter,
            "engineering_type": query.context.get(TYPE_KEY),
            "rules_asked": RULE_SIDE in self._sides_for(query),
        }

    def _sides_for(self, query: Query) -> list[str]:
        """The sides that the query goes to."""
        chapter = query.context.get(CHAPTER_KEY)
        asks_rules = self.policy.asks_rules(None if chapter is None else str(chapter))
        return [side for side in self.legs if side != RULE_SIDE or asks_rules]

    def _plan(self, query: Query) -> Plan[list[Hit]]:
        sides = self._sides_for(query)
        child = self._for_children(query)
        asks = {side: self._ask(side, child) for side in sides}
        rankings = (yield from ask(asks)) if asks else {}
        hits: list[Hit] = []
        for side, ranking in rankings.items():
            hits += items_of(side, ranking, self.policy)
        return each_text_once(ordered(hits))[: query.top_k]

    def _ask(self, side: str, query: Query) -> Ask:
        if side != VECTOR_SIDE:
            return Ask(self.legs[side], query)
        keys = (
            (self.policy.chapter_key, CHAPTER_KEY),
            (self.policy.engineering_type_key, TYPE_KEY),
        )
        for key, name in keys:
            value = query.context.get(name)
            if key is not None and isinstance(value, str):
                query = query.but(filters=is_or_lacks(key, value))
        return Ask(self.legs[side], query, max(self.policy.candidates, self.policy.case_top_k))


def _question(context: str | Mapping[str, object], processes: Sequence[str]) -> Query:
    """The query of `infer_rules`: the text of the context, or the names of the processes."""
    values = {"query": context} if isinstance(context, str) else dict(context)
    text = values.pop("query", None) or named(processes)
    return knowledge_query(str(text), processes=processes or None, context=values)
