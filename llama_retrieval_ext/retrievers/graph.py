"""`GraphRetriever`: passages that a graph links to entities of the query or to hits."""

import copy
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple, Self, TypedDict, TypeVar, Unpack

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.graph_stores.types import TRIPLET_SOURCE_KEY
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import check_count, of_type
from llama_retrieval_ext.execution.context import call, note_degraded, step
from llama_retrieval_ext.execution.legs import MISTAKES
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.retrieval import embed, hits_of
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.formulas.cosine import Vector, cosines, matrix
from llama_retrieval_ext.graph.elements import Edge, GraphNode, Hop
from llama_retrieval_ext.graph.entity_linking import EntityLinker, LinkedEntity
from llama_retrieval_ext.graph.evidence import source_of_edge
from llama_retrieval_ext.graph.expansion import Expansion, Path, expand_each
from llama_retrieval_ext.graph.open import Graph
from llama_retrieval_ext.graph.passage_graphs import (
    DAMPING,
    PassageGraphs,
    SeededWalk,
    as_passage_graphs,
    similarity_share,
)
from llama_retrieval_ext.graph.passage_links import MENTIONS
from llama_retrieval_ext.hits import ordered
from llama_retrieval_ext.parameters import Count, Range
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.pipeline.tree import name_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import in_order
from llama_retrieval_ext.results import Hit, with_origin
from llama_retrieval_ext.retrievers.store_retriever import StoreRetriever, origin_in
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.hit_embeddings import stored_embeddings
from llama_retrieval_ext.stores.engine.search import EngineBackend
from llama_retrieval_ext.stores.generic import nodes_by_id
from llama_retrieval_ext.stores.open import Storage, source_of

T = TypeVar("T")
# Factor per hop of entity search.
_DECAY: Final = 0.7


class Hops(TypedDict, total=False):
    """Limits of entity search; see `GraphRetriever`."""

    enable_multi_hop: bool
    max_hops: int


