"""`KnowledgeBaseInfo`: what a knowledge base is and how much is in it."""

import json
from dataclasses import dataclass

from llama_retrieval_ext.ingest.ledger.ledger import Ledger
from llama_retrieval_ext.ingest.storage import BY_TENANT
from llama_retrieval_ext.stores.embedded.files import bytes_on_disk
from llama_retrieval_ext.stores.embedded.index import IndexInfo
from llama_retrieval_ext.urls import Location


@dataclass(frozen=True, slots=True)
class KnowledgeBaseInfo:
    """What a knowledge base is, and how much is in it.

    Attributes:
        url: Where it lives.
        engine: ``embedded``, ``qdrant``, ``milvus`` or ``elasticsearch``.
        embed_model: The name of its embedding model.
        dimension: Of its vectors; None until there are some.
        documents: How many documents it has.
        sources: How many files these came from; a document without one counts as its own source.
        nodes: How many nodes it has.
        size_bytes: What its directory or file takes on the disk; None in memory and on a server.
        require_scope: Whether everything done with it needs a scope.
        many_tenants: Whether it was made to keep the nodes of a tenant together in the engine.
        index: How embeddings are stored, and how many are in an index, on the embedded engine; None
            on others.
        graph: URL of the graph that is kept in step with it; None for none.
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


def describe_knowledge_base(
    url: str,
    ledger: Ledger,
    *,
    embed_model: str,
    require_scope: bool,
    index: IndexInfo | None = None,
) -> KnowledgeBaseInfo:
    """Return what is known about a knowledge base.

    Args:
        url: Where it lives.
        ledger: What it knows about its documents.
        embed_model: The name of the model that it was opened with.
        require_scope: Whether it was opened so that everything needs a scope.
        index: How its store keeps and searches embeddings.

    Raises:
        StoreUnavailableError: The server does not answer.
    """
    location = Location.of(url)
    documents, nodes = ledger.count()
    config = ledger.config()
    params = json.loads(config.params or "{}") if config else {}
    return KnowledgeBaseInfo(
        url=url,
        engine=location.engine,
        embed_model=embed_model,
        dimension=config.dimension if config else None,
        documents=documents,
        sources=ledger.n_sources(),
        nodes=nodes,
        size_bytes=None if location.path is None else bytes_on_disk(location.path),
        require_scope=require_scope,
        many_tenants=params.get(BY_TENANT.get(location.engine)) is True,
        index=index,
        graph=(config.graph or None) if config else None,
    )
