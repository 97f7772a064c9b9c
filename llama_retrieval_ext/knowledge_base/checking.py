"""`CheckReport`: the comparison of the ledger of a knowledge base with its store and its graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_retrieval_ext.filter_syntax import as_metadata_filters
from llama_retrieval_ext.knowledge_base.ledger.prepared import key_of_node
from llama_retrieval_ext.knowledge_base.ledger.records import Entry
from llama_retrieval_ext.knowledge_base.storage import Storage
from llama_retrieval_ext.schema import DEFAULT_SCHEMA
from llama_retrieval_ext.scope import ALLOWED_KEY, Scope
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.wording import counted

# Nodes of a search; the beginnings of their texts are one query, of at most 1,024 terms.
_SEARCHED = 50
_BEGINNING = 100
_SHOWN = 5
# Whoever it is: a document without principals is visible.
_ANYONE = "user:check"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The damage of a knowledge base.

    Attributes:
        documents: Number of documents that were checked.
        nodes: Number of their nodes.
        damaged: What is wrong with documents, by source, or id without one. Delete each and add it
            again.
        problems: What concerns no single document.
        unfinished: Number of documents that are being written, or were when a process died.
        seconds: Duration in seconds.

    Examples:
        >>> print(CheckReport(2, 7, damaged={"leave.md": ("1 of 3 nodes is missing",)}))
        2 documents, 7 nodes: 1 document is damaged; delete each and add it again
        leave.md: 1 of 3 nodes is missing

    """

    documents: int
    nodes: int
    damaged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    unfinished: int = 0
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damaged and not self.problems

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON."""
        return {
            "is_whole": self.is_whole,
            "documents": self.documents,
            "nodes": self.nodes,
            "damaged": {name: list(faults) for name, faults in self.damaged.items()},
            "problems": list(self.problems),
            "unfinished": self.unfinished,
            "seconds": round(self.seconds, 3),
        }

    def __str__(self) -> str:
        checked = f"{counted(self.documents, 'document')}, {counted(self.nodes, 'node')}"
        if self.unfinished:
            checked += f", {self.unfinished} more being written"
        if self.is_whole:
            return f"{checked}: all there"
        verb = "is" if len(self.damaged) == 1 else "are"
        advice = f"{counted(len(self.damaged), 'document')} {verb} damaged"
        if self.damaged:
            advice += "; delete each and add it again"
        lines = [f"{name}: {'; '.join(faults)}" for name, faults in self.damaged.items()]
        return "\n".join([f"{checked}: {advice}", *self.problems, *lines])

    __repr__ = __str__


class Check:
    """Compares a ledger with its store, by the searches and filters that answer queries."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._store = storage.store
        self._ledger = storage.ledger
        self._graph = storage.graph_target()
        self._damage: dict[str, dict[str, list[str]]] = {}

    def run(self) -> CheckReport:
        """Compare all documents that are not being written.

        It reads each node and searches for it, which takes some milliseconds per node on a server.
        """
        started = perf_counter()
        entries = self._ledger.entries()
        n_nodes = sum(entry.n_nodes for entry in entries)
        batch: list[tuple[Entry, str]] = []
        for entry in entries:
            ids = self._ledger.node_ids([entry.key]).get(entry.key, [])
            if len(ids) != entry.n_nodes:
                self._note(entry, f"the ledger has {len(ids)} of {entry.n_nodes} nodes", "")
            batch += [(entry, node_id) for node_id in ids]
            while len(batch) >= _SEARCHED:
                self._check({id_: entry for entry, id_ in batch[:_SEARCHED]})
                batch = batch[_SEARCHED:]
        self._check({id_: entry for entry, id_ in batch})
        unfinished = self._ledger.count()[0] - len(entries)
        problems = [] if unfinished else [*self._of_the_store(n_nodes)]
        damaged = {
            name: tuple(_summary(what, ids) for what, ids in damage.items())
            for name, damage in self._damage.items()
        }
        seconds = perf_counter() - started
        return CheckReport(
            len(entries), n_nodes, damaged, tuple(problems), max(0, unfinished), seconds
        )

    def _of_the_store(self, n_nodes: int) -> Iterator[str]:
        held = self._store.count()
        if held > n_nodes:
            yield f"the store has {counted(held - n_nodes, 'node')} of no document"
        if isinstance(self._store, EmbeddedVectorStore):
            yield from self._store.damage()

    def _note(self, entry: Entry, what: str, node_id: str) -> None:
        damage = self._damage.setdefault(entry.source or entry.key.ref, {})
        damage.setdefault(what, []).append(node_id)

    def _check(self, entries: Mapping[str, Entry]) -> None:
        """Check some nodes by id, with the documents that they belong to."""
        nodes = {node.node_id: node for node in self._storage.nodes(list(entries))}
        for what, missing in self._missing(entries, nodes):
            for node_id in missing:
                self._note(entries[node_id], what, node_id)

    def _missing(
        self, entries: Mapping[str, Entry], nodes: Mapping[str, BaseNode]
    ) -> Iterator[tuple[str, set[str]]]:
        yield "not in the store", entries.keys() - nodes.keys()
        yield (
            "stored for another document, tenant or other principals",
            {
                id_
                for id_, node in nodes.items()
                if key_of_node(node) != entries[id_].key
                or {*(node.metadata.get(ALLOWED_KEY) or ())} != {*entries[id_].allowed}
            },
        )
        dimension = self._ledger.dimension()
        vectors = {id_ for id_, node in nodes.items() if len(node.embedding or ()) == dimension}
        yield "without vector", nodes.keys() - vectors
        by_vector = [id_ for id_ in nodes if id_ in vectors and any(nodes[id_].get_embedding())]
        if by_vector:
            query = VectorStoreQuery(query_embedding=nodes[by_vector[0]].embedding)
            yield "not found by its vector", set(by_vector) - self._hits(query, by_vector)
        yield "not found by its words", self._not_found_by_words(nodes)
        yield "not found by its tenant or principals", self._not_found_by_scope(entries, nodes)
        if self._graph is not None:
            yield "not in the graph", self._graph.missing(list(nodes.values()))

    def _hits(self, query: VectorStoreQuery, node_ids: Sequence[str]) -> set[str]:
        query.node_ids, query.similarity_top_k = list(node_ids), len(node_ids)
        query.sparse_top_k = len(node_ids)
        return {*(self._store.query(query).ids or ())}

    def _not_found_by_words(self, nodes: Mapping[str, BaseNode]) -> set[str]:
        """Return the nodes that their words do not find: first all by their first words."""
        texts = {id_: DEFAULT_SCHEMA.everything(node) for id_, node in nodes.items()}
        texts = {id_: text for id_, text in texts.items() if self._store.tokenizer.tokens(text)}

        def hits(words: str, ids: Sequence[str]) -> set[str]:
            mode = VectorStoreQueryMode.TEXT_SEARCH
            return self._hits(VectorStoreQuery(query_str=words, mode=mode), ids) if ids else set()

        left = texts.keys() - hits(" ".join(t[:_BEGINNING] for t in texts.values()), [*texts])
        return {id_ for id_ in left if not hits(texts[id_][: _SEARCHED * _BEGINNING], [id_])}

    def _not_found_by_scope(
        self, entries: Mapping[str, Entry], nodes: Mapping[str, BaseNode]
    ) -> set[str]:
        """Return the nodes that the engine's filters do not find in the scopes that see them."""
        scopes: dict[tuple[str, str, str], list[str]] = {}
        for node_id in nodes:
            key, allowed = entries[node_id].key, entries[node_id].allowed
            for principal in allowed or (_ANYONE,):
                scopes.setdefault((key.tenant, key.kb, principal), []).append(node_id)
        missing: set[str] = set()
        for (tenant, kb, principal), ids in scopes.items():
            names = tenant if tenant.strip() else None, [kb] if kb.strip() else None
            filters = as_metadata_filters(Scope(*names, principals=[principal]).condition)
            seen = self._store.get_nodes(node_ids=ids, filters=filters)
            missing |= set(ids) - {node.node_id for node in seen}
        return missing


def _summary(what: str, node_ids: Sequence[str]) -> str:
    if node_ids == [""]:
        return what
    more = f" and {len(node_ids) - _SHOWN} more" if len(node_ids) > _SHOWN else ""
    return f"{counted(len(node_ids), 'node')} {what}: {', '.join(node_ids[:_SHOWN])}{more}"
