"""Entities that are related to a subject, from a graph or from passages."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.graph.elements import GraphNode
from llama_retrieval_ext.graph.entity_linking import EntityLinker, NameFinder, names_found
from llama_retrieval_ext.graph.expansion import plan_expand
from llama_retrieval_ext.graph.passage_links import DOCUMENT_LABEL
from llama_retrieval_ext.graph.phrases import phrase_spans, words
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.text.normalization import dominant_script, normal
from llama_retrieval_ext.text.segmentation import chinese_persons

_MOST_NODES: Final = 1_000


@dataclass(frozen=True, slots=True)
class RelatedEntity:
    """An entity that is related to a subject.

    Attributes:
        name: Its name.
        hops: Distance from the subject in the graph; None for an entity from passages.
        path: The path, by node ids; empty for an entity from passages.
        passages: Ids of the passages that name it; empty for an entity from the graph.
    """

    name: str
    hops: int | None = None
    path: str = ""
    passages: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the entity as JSON."""
        return {**asdict(self), "passages": list(self.passages)}


def related_in_graph(
    linker: EntityLinker, subject: str, *, max_hops: int, scope: Scope | None
) -> Plan[list[RelatedEntity]]:
    """Return the plan for the entities around those that a subject names, nearest first."""
    graph: GraphBackend = linker.graph
    linked = yield from linker.plan_link(subject, scope=scope)
    seeds = [entity.node_id for entity in linked]
    if not seeds:
        linker.note_unnamed(subject, scope=scope)
        return []
    expansion = yield from plan_expand(
        graph, seeds, max_hops=max_hops, limit=_MOST_NODES, scope=scope
    )
    nodes: dict[str, GraphNode] = yield graph.plan_nodes(list(expansion), scope=scope)
    return [
        RelatedEntity(nodes[id_].name, hops, str(expansion.path(id_)))
        for id_, hops in expansion.distances.items()
        if hops
        and (node := nodes.get(id_)) is not None
        and not (node.is_passage or node.label == DOCUMENT_LABEL)
    ]


def related_in_passages(
    hits: Sequence[Hit], subject: str, *, ner: NameFinder | None
) -> list[RelatedEntity]:
    """Return the names in the passages that name a subject, most frequent first.

    Names in the subject are excluded. Without ``ner`` names are capitalised words, but not numbers,
    codes and words that only begin a sentence or line; titles in Chinese quotation marks; and, for
    a Chinese subject, persons.

    Raises:
        MissingDependencyError: The subject is Chinese, and the extra ``zh`` is not installed.
    """
    is_chinese = dominant_script(subject) == "han"
    find = ner or (_chinese_names if is_chinese else _capitalised_names)
    subjects = {words(name) for name in names_found(find, subject)} or {words(subject)}
    named: dict[str, tuple[str, list[str]]] = {}
    for hit in hits:
        text = hit.node.get_content()
        spoken = words(text)
        if any(name in spoken for name in subjects):
            for name in names_found(find, text):
                if not any(words(name) in name_words for name_words in subjects):
                    named.setdefault(words(name), (name, []))[1].append(hit.node_id)
    by_count = sorted(named.values(), key=lambda counted: (-len(counted[1]), counted[0]))
    return [RelatedEntity(name, passages=tuple(dict.fromkeys(ids))) for name, ids in by_count]


# Numbers, dates, amounts and ids of tickets.
_CODE: Final = re.compile(r"(?<![\w-])[\w-]*\d[\w.,/:-]*")
_CODE_HERE: Final = "•"
_THEN_CODE: Final = re.compile(rf"\s*{_CODE_HERE}")


def _chinese_names(text: str) -> list[str]:
    return [*_capitalised_names(text), *dict.fromkeys(chinese_persons(text))]


def _capitalised_names(text: str) -> list[str]:
    """Return the names in a text, in its spelling."""
    text = normal(_CODE.sub(_CODE_HERE, text))
    names: dict[str, str] = {}
    for phrase, start, end in phrase_spans(text):
        if phrase not in names and _is_name(text, start, end):
            names[phrase] = text[start:end]
    return [names[phrase] for phrase in sorted(names)]


def _is_name(text: str, start: int, end: int) -> bool:
    """Return False for a word that begins a sentence or line, stands at a code, or is lower-case.

    Several capitalised words are a name anywhere.
    """
    if " " in text[start:end]:
        return True
    while start and text[start - 1] in " \t\"'“(":
        start -= 1
    is_inside = start > 0 and text[start - 1] not in f"\n.!?:;#*->|{_CODE_HERE}"
    return is_inside and _THEN_CODE.match(text, end) is None
