"""`Browsable`: the methods of a knowledge base that list its contents."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.checks import check_count, checked_methods
from llama_retrieval_ext.embeddings.resolve import embed_model_name
from llama_retrieval_ext.errors import RetrievalExtError, UnsupportedModeError
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.graph.backend import WritableGraph
from llama_retrieval_ext.knowledge_base.checking import Check, CheckReport
from llama_retrieval_ext.knowledge_base.ledger.records import StoredSource
from llama_retrieval_ext.knowledge_base.rankings import scope_key
from llama_retrieval_ext.knowledge_base.storage import (
    Access,
    Storage,
    documents_named,
    grouping_name,
)
from llama_retrieval_ext.schema import DEFAULT_SCHEMA, Schema
from llama_retrieval_ext.scope import Scope, shown_to, without_allowed
from llama_retrieval_ext.stages.ranking import Ranking
from llama_retrieval_ext.stores.embedded.files import bytes_on_disk
from llama_retrieval_ext.stores.embedded.index import IndexInfo
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.urls import Location
from llama_retrieval_ext.wording import counted

_TYPES: Final = {
    str: "str",
    bool: "bool",
    int: "int",
    float: "float",
    list: "list",
    dict: "dict",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document in a knowledge base.

    Attributes:
        document_id: Its id; ``ref_doc_id`` of its nodes.
        source: The file that it came from; its own id if there is none.
        tenant_id: Its tenant; None if it has none.
        kb_id: Its knowledge base within the tenant; None if it has none.
        n_nodes: Number of its nodes.
        allowed: The principals who may see it, of a scope with principals only its own; empty for
            everyone in its scope.
    """

    document_id: str
    source: str
    tenant_id: str | None
    kb_id: str | None
    n_nodes: int
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnowledgeBaseInfo:
    """Settings and size of a knowledge base.

    Attributes:
        url: Its URL.
        engine: ``embedded``, ``qdrant``, ``milvus`` or ``elasticsearch``.
        embed_model: The name of its embedding model.
        dimension: Dimension of its vectors; None until the first is stored.
        documents: Number of documents.
        sources: Number of files that they come from; a document without one is its own source.
        nodes: Number of nodes.
        size_bytes: Size of its directory or file on disk; None in memory and on a server.
        require_scope: Whether every operation needs a scope.
        many_tenants: Whether the engine groups nodes by tenant.
        index: On the embedded engine, the storage of embeddings and the number indexed; None on
            others.
        graph: URL of its graph, which is updated with it; None for none.
        vector_share: The share of vector search in hybrid search that `KnowledgeBase.weigh`
            recorded; None before, when that of the embedding model holds.
        splitting: How the last added documents were split, such as ``PassageParser(...)``, along
            headings; empty if it has only nodes.
        schema: The searched fields, with weights, and those that are counted and compared.
        unindexed: Searched fields of the schema that need `KnowledgeBase.index_fields`.
    """

    url: str
    engine: str
    embed_model: str
    dimension: int | None
    documents: int
    sources: int
    nodes: int
    size_bytes: int | None
    require_scope: bool
    many_tenants: bool
    index: IndexInfo | None = None
    graph: str | None = None
    splitting: str = ""
    vector_share: float | None = None
    schema: Schema = DEFAULT_SCHEMA
    unindexed: Sequence[str] = ()

    def _repr_html_(self) -> str:
        from llama_retrieval_ext.display.html import facts_html  # noqa: PLC0415 - a view

        facts = {
            attribute.name.replace("_", " "): getattr(self, attribute.name)
            for attribute in fields(self)
        }
        return facts_html("KnowledgeBaseInfo", facts)


