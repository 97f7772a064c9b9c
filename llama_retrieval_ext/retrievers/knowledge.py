"""`KnowledgeRetriever`: rule conclusions and vector hits in one answer."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar, Self, TypeAlias, Unpack

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.schema import QueryType
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import checked_call, of_type
from llama_retrieval_ext.dates import Moment
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import note_inquiry
from llama_retrieval_ext.execution.drivers import arun, asynchronous, blocking, run
from llama_retrieval_ext.execution.legs import Ask, Leg, ask
from llama_retrieval_ext.execution.plan import Plan, finished
from llama_retrieval_ext.graph.open import Graph, open_graph
from llama_retrieval_ext.graph.text_to_cypher import GeneratedRetriever, TextToCypher
from llama_retrieval_ext.hits import ordered
from llama_retrieval_ext.pipeline.branches import chosen_names, leg_of
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.searching import search_plan
from llama_retrieval_ext.query import Query, SearchOptions
from llama_retrieval_ext.results import Hit, ResultList
from llama_retrieval_ext.retrievers.kg_rule import (
    TYPE_KEY,
    KGRetriever,
    KGRuleRetriever,
    Rules,
    processes_in,
)
from llama_retrieval_ext.retrievers.knowledge_response import (
    CHAPTER_KEY,
    GENERATED,
    RULE_SIDE,
    VECTOR_SIDE,
    KnowledgePolicy,
    KnowledgeResponse,
    RetrievalItem,
    each_text_once,
    is_or_lacks,
    items_of,
    knowledge_query,
    named,
)
from llama_retrieval_ext.retrievers.single_search import VectorRetriever
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.open import Storage, open_store
from llama_retrieval_ext.wording import nearest, quoted

Side: TypeAlias = BaseRetriever | Leg


class KnowledgeRetriever(Retriever):
    """Retriever of rule conclusions with proofs and of similar cases, in one answer.

    Both sides run in parallel. Their hits are merged, each text once, by the priority of the policy
    and then by score. Either side may be missing. If one side fails or finds nothing, the other
    side answers, and ``degraded`` has the reason. Rules run only for the chapters that the policy
    names.

    Each priority gets a band of scores in [0, 1]: by default a rule sentence is above any case. The
    original score of a hit is in ``contributions``, and in `RetrievalItem.score`.

    Args:
        vector: Any retriever with scores in [0, 1], for cases and templates; a `Leg` sets its own
            timeout and retries. None for rules only.
        rules: A `KGRuleRetriever`; likewise. None for cases only.
        text_to_cypher: Statement generator for ``infer_rules(use_llm=True)``; optional.
        policy: Chapters with rules, priorities, templates and limits.
        top_k: Number of items if the query sets none; None for all.
        filters: Conditions on metadata that every hit satisfies.
        scope: Visible rows, on both sides.
        name: Name in traces.

    Raises:
        ConfigurationError: Both sides are missing.

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

    takes_curation: ClassVar[bool] = False

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
        settings = KnowledgePolicy() if policy is None else policy
        self.policy = of_type(settings, KnowledgePolicy, "policy")
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
        """Return a retriever over a vector store, a graph, or both.

        `close` closes what this method opened by URL.

        Args:
            store: A URL such as ``embedded:./kb``, a LlamaIndex vector store or index.
            graph: A URL such as ``graph:./dir``, a LlamaIndex property graph store or index.
            rules: Rules, or the path of their file; None for the rules of `KGRetriever`.
            embed_model: The embedding model of the store.
            llm: LLM for ``infer_rules(use_llm=True)``, with a Neo4j graph; optional.
            policy: As for the constructor.
            scope: Visible rows.

        Raises:
            ConfigurationError: Store and graph are both missing, or there are rules without a
                graph.
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
        """Close what `from_storage` opened; a second call is a no-op."""
        self.owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """Retrievers of the sides."""
        return [leg.retriever for leg in self.legs.values()]

    @property
    def leg_names(self) -> list[str | None]:
        """Names of the sides."""
        return chosen_names([*self.legs.values()])

    @property
    def label(self) -> str:
        """Class name."""
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
        fields: Mapping[str, float] | None = None,
        correct: bool | None = None,
        interpret: bool | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
    ) -> KnowledgeResponse:
        """Return rule conclusions and cases for a question.

        Args:
            query: Text, ``QueryBundle`` or `Query`.
            chapter: Chapter to write, such as ``safety``.
            engineering_type: For example ``subway``: leaves out cases and processes of other types,
                and selects the processes of this type if the query names none. Conditions of rules
                read chapter and type.
            processes: Names or ids of processes; None for those in the query.
            filters: Additional conditions on metadata, for this call.
            scope: Narrows the scope of the retriever for this call.
            top_k: Number of items, for this call.
            timeout_s: Time limit of the whole answer, in seconds.
            context: Additional values for conditions of rules.
            fields: The fields of keyword searches, with weights, for this call.
            correct: Whether typing errors are corrected where cases are searched; None for True.
            interpret: Whether words that state filters become filters where cases are searched.
            as_of: The time for which the query asks, as for `Query`.
            known_at: The time at which it was known, as for `Query`.
        """
        bound = knowledge_query(query, chapter, engineering_type, processes, context).but(
            filters=filters,
            scope=scope,
            top_k=top_k,
            timeout_s=timeout_s,
            fields=fields,
            correct=correct,
            interpret=interpret,
            as_of=as_of,
            known_at=known_at,
        )
        return run(self._response(bound))

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
        """Return the result of `search` without blocking the event loop."""
        context = options.pop("context", None)
        bound = knowledge_query(query, chapter, engineering_type, processes, context).but(**options)
        return await arun(self._response(bound))

    @blocking
    def retrieve_regulations(
        self,
        engineering_type: str | None = None,
        processes: Sequence[str] | None = None,
        *,
        scope: Scope | None = None,
    ) -> Plan[ResultList[RetrievalItem]]:
        """Return rule conclusions for processes; an empty list without a rule side.

        Args:
            engineering_type: Selects the processes that the graph links to it, or those of
                ``processes`` that apply to it; conditions of rules also read it.
            processes: Names or ids. Without both arguments no process is selected.
            scope: Visible rows.

        Raises:
            TooFewLegsError: The rule side failed.
        """
        text = named(processes) or engineering_type or ""
        query = knowledge_query(text, None, engineering_type, processes).but(scope=scope)
        return (yield from self._only(RULE_SIDE)._items(query))  # noqa: SLF001

    aretrieve_regulations = asynchronous(retrieve_regulations)

    @blocking
    def retrieve_cases(
        self,
        query: QueryType,
        chapter: str | None = None,
        engineering_type: str | None = None,
        limit: int = 3,
        *,
        scope: Scope | None = None,
    ) -> Plan[ResultList[RetrievalItem]]:
        """Return the cases nearest to a question, then the templates.

        Without a vector side the list is empty.

        Args:
            query: The question.
            chapter: Excludes cases of other chapters.
            engineering_type: Excludes cases of other engineering types.
            limit: Maximum number of cases, and of templates.
            scope: Visible rows.

        Raises:
            TooFewLegsError: The vector side failed.
        """
        only = self._only(VECTOR_SIDE, limit=limit)
        bound = knowledge_query(query, chapter, engineering_type).but(scope=scope)
        return (yield from only._items(bound))  # noqa: SLF001

    aretrieve_cases = asynchronous(retrieve_cases)

    @blocking
    def infer_rules(
        self,
        context: str | Mapping[str, object],
        processes: Sequence[str] | None = None,
        *,
        use_llm: bool = False,
        scope: Scope | None = None,
    ) -> Plan[ResultList[RetrievalItem]]:
        """Return rule conclusions for processes, optionally with rows of LLM-written Cypher.

        Args:
            context: The question, or the values for conditions of rules with the question as
                ``query``.
            processes: Names or ids; None for those in the question.
            use_llm: Whether an LLM also writes a statement for the question. Its rows, with the
                source ``generated``, follow the rule conclusions; if it fails, or under a scope,
                only the conclusions are returned.
            scope: Visible rows.

        Raises:
            ConfigurationError: No LLM is set.
            TooFewLegsError: The rule side failed.
        """
        only = self._only(RULE_SIDE)
        if use_llm:
            if self.text_to_cypher is None:
                raise ConfigurationError(
                    "use_llm=True needs text_to_cypher=TextToCypher(graph, llm), or "
                    "from_storage(graph='neo4j://…', llm=…)"
                )
            only.legs[GENERATED] = Leg(GENERATED, GeneratedRetriever(self.text_to_cypher))
        values = {"query": context} if isinstance(context, str) else dict(context)
        text = str(values.pop("query", None) or named(processes) or values.get(TYPE_KEY, ""))
        query = knowledge_query(text, processes=processes or None, context=values)
        return (yield from only._items(query.but(scope=scope)))  # noqa: SLF001

    ainfer_rules = asynchronous(infer_rules)

    def _response(self, query: Query) -> Plan[KnowledgeResponse]:
        result = yield from search_plan(self, query)
        return KnowledgeResponse.of(result, self._query_context(query))

    def _items(self, query: Query) -> Plan[ResultList[RetrievalItem]]:
        answer = yield from self._response(query)
        items = ResultList(answer.items)
        items.degraded, items.hints = answer.degraded, answer.hints
        return items

    def _only(self, *sides: str, limit: int | None = None) -> Self:
        """Return a copy with only these sides."""
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
            "processes": processes_in(query.context),
            "rules_asked": RULE_SIDE in self._sides_for(query),
        }

    def _sides_for(self, query: Query) -> list[str]:
        """Return the sides to query."""
        chapter = query.context.get(CHAPTER_KEY)
        asks_rules = self.policy.asks_rules(None if chapter is None else str(chapter))
        return [side for side in self.legs if side != RULE_SIDE or asks_rules]

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Ask rules and cases side by side, then order by priority."""
        sides = self._sides_for(query)
        if RULE_SIDE in self.legs and RULE_SIDE not in sides:
            note_inquiry(("chapter", id(self)), lambda: self._no_rules(query), always=False)
        child = self._for_children(query)
        asks = {side: self._ask(side, child) for side in sides}
        rankings = (yield from ask(asks)) if asks else {}
        hits: list[Hit] = []
        for side, ranking in rankings.items():
            hits += items_of(side, ranking, self.policy)
        return each_text_once(ordered(hits))[: query.top_k]

    def _no_rules(self, query: Query) -> Plan[list[str]]:
        chapter, chapters = query.context[CHAPTER_KEY], self.policy.rule_chapters
        near = nearest(str(chapter), chapters)
        return finished([f"no rules for the chapter {quoted(chapter)}; they run for {near}"])

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
