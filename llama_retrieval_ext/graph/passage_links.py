"""Links between passages without an LLM: by named titles, mentioned entities, shared phrases.

Passages are stored without links; links are derived from all passages that a scope can see. So
frequencies and cut-offs never depend on other tenants and are never out of date.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.filters import SCOPE_KEYS
from llama_retrieval_ext.graph.elements import CHUNK_LABEL, Contents, Edge, GraphNode, Partition
from llama_retrieval_ext.graph.entity_linking import NameFinder, check_ner, names_found
from llama_retrieval_ext.text.gazetteer import Gazetteer

DOCUMENT_KEY: Final = "ref_doc_id"
DOCUMENT_LABEL: Final = "document"
MENTIONS: Final = "MENTIONS"
PART_OF: Final = "PART_OF"


@dataclass(frozen=True, kw_only=True)
class PassageLinks:
    """Settings for the evidence that links passages.

    Args:
        titles: Whether a passage is linked to passages whose title it names.
        entities: Whether passages are linked by entities: those that ``entity_fields``,
            ``gazetteer`` and ``ner`` find, and all others that they mention in the graph.
        phrases: Whether passages are linked by shared rare phrases.
        title_fields: Metadata fields with the title of a passage or of its document.
        entity_fields: Metadata fields whose values, strings or lists of them, are entities.
        gazetteer: Names of known entities.
        ner: Finds entities in a text: an object with ``extract(text)``, or a function.

    Raises:
        ConfigurationError: A field of names is one string, or ``ner`` cannot be called.

    Examples:
        >>> PassageLinks(entity_fields=["tags"]).entity_fields
        ('tags',)

    """

    titles: bool = True
    entities: bool = True
    phrases: bool = True
    title_fields: Sequence[str] = ("title", "heading", "header_path", "file_name")
    entity_fields: Sequence[str] = ()
    gazetteer: Sequence[str] = ()
    ner: NameFinder | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("title_fields", "entity_fields", "gazetteer"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(item, str) for item in value):
                raise ConfigurationError(f"{name} must be a list of strings, got {value!r}")
            object.__setattr__(self, name, tuple(value))
        if self.ner is not None:
            check_ner(self.ner)

    def titles_of(self, metadata: Mapping[str, object]) -> list[str]:
        """Return the titles in metadata, without folders, suffixes and heading levels.

        Examples:
            >>> PassageLinks().titles_of({"file_name": "rules.md", "header_path": "/A/Cranes/"})
            ['Cranes', 'rules']

        """
        values = ((key, metadata.get(key)) for key in self.title_fields)
        titles = (_TITLES.get(key, str)(value) for key, value in values if isinstance(value, str))
        return [title for title in dict.fromkeys(titles) if title.strip()]

    def entities_of(self, text: str, metadata: Mapping[str, object]) -> list[str]:
        """Return the entities of a passage by metadata, gazetteer and NER, each once, sorted."""
        if not self.entities:
            return []
        names: set[str] = set()
        for key in self.entity_fields:
            value = metadata.get(key)
            values = [value] if isinstance(value, str) else value
            if isinstance(values, list | tuple):
                names.update(value for value in values if isinstance(value, str))
        if self._known is not None:
            names.update(id_ for match in self._known.find(text) for id_ in match.ids)
        if self.ner is not None:
            names.update(names_found(self.ner, text))
        return sorted({name.strip() for name in names} - {""})

    @cached_property
    def _known(self) -> Gazetteer | None:
        return Gazetteer((name, name) for name in self.gazetteer) if self.gazetteer else None


_TITLES: Final[Mapping[str, Callable[[str], str]]] = {
    "file_name": lambda name: re.split(r"[\\/]", name)[-1].rpartition(".")[0] or name,
    "header_path": lambda path: path.strip("/ ").split("/")[-1],
}


def passage_rows(passages: Iterable[BaseNode], links: PassageLinks) -> Contents:
    """Return passages, their documents and entities as rows of a graph.

    There is one node per passage, with its id in the vector store, its metadata and text, and one
    entity per document with an id and per entity found, with edges from the passages to both.
    """
    nodes: dict[tuple[Partition, str], GraphNode] = {}
    edges: list[Edge] = []
    for passage in passages:
        properties = dict(passage.metadata)
        if passage.ref_doc_id is not None:
            properties[DOCUMENT_KEY] = passage.ref_doc_id
        text = passage.get_content(metadata_mode=MetadataMode.NONE)
        passage_node = GraphNode(passage.node_id, CHUNK_LABEL, properties=properties, text=text)
        home = passage_node.partition
        where = {
            key: passage_node.properties[key]
            for key in SCOPE_KEYS
            if key in passage_node.properties
        }
        nodes[home, passage_node.id] = passage_node
        document = properties.get(DOCUMENT_KEY)
        if isinstance(document, str):
            title = next(iter(links.titles_of(properties)), document)
            node = GraphNode(f"{DOCUMENT_LABEL}:{document}", DOCUMENT_LABEL, title, where)
            nodes.setdefault((home, node.id), node)
            edges.append(Edge.of(passage_node.id, PART_OF, node.id, where))
        for name in links.entities_of(text, properties):
            nodes.setdefault((home, name), GraphNode(name, properties=where))
            edges.append(Edge.of(passage_node.id, MENTIONS, name, where))
    return Contents(list(nodes.values()), edges)