class GraphRetriever(Retriever):
    """Retriever of passages that a graph links to the query; a vector store holds their text.

    Without a ``seed`` it runs entity search: it finds the entities that the query names, the
    passages that mention them, and related passages within ``max_hops``; each hop multiplies the
    score by 0.7. With a ``seed`` it runs personalised PageRank: a random walk over passages,
    phrases and entities starts from the hits of the seed and from the entities in the query. The
    score is the number of visits to a passage times its similarity to the query.

    Each hit has ``matched_entities``, ``hop_distance`` and ``path``. Scope and filters apply to
    every passage on a path and to the hits.

    Args:
        store: A URL such as ``embedded:./kb``, a LlamaIndex vector store or index: the texts of the
            passages, under their ids in the graph.
        graph: A URL such as ``graph:./dir``, a LlamaIndex property graph store or index, or
            `PassageGraphs` that several retrievers share. ``retriever.graphs`` has ``close()``, and
            ``refresh()`` for a graph that other processes write to.
        seed: Any retriever whose ranking starts the walk; None for entity search.
        embed_model: The embedding model of the store; None for that of a seed over the same store.
            If there is neither, and the query has no embedding, the scores of the seed replace the
            similarity.
        linker: Linker of entities in queries. None for exact and similar names in entity search,
            and for exact names in the walk.
        top_k: Number of hits if the query sets none; at least 1.
        filters: Conditions on metadata that every hit satisfies.
        scope: Visible rows.
        enable_multi_hop: Whether entity search continues from the passages that mention an entity.
        max_hops: Maximum number of hops.
        max_entities: Maximum number of entities of a query to start from.
        fan_out: Maximum number of links to follow per node, largest weight first; None for all.
        candidates: Minimum number of hits to request from the seed and of passages to compare with
            the query.
        damping: Share of the steps of the walk that follow a link, above 0 and below 1; larger
            values reach more distant passages.
        name: Name in traces and ``Hit.source``; ``graph`` unless given.

    Scores are in [0, 1].

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> from llama_retrieval_ext.graph.embedded import EmbeddedGraph
        >>> from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
        >>> from llama_retrieval_ext.retrievers.single_search import KeywordRetriever
        >>> from llama_retrieval_ext.stores.open import open_store
        >>> film = TextNode(id_="film", text="Night Train was directed by Anne Lister.")
        >>> anne = TextNode(id_="anne", text="Born in York.", metadata={"title": "Anne Lister"})
        >>> film.embedding, anne.embedding = [1.0, 0.0], [0.0, 1.0]
        >>> store, graph = open_store("embedded::memory:"), EmbeddedGraph(":memory:")
        >>> _ = store.add([film, anne])
        >>> graph.upsert(*passage_rows([film, anne], PassageLinks()))
        >>> retriever = GraphRetriever(store, graph=graph, seed=KeywordRetriever(store))
        >>> for hit in retriever.search("Night Train").hits:
        ...     print(hit.node_id, hit.hop_distance, hit.path)
        film 0 film
        anne 1 film -NAMES-> Anne Lister
        >>> store.close(), graph.close()
        (None, None)

    Raises:
        ConfigurationError: A number is out of range, or an argument is of another type.

    Source:
        Gutierrez et al., "HippoRAG", NeurIPS 2024, https://arxiv.org/abs/2405.14831: PageRank over
        passages and the entities in them; here links need no LLM.
    """

    def __init__(  # noqa: PLR0913 - the five that every retriever has, and what makes it a graph's
        self,
        store: Storage,
        *,
        graph: Graph | PassageGraphs,
        seed: BaseRetriever | None = None,
        embed_model: BaseEmbedding | None = None,
        linker: EntityLinker | None = None,
        top_k: Count = 10,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        enable_multi_hop: bool = True,
        max_hops: Count = 2,
        max_entities: Count = 10,
        fan_out: Count | None = 50,
        candidates: Count = 100,
        damping: Annotated[float, Range(above=0, below=1)] = DAMPING,
        name: str = "graph",
    ) -> None:
        super().__init__(top_k=top_k, filters=filters, scope=scope, name=name)
        source = source_of(store)
        self.backend = source.backend
        if isinstance(self.backend, EngineBackend):
            self.keeps_history = self.backend.keeps_history
        self.seed = seed
        self.embed_model = embed_model or source.embed_model
        if self.embed_model is None and isinstance(seed, StoreRetriever):
            is_same = seed.backend.store is source.backend.store
            self.embed_model = seed.embed_model if is_same else None
        self.object_map = dict(source.objects)
        self.graphs = as_passage_graphs(graph)
        self.linker = linker
        if self.linker is None and seed is None:
            self.linker = EntityLinker(self.graphs.backend)
        self.enable_multi_hop = enable_multi_hop
        self.max_hops = max_hops
        self.max_entities = max_entities
        self.fan_out = fan_out
        self.candidates = candidates
        self.damping = damping

    def _current_arguments(self) -> Mapping[str, object]:
        hops = {"enable_multi_hop": self.enable_multi_hop, "max_hops": self.max_hops}
        return {**super()._current_arguments(), **hops, "seed": self.seed}

    def by_entities(self, **hops: Unpack[Hops]) -> Self:
        """Return a copy with new limits that runs entity search and has no seed."""
        changed = copy.copy(self)
        changed.seed = None
        changed.linker = self.linker or EntityLinker(self.graphs.backend)
        enable = hops.get("enable_multi_hop", self.enable_multi_hop)
        changed.enable_multi_hop = of_type(enable, bool, "enable_multi_hop")
        changed.max_hops = check_count(hops.get("max_hops", self.max_hops), "max_hops")
        return changed

    @property
    def children(self) -> Sequence[BaseRetriever]:
        """Seed, if there is one."""
        return [] if self.seed is None else [self.seed]

    @property
    def label(self) -> str:
        """Class and arguments, without the seed."""
        parts = [self.backend.engine, f"graph={self.graphs.backend.engine}", f"top_k={self.top_k}"]
        return f"GraphRetriever({', '.join(parts)})"

    def plan(self, query: Query) -> Plan[list[Hit]]:
        """Start from entities, or from the hits of the seed, and walk."""
        return self._by_entities(query) if self.seed is None else self._by_walk(query, self.seed)

    # Entity search

    def _by_entities(self, query: Query) -> Plan[list[Hit]]:
        linked = yield from self._linked(query)
        if not linked and self.linker is not None:
            self.linker.note_unnamed(query.query_str, scope=query.scope)
        reached = yield from step("expansion", self._expanded(linked, query))
        nodes = yield from self._nodes(reached, {}, query)
        for expansion in reached.values():
            _add_sources(expansion, nodes)
        nodes = yield from self._nodes(reached, nodes, query)
        passages = [id_ for id_, node in nodes.items() if node.is_passage]
        near = {id_: _proximity(id_, linked, reached) for id_ in passages}
        best = sorted(near, key=lambda id_: (-near[id_].score, id_))[: self._depth(query)]
        (embedded,) = yield Together([Task("embedding", self._embedded(query))])
        texts = yield from step("texts", self._texts(best, query))
        similar = yield from self._similarities(texts, _degrading(embedded, self.name))
        hits = []
        for id_, node in texts.items():
            share = 1.0 if similar is None else similarity_share(similar[id_])
            hit = self._hit(node, near[id_].score * share**0.5)
            hits.append(hit.model_copy(update=near[id_].explained(nodes)))
        return ordered(hits)[: query.top_k]

    def _linked(self, query: Query) -> Plan[list[LinkedEntity]]:
        if self.linker is None:
            return []
        plan = self.linker.plan_link(query.query_str, scope=query.scope, limit=self.max_entities)
        return (yield from step("entity linking", plan))

    def _nodes(
        self, reached: Mapping[str, Expansion], read: Mapping[str, GraphNode], query: Query
    ) -> Plan[dict[str, GraphNode]]:
        """Return all reached nodes that the query may see."""
        ids = {id_ for expansion in reached.values() for id_ in expansion} - read.keys()
        if not ids:
            return dict(read)
        nodes = yield self.graphs.backend.plan_nodes(sorted(ids), scope=query.scope)
        return {**read, **{id_: n for id_, n in nodes.items() if _passable(n, query)}}

    def _expanded(self, linked: Sequence[LinkedEntity], query: Query) -> Plan[dict[str, Expansion]]:
        return expand_each(
            self.graphs.backend,
            [entity.node_id for entity in linked],
            max_hops=1 + (self.max_hops if self.enable_multi_hop else 0),
            hop=Hop(fan_out=self.fan_out),
            limit=10 * self._depth(query),
            scope=query.scope,
            passable=(lambda node: _passable(node, query)) if query.restricts_passages else None,
        )

    # Personalised PageRank

    def _by_walk(self, query: Query, seed: BaseRetriever) -> Plan[list[Hit]]:
        depth, name, child = self._depth(query), name_of(seed), self._for_children(query)
        seeds, embedded, graph, linked = yield Together(
            [
                Task(name, hits_of(seed, child, top_k=depth, source=name)),
                Task("embedding", self._embedded(query)),
                Task("graph", call(self.graphs.plan_of(query.scope))),
                Task("entity linking", self._linked(query)),
            ]
        )
        hits = seeds.result()
        vector = _degrading(embedded, self.name)
        links = _degrading(graph, self.name)
        if links is None:
            return (in_order(hits) if None in [hit.score for hit in hits] else hits)[: query.top_k]
        entities = _degrading(linked, self.name) or []
        started = yield from step(
            "walk",
            call(Call(lambda: SeededWalk(links, hits, entities, query, damping=self.damping))),
        )
        best = started.best(depth)
        texts = yield from step("texts", self._texts(list(best), query))
        similar = yield from self._similarities(texts, vector)
        shares = started.strength if similar is None else similar
        greatest = max(best.values(), default=1.0)
        scores = {
            id_: (best[id_] / greatest * similarity_share(shares.get(id_, 0.0))) ** 0.5
            for id_ in texts
        }
        top = sorted(scores, key=lambda id_: (-scores[id_], id_))[: query.top_k]
        return [
            self._hit(texts[id_], scores[id_]).model_copy(update=started.explained(id_))
            for id_ in top
        ]

    def _hit(self, node: BaseNode, score: float) -> Hit:
        """Return a hit without an embedding and with its store, as other retrievers do."""
        bare = node if node.embedding is None else node.model_copy(update={"embedding": None})
        hit = Hit(node=bare, score=score, source=self.name)
        return with_origin(hit, origin_in(self.backend, self.embed_model))

    # Texts and similarities

    def _depth(self, query: Query) -> int:
        return max(self.candidates, query.top_k or 1)

    def _embedded(self, query: Query) -> Plan[list[float] | None]:
        if query.embedding is not None:
            return query.embedding
        if self.embed_model is None:
            return None
        return (yield from embed(query, self.embed_model))

    def _texts(self, ids: Sequence[str], query: Query) -> Plan[dict[str, BaseNode]]:
        """Return the nodes in the store that the query may see; store and graph may differ."""
        nodes: dict[str, BaseNode] = yield nodes_by_id(self.backend, ids)
        condition = query.condition
        return {id_: node for id_, node in nodes.items() if matches(condition, node.metadata)}

    def _similarities(
        self, nodes: Mapping[str, BaseNode], vector: list[float] | None
    ) -> Plan[dict[str, float] | None]:
        """Return the cosine of each node with the query, 0 without one; None if none has one."""
        if vector is None:
            return None
        carried = {id_: node.embedding for id_, node in nodes.items()}
        vectors: dict[str, Vector] = {
            id_: embedding for id_, embedding in carried.items() if embedding is not None
        }
        others = [Hit(node=node, score=0.0) for id_, node in nodes.items() if id_ not in vectors]
        vectors |= yield from stored_embeddings(others, self.backend.store)
        ids = [id_ for id_ in nodes if id_ in vectors]
        if not ids:
            return dict.fromkeys(nodes, 0.0)
        values = cosines(matrix([vectors[id_] for id_ in ids], dim=len(vector)), vector)
        return dict.fromkeys(nodes, 0.0) | dict(zip(ids, map(float, values), strict=True))


