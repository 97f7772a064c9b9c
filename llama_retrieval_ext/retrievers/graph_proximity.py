"""Ranks passages of entity search by hops from the entities in the query."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from llama_index.core.graph_stores.types import TRIPLET_SOURCE_KEY

from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.entity_linking import LinkedEntity
from llama_retrieval_ext.graph.evidence import source_of_edge
from llama_retrieval_ext.graph.expansion import Expansion, Path
from llama_retrieval_ext.graph.passage_links import MENTIONS

_DECAY: Final = 0.7


def add_sources(expansion: Expansion, nodes: Mapping[str, GraphNode]) -> None:
    """Add the passages that entities and relations were extracted from, by LlamaIndex's ids."""
    by_distance: dict[int, dict[str, list[Edge]]] = {}
    for id_, distance in list(expansion.distances.items()):
        if id_ in nodes and not nodes[id_].is_passage:
            sources = {nodes[id_].properties.get(TRIPLET_SOURCE_KEY)}
            sources.update(source_of_edge(edge) for edge in expansion.path(id_).edges[-1:])
            edges = [Edge(each, MENTIONS, id_) for each in sources if isinstance(each, str)]
            by_distance.setdefault(distance + 1, {})[id_] = sorted(edges)
    most = 3 * len(expansion)  # each node adds two at most
    for distance, edges_of in sorted(by_distance.items()):
        expansion.add(edges_of, distance, limit=most)


class Near(NamedTuple):
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
        return {
            "matched_entities": names,
            "hop_distance": len(edges) - 1,
            "path": str(named),
        }


def _name(id_: str, nodes: Mapping[str, GraphNode]) -> str:
    return nodes[id_].name if id_ in nodes else id_


def proximity(id_: str, linked: Sequence[LinkedEntity], reached: Mapping[str, Expansion]) -> Near:
    """Return the mean over the entities of ``0.7 ** hops``; 0 for an entity without a path."""
    total = sum(each.score for each in linked if each.node_id in reached)
    ways = [each for each in linked if id_ in reached.get(each.node_id, ())]
    hops = {each.node_id: reached[each.node_id].distances[id_] - 1 for each in ways}
    score = sum(each.score * _DECAY ** hops[each.node_id] for each in ways) / total
    ways.sort(key=lambda each: (hops[each.node_id], -each.score, each.node_id))
    return Near(score, [reached[each.node_id].path(id_) for each in ways])