@checked_methods
class Browsable:
    """The methods of a knowledge base that list its contents."""

    embed_model: BaseEmbedding

    def __init__(self, access: Access, storage: Storage) -> None:
        self._access = access
        self._storage = storage
        self._ledger = storage.ledger

    @property
    def graph(self) -> WritableGraph | None:
        """The graph that is updated with it; None if it has none."""
        side = self._storage.graph
        return None if side is None else side.graph

    def get(self, source_or_id: str, *, scope: Scope | None = None) -> list[BaseNode]:
        """Return the nodes of all documents of a source, or of one document, with embeddings.

        Args:
            source_or_id: The path of the file or its end, or the id of a document, as for `delete`.
            scope: The scope it belongs to, as for `delete`.

        Returns:
            Ordered by document as added, then by position in the text where nodes have one, then by
            node id. Empty if there is no such source or document.

        Raises:
            ConfigurationError: The name is empty, or the end of several paths.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._access.check(scope)
        entries = documents_named(self._ledger, source_or_id, scope)
        ids = self._ledger.node_ids(entry.key for entry in entries)
        owners = {
            node_id: number
            for number, entry in enumerate(entries)
            for node_id in ids.get(entry.key, ())
        }

        def place(node: BaseNode) -> tuple[int, int]:
            return owners[node.node_id], getattr(node, "start_char_idx", None) or 0

        return sorted(self._visible(list(owners), scope), key=place)

    def nodes(self, *, scope: Scope | None = None, limit: int = 1000) -> list[BaseNode]:
        """Return nodes by node id, with embeddings; of many, those of some documents.

        Args:
            scope: Return only nodes visible to it; None for all.
            limit: Maximum number of nodes; at least 1.

        Raises:
            ConfigurationError: ``limit`` is below 1.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._access.check(scope)
        ids = self._ledger.visible_ids(scope, check_count(limit, "limit"))
        return list(self._visible(ids, scope))

    def sources(self, *, scope: Scope | None = None) -> list[StoredSource]:
        """Return the sources visible to a scope, by name; without a scope, all.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._access.check(scope)
        return self._ledger.sources(scope)

    def documents(self, *, scope: Scope | None = None) -> list[StoredDocument]:
        """Return the documents visible to a scope, by id; without a scope, all.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._access.check(scope)
        principals = None if scope is None else scope.principals
        visible = self._ledger.visible(scope)
        entries = sorted(visible, key=lambda entry: (entry.key.ref, *entry.key))
        return [
            StoredDocument(
                *(key.ref, source, key.tenant or None, key.kb or None, n_nodes),
                allowed if principals is None else tuple(a for a in allowed if a in principals),
            )
            for key, _, source, n_nodes, allowed in entries
        ]

    def count(self, *, scope: Scope | None = None) -> int:
        """Return the number of nodes visible to a scope; without a scope, of all nodes.

        Raises:
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._access.check(scope)
        if scope is None:
            return self._ledger.count()[1]
        return sum(entry.n_nodes for entry in self._ledger.visible(scope))

    def metadata_fields(
        self, *, scope: Scope | None = None, sample: int = 1000
    ) -> dict[str, dict[str, int]]:
        """Return the metadata keys of nodes, with the number of values of each type.

        Args:
            scope: Return only nodes visible to it; None for all.
            sample: Number of nodes to read, at least 1: those of documents that a digest of their
                ids chooses, which is a random sample of documents.

        Returns:
            For each key the types of its values (``str``, ``int``, ``float``, ``bool``, ``list``,
            ``dict`` or ``null``), with the number of nodes in the sample that have one.

        Raises:
            ConfigurationError: ``sample`` is below 1.
            ScopeRequiredError: The knowledge base requires a scope.

        Examples:
            >>> from llama_index.core import Document, MockEmbedding
            >>> from llama_retrieval_ext import KnowledgeBase
            >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
            ...     _ = kb.add([Document(text="leave", metadata={"year": 2024})])
            ...     kb.metadata_fields()
            {'year': {'int': 1}}

        """
        self._access.check(scope)
        ids = self._ledger.visible_ids(scope, check_count(sample, "sample"))
        counts: dict[str, Counter[str]] = {}
        for node in self._visible(ids, scope):
            for key, value in without_allowed(node.metadata).items():
                counts.setdefault(key, Counter())[_TYPES.get(type(value), "other")] += 1
        return {key: dict(counts[key].most_common()) for key in sorted(counts)}

    def ranking(self, *, scope: Scope | None = None) -> Ranking:
        """Return the rules that `set_ranking` has recorded for exactly this scope.

        Raises:
            ConfigurationError: The scope has principals, who may not see all that rules name.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        self._access.check(scope)
        text = self._ledger.rankings().get(scope_key(scope))
        return Ranking() if text is None else Ranking.from_dict(json.loads(text))

    def info(self) -> KnowledgeBaseInfo:
        """Return its settings and its size over all scopes.

        Raises:
            StoreUnavailableError: The server does not answer.
        """
        self._access.check_open()
        url, store = self._access.url, self._storage.store
        location = Location.of(url)
        documents, nodes = self._ledger.count()
        config = self._ledger.config()
        params = json.loads(config.params or "{}") if config else {}
        return KnowledgeBaseInfo(
            url=url,
            engine=location.engine,
            embed_model=embed_model_name(self.embed_model),
            dimension=config.dimension if config else None,
            documents=documents,
            sources=self._ledger.count_sources(),
            nodes=nodes,
            size_bytes=None if location.path is None else bytes_on_disk(location.path),
            require_scope=self._access.require_scope,
            many_tenants=params.get(grouping_name(location)) is True,
            index=store.index_info() if isinstance(store, EmbeddedVectorStore) else None,
            graph=(config.graph or None) if config else None,
            splitting=config.splitting if config else "",
            vector_share=config.vector_share if config else None,
            schema=store.field_schema,
            unindexed=store.unindexed,
        )

    def check(self) -> CheckReport:
        """Compare the documents with what searches find, and name those to add again.

        Each node is read and searched for: by its vector, its words, its tenant and its principals,
        and in the graph; on the embedded engine, indexes are compared with the stored metadata.
        This takes about a millisecond per node, some on a server. The report has all documents,
        whatever the scope that queries need: it is for the owner of the knowledge base.

        Returns:
            The damage; nothing is changed.

        Raises:
            StoreFormatError: Files cannot be read.
            StoreUnavailableError: The server does not answer.
        """
        self._access.check_open()
        return Check(self._storage).run()

    def index(self) -> IndexInfo:
        """Index all nodes of the embedded engine now; block until it is done.

        BM25 gets the mean text length of all nodes, as by `compact`.

        Searches and writes continue meanwhile; see `EmbeddedVectorStore.build_index`. With
        ``store_params={"index": "auto"}`` (20,000 nodes) or ``"hnsw"`` (10,000) the index is also
        built automatically in the background.

        Returns:
            The number of indexed nodes.

        Raises:
            UnsupportedModeError: The engine is another one, which indexes automatically.
            ConfigurationError: It was opened with ``store_params={"index": "exact"}``.
            StoreUnavailableError: There is no disk space for a copy, or the engine failed.
        """
        store = self._embedded_store("index()")
        store.build_index()
        return store.index_info()

    def check_recall(self, n: int = 100, *, top_k: int = 10) -> float:
        """Return the recall of indexed vector search against exact search, in ``[0, 1]``.

        Args:
            n: Number of stored embeddings, chosen at random, to search with.
            top_k: Number of nearest nodes per embedding, without itself.

        Returns:
            The mean share of an exact search's nodes that the indexed search finds; 1 if there is
            no index.

        Raises:
            UnsupportedModeError: The engine is not the embedded one.
            ConfigurationError: ``n`` or ``top_k`` is below 1.
        """
        return self._embedded_store("check_recall()").check_recall(n, top_k=top_k)

    def __repr__(self) -> str:
        facts = self._facts()
        shown = [
            repr(facts["url"]),
            *([str(facts["state"])] if "state" in facts else []),
            *(
                counted(number, noun)
                for noun in ("document", "node")
                if isinstance(number := facts.get(f"{noun}s"), int)
            ),
            *([repr(facts["model"])] if "model" in facts else []),
        ]
        return f"KnowledgeBase({', '.join(shown)})"

    def _repr_html_(self) -> str:
        from llama_retrieval_ext.display.html import facts_html  # noqa: PLC0415 - a view

        return facts_html("KnowledgeBase", self._facts())

    def _facts(self) -> dict[str, object]:
        """Return the facts that its representations show, by name."""
        url = self._access.url
        if self._access.is_closed:
            return {"url": url, "state": "closed"}
        try:
            documents, nodes = self._ledger.count()
        except RetrievalExtError as error:  # the repr must work while the server is down
            return {
                "url": url,
                "state": type(error).__name__,
                "model": embed_model_name(self.embed_model),
            }
        return {
            "url": url,
            "documents": documents,
            "nodes": nodes,
            "model": embed_model_name(self.embed_model),
            "requires scope": self._access.require_scope,
        }

    def _visible(self, ids: Sequence[str], scope: Scope | None) -> Iterator[BaseNode]:
        """Yield nodes by id; check each again, because the store is written after the ledger."""
        condition = None if scope is None else scope.condition
        nodes = self._storage.nodes(ids)
        return (shown_to(scope, node) for node in nodes if matches(condition, node.metadata))

    def _embedded_store(self, what: str) -> EmbeddedVectorStore:
        self._access.check_open()
        store = self._storage.store
        if not isinstance(store, EmbeddedVectorStore):
            url = self._access.url
            raise UnsupportedModeError(
                f"{what} is for the embedded engine, and {url} is on {Location.of(url).engine}, "
                "which builds its index by itself"
            )
        return store