def _passable(node: GraphNode, query: Query) -> bool:
    """Return whether a path may pass a node; filters apply only to passages."""
    return not node.is_passage or matches(query.condition, node.properties)


def _degrading(outcome: Outcome[T], where: str) -> T | None:
    """Return the value of a task; None and a degraded answer if it failed."""
    if outcome.error is None:
        return outcome.result()
    if isinstance(outcome.error, MISTAKES):
        raise outcome.error
    note_degraded(where, outcome.error)
    return None


def _add_sources(expansion: Expansion, nodes: Mapping[str, GraphNode]) -> None:
    """Add the passages that entities and relations were extracted from, by LlamaIndex's ids."""
    by_distance: dict[int, dict[str, list[Edge]]] = {}
    for id_, distance in list(expansion.distances.items()):
        if id_ in nodes and not nodes[id_].is_passage:
            sources = {nodes[id_].properties.get(TRIPLET_SOURCE_KEY)}
            sources.update(source_of_edge(edge) for edge in expansion.path(id_).edges[-1:])
            edges = [Edge(source, MENTIONS, id_) for source in sources if isinstance(source, str)]
            by_distance.setdefault(distance + 1, {})[id_] = sorted(edges)
    most = 3 * len(expansion)  # each node adds two at most
    for distance, edges_of in sorted(by_distance.items()):
        expansion.add(edges_of, distance, limit=most)


