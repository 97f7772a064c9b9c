"""`SearchService`: whole documents for a query."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Annotated, Any, Final, Protocol, Self, TypeAlias, runtime_checkable

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, QueryType
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.capabilities.factory import CapabilityFactory
from llama_retrieval_ext.checks import check_count, checked_call, declared_arguments
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.hits import score_of
from llama_retrieval_ext.parameters import Advice
from llama_retrieval_ext.pipeline.retriever import listed
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit, ResultList
from llama_retrieval_ext.scope import KB_KEY, TENANT_KEY, Scope, document_of, without_allowed
from llama_retrieval_ext.services.scoped import ScopedService

# Passages per document in the first search, and growth factor of each further search.
_PASSAGES: Final = 4
_ROUNDS: Final = 3
# Document id, tenant, knowledge base.
_Document: TypeAlias = tuple[str, str | None, str | None]


@runtime_checkable
class Documents(Protocol):
    """Source of the nodes of documents, such as a `KnowledgeBase`."""

    def get(self, source_or_id: str, /, *, scope: Scope | None = None) -> list[BaseNode]:
        """Return the nodes of a document in a scope, in the order of its text."""
        ...


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """A document found for a query.

    Attributes:
        doc_id: Its id.
        content: Its whole text.
        score: Score of its best passage; higher is better.
        source: The retriever that found that passage, or the fusion that ranked it.
        metadata: Metadata of that passage.
    """

    doc_id: str
    content: str
    score: float
    source: str
    metadata: dict[str, Any]  # Any: JSON values

    def to_dict(self) -> dict[str, object]:
        """Return the document as JSON."""
        return asdict(self)


@declared_arguments
@dataclass(frozen=True)
class SearchService(ScopedService):
    """Search for whole documents, each returned once, by their best passage.

    Args:
        retriever: Finds passages; one of this package, or any LlamaIndex retriever.
        documents: The knowledge base that the retriever searches; or a LlamaIndex docstore with
            the documents or all their nodes.
        scope: As for `ScopedService`.
        require_scope: As for `ScopedService`.

    Raises:
        ConfigurationError: An argument is of another type.

    Examples:
        >>> from llama_index.core import Document, MockEmbedding
        >>> from llama_retrieval_ext import KnowledgeBase
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     _ = kb.add([Document(text="Annual leave: 25 days.", id_="leave")])
        ...     found = SearchService(kb.retriever("keyword"), kb).search("annual leave")
        ...     [(each.doc_id, each.content) for each in found]
        [('leave', 'Annual leave: 25 days.')]

    """

    retriever: BaseRetriever
    documents: Annotated[
        Documents | BaseDocumentStore, Advice("pass a KnowledgeBase or a LlamaIndex docstore")
    ]

    @classmethod
    @checked_call
    def of(cls, factory: CapabilityFactory, *, scope: Scope | None = None) -> Self:
        """Return the service over a factory's knowledge base, or else its docstore.

        Raises:
            ConfigurationError: The factory has neither.
        """
        documents = factory.kb or factory.parts.docstore
        if documents is None:
            raise ConfigurationError(
                "whole documents are in a knowledge base or a docstore: write "
                "CapabilityFactory.of(kb), or pass document_store= to the factory"
            )
        best, required = factory.best_retriever(), factory.parts.requires_scope
        return cls(best, documents, scope=scope, require_scope=required)

    @blocking
    def search(
        self,
        query: QueryType,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        *,
        scope: Scope | None = None,
    ) -> Plan[ResultList[DocumentResult]]:
        """Return the documents with the best passages, best first, with what is missing.

        A document that is deleted during the search is missing from the result.

        Args:
            query: Text, or a `Query` with a time limit.
            top_k: Number of documents, at least 1.
            filters: Conditions on the metadata of the best passage.
            scope: Narrows the service's scope.

        Raises:
            ConfigurationError: ``top_k`` is below 1.
        """
        bound = Query.of(query).but(filters=filters, scope=self._within(scope))
        return listed(self._documents(bound, check_count(top_k, "top_k")))

    asearch = asynchronous(search)

    def _documents(self, query: Query, top_k: int) -> Plan[list[DocumentResult]]:
        best: dict[_Document, Hit] = {}
        for round_ in range(1, _ROUNDS + 1):  # more passages, if they are of too few documents
            passages = top_k * _PASSAGES**round_
            hits = yield from hits_of(self.retriever, query, top_k=passages)
            best = {}
            for hit in hits:
                best.setdefault(_document_of(hit.node), hit)
            if len(best) >= top_k or len(hits) < passages:
                break
        tasks = [
            Task(f"document {key[0]}", self._document(key, hit, query.scope))
            for key, hit in islice(best.items(), top_k)
        ]
        outcomes: list[Outcome[DocumentResult | None]] = yield Together(tasks)
        return [document for outcome in outcomes if (document := outcome.result()) is not None]

    def _document(
        self, key: _Document, hit: Hit, scope: Scope | None
    ) -> Plan[DocumentResult | None]:
        nodes: list[BaseNode] = [hit.node]
        if hit.node.ref_doc_id is not None:
            stored: list[BaseNode] = yield Call(lambda: _nodes_of(key, self.documents, scope))
            condition = None if scope is None else scope.condition
            nodes = [
                node
                for node in stored
                if _document_of(node) == key and matches(condition, node.metadata)
            ]
        if not nodes:
            return None
        return DocumentResult(
            key[0], text_of(nodes), score_of(hit), hit.source, without_allowed(hit.node.metadata)
        )


def _document_of(node: BaseNode) -> _Document:
    """Return the key of the document of a node, or else of the node itself."""
    itself = (node.node_id, node.metadata.get(TENANT_KEY), node.metadata.get(KB_KEY))
    return document_of(node) or itself


def _nodes_of(
    document: _Document, documents: Documents | BaseDocumentStore, scope: Scope | None
) -> list[BaseNode]:
    """Return the nodes of a document in the order of its text; a docstore ignores the scope."""
    doc_id, tenant_id, kb_id = document
    if isinstance(documents, BaseDocumentStore):
        info = documents.get_ref_doc_info(doc_id)
        ids = [doc_id] if info is None else info.node_ids
        nodes = documents.get_nodes(ids, raise_error=False)
        return sorted(nodes, key=lambda node: getattr(node, "start_char_idx", None) or 0)
    principals = None if scope is None else scope.principals
    if tenant_id is None and kb_id is None and principals is None:
        return documents.get(doc_id)
    kb_ids = None if kb_id is None else (kb_id,)
    return documents.get(doc_id, scope=Scope(tenant_id, kb_ids, principals))


def text_of(nodes: Sequence[BaseNode]) -> str:
    r"""Return the text of a document from its nodes in their order, without repeated overlaps.

    If a text repeats itself over a whole node, the result can have fewer repeats.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> parts = [("Leave: 25", 0), ("25 days.", 7), ("Sick leave", 16)]
        >>> text_of([TextNode(text=text, start_char_idx=start) for text, start in parts])
        'Leave: 25 days.\nSick leave'

    """
    text, end = "", 0
    for node in nodes:
        content = node.get_content()
        start = getattr(node, "start_char_idx", None)
        overlap = content[: max(end - start, 0)] if start is not None else ""
        is_next = start is not None and start <= end and overlap in text
        gap = 1 if start is None else max(1, min(start - end, 2))  # one line break or two
        if text:
            text += content[len(overlap) :] if is_next else "\n" * gap + content
        else:
            text = content
        end = max(end, (start or 0) + len(content))
    return text
