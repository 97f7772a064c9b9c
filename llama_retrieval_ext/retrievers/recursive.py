"""Retriever that follows index nodes to nodes, retrievers and query engines."""

import copy
from collections.abc import Mapping, Sequence

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.retrievers.recursive_retriever import DEFAULT_QUERY_RESPONSE_TMPL
from llama_index.core.schema import BaseNode, NodeWithScore, QueryType

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import step
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.parameters import Count, Portion
from llama_retrieval_ext.pipeline.index_nodes import (
    Resolver,
    ScorePolicy,
    Sources,
    Target,
    target_key,
)
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import in_order
from llama_retrieval_ext.results import Hit


class RecursiveRetriever(Retriever):
    """Retriever that replaces each index node among the root's hits by the target of its id.

    An id is looked up in the nodes, then the retrievers, then the query engines. Problems do not
    fail the query: for an unknown id, a cycle, an exhausted budget or a failed branch, the index
    node stays in the ranking and the answer is marked degraded. A target of several index nodes is
    called once; siblings are called in parallel.

    Args:
        root_id: Key of the first retriever in ``retriever_dict``.
        retriever_dict: Retrievers by id.
        query_engine_dict: Query engines by id; each answer becomes a node.
        node_dict: Nodes by id.
        callback_manager: LlamaIndex's, for applications that still use one.
        query_response_tmpl: Text template of the node for a query engine's answer, with
            ``{query_str}`` and ``{response}``; default as in LlamaIndex.
        verbose: Whether to log each answer; see ``search(query).trace`` for more.
        max_depth: Maximum depth of index nodes to follow, at least 1.
        max_fan_out: Maximum number of distinct ids to follow at each depth, best first.
        policy: Score of a target: the ``"child"``'s own, that of the index node (``"parent"``), the
            ``"product"`` of both, or the own one times ``decay`` per level (``"decayed"``). A
            target without a score, such as a plain node, gets the index node's.
        decay: Factor per level, for ``"decayed"``, in ``(0, 1]``.
        top_k: Number of hits if the query sets none; None for all.

    Raises:
        ConfigurationError: ``root_id`` has no retriever, an id has two targets, or an argument is
            out of range.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - LlamaIndex's arguments, and the budgets it lacks
        self,
        root_id: str,
        retriever_dict: Mapping[str, BaseRetriever],
        query_engine_dict: Mapping[str, BaseQueryEngine] | None = None,
        node_dict: Mapping[str, BaseNode] | None = None,
        callback_manager: CallbackManager | None = None,
        query_response_tmpl: str | None = None,
        verbose: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's
        *,
        max_depth: Count = 8,
        max_fan_out: Count = 100,
        policy: ScorePolicy = "child",
        decay: Portion = 0.7,
        top_k: Count | None = None,
        name: str = "recursive",
    ) -> None:
        super().__init__(top_k=top_k, name=name, callback_manager=callback_manager)
        self._verbose = verbose
        if root_id not in retriever_dict:
            raise ConfigurationError(
                f"there is no retriever under the root id {root_id!r}; "
                f"retriever_dict has {sorted(retriever_dict)}"
            )
        self.root_id = root_id
        self._sources: Sources | None = None  # set on the copy of `retrieve_all`
        self._targets = _one_target_an_id(retriever_dict, query_engine_dict or {}, node_dict or {})
        self._resolver = Resolver(
            lambda node: self._targets.get(node.index_id),
            max_depth,
            max_fan_out,
            policy,
            decay,
            report_dangling=True,
            response_template=_checked(query_response_tmpl or DEFAULT_QUERY_RESPONSE_TMPL),
        )

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """All retrievers, the root first."""
        first = sorted(self._targets, key=lambda id_: id_ != self.root_id)
        targets = (self._targets[id_] for id_ in first)
        return [target for target in targets if isinstance(target, BaseRetriever)]

    @blocking
    def retrieve_all(
        self, query_bundle: QueryType
    ) -> Plan[tuple[list[NodeWithScore], list[NodeWithScore]]]:
        """Return the hits and the source nodes of the query engines' answers, as LlamaIndex does.

        Returns:
            The hits, and the source nodes of the answers among them, in the same order, each once,
            with the scores of the query engines.
        """
        sources: Sources = {}
        noting = copy.copy(self)
        noting._sources = sources  # noqa: SLF001 - its own class
        nodes = yield from noting.answer(Query.of(query_bundle))
        return nodes, _drawn_on(nodes, sources)

    aretrieve_all = asynchronous(retrieve_all)

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Retrieve, then follow index nodes."""
        child = self._for_children(query)
        root = self.children[0]
        search = hits_of(root, child, source=self.root_id)
        hits = yield from step(self.root_id, search, reports=True)
        # A foreign root may give no scores: 1.0 if no hit has one, as in LlamaIndex.
        with_score = [hit for hit in hits if hit.score is not None]
        if len(with_score) < len(hits):
            scored = [hit.model_copy(update={"score": 1.0}) for hit in hits]
            hits = in_order(hits if with_score else scored)
        inside = [target_key(self.root_id, root)]
        resolved = yield from self._resolver.resolve(
            hits, child, inside=inside, sources=self._sources
        )
        return resolved[: query.top_k]


def _drawn_on(nodes: Sequence[NodeWithScore], sources: Sources) -> list[NodeWithScore]:
    drawn: dict[str, NodeWithScore] = {}
    for node in nodes:
        for hit in sources.get(node.node.node_id, ()):
            drawn.setdefault(hit.node.node_id, hit)
    return list(drawn.values())


def _checked(template: str) -> str:
    try:
        template.format(query_str="", response="")
    except (LookupError, ValueError) as error:
        raise ConfigurationError(
            f"query_response_tmpl takes {{query_str}} and {{response}} and no other braces, "
            f"got {template!r}"
        ) from error
    return template


def _one_target_an_id(*dicts: Mapping[str, Target]) -> dict[str, Target]:
    targets: dict[str, Target] = {}
    for mapping in dicts:
        twice = sorted(set(mapping) & set(targets))
        if twice:
            raise ConfigurationError(f"these ids lead to two things: {twice}; give each one only")
        targets.update(mapping)
    return targets