class _Near(NamedTuple):
    """Proximity of a passage to the entities in the query, and the paths to it."""

    score: float
    paths: list[Path]

    def explained(self, nodes: Mapping[str, GraphNode]) -> dict[str, object]:
        """Return the fields of a hit that explain it: nearest entity first, paths by names."""
        names = tuple(dict.fromkeys(_name(path.nodes[0], nodes) for path in self.paths))
        path = self.paths[0]
        edges = [
            Edge(_name(edge.source, nodes), edge.type, _name(edge.target, nodes))
            for edge in path.edges
        ]
        named = Path(tuple(_name(id_, nodes) for id_ in path.nodes), tuple(edges))
        return {"matched_entities": names, "hop_distance": len(edges) - 1, "path": str(named)}


def _name(id_: str, nodes: Mapping[str, GraphNode]) -> str:
    return nodes[id_].name if id_ in nodes else id_


def _proximity(id_: str, linked: Sequence[LinkedEntity], reached: Mapping[str, Expansion]) -> _Near:
    """Return the mean over the entities of ``0.7 ** hops``; 0 for an entity without a path."""
    total = sum(entity.score for entity in linked if entity.node_id in reached)
    ways = [entity for entity in linked if id_ in reached.get(entity.node_id, ())]
    hops = {way.node_id: reached[way.node_id].distances[id_] - 1 for way in ways}
    score = sum(way.score * _DECAY ** hops[way.node_id] for way in ways) / total
    ways.sort(key=lambda way: (hops[way.node_id], -way.score, way.node_id))
    return _Near(score, [reached[way.node_id].path(id_) for way in ways])
