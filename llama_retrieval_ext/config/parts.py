"""`RegistryParts`: the objects that the retrievers of the registry are made of."""
# Imported with every knowledge base, so what is slow to import is imported where it is used.

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.embeddings.resolve import languages_of
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.pipeline.retriever import Curation, Retriever
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.engine.backend import Backend

if TYPE_CHECKING:
    from llama_index.core.llms import LLM
    from llama_index.core.storage.docstore.types import BaseDocumentStore

    from llama_retrieval_ext.config.embedding import EmbeddingConfig
    from llama_retrieval_ext.graph.entity_linking import EntityLinker
    from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
    from llama_retrieval_ext.retrievers.kg_rule import Rules
    from llama_retrieval_ext.stages.rerank.models import AnyReranker

T = TypeVar("T")
R = TypeVar("R", bound=BaseRetriever)
# More hits than any retriever returns; the next stage cuts them.
_ALL: Final = 10_000


@runtime_checkable
class NodeSource(Protocol):
    """A knowledge base, as the retrievers in memory read it."""

    @property
    def url(self) -> str:
        """Its URL."""
        ...

    @property
    def require_scope(self) -> bool:
        """Whether every query needs a scope."""
        ...

    def nodes(self, *, scope: Scope | None = None, limit: int = 1000) -> list[BaseNode]:
        """Return the first nodes by node id."""
        ...

    def count(self, *, scope: Scope | None = None) -> int:
        """Return the number of nodes visible to a scope."""
        ...


# Creates a retriever by its name, with parameters, from parts.
Make = Callable[[str, Mapping[str, Any], "RegistryParts"], BaseRetriever]


def _unbound(name: str, *_: object) -> BaseRetriever:
    raise ConfigurationError(f"the parts of {name!r} belong to no registry: Registry().bind(kb)")


@dataclass(frozen=True, kw_only=True)
class RegistryParts:
    """Objects that retrievers are made of; the first argument of each definition.

    Attributes:
        make: Creates a retriever by name and parameters, for retrievers that contain others.
        backend: The store of a knowledge base.
        embed_model: The embedding model of its nodes.
        languages: Languages that the model knows; None for those that it declares.
        kb: The knowledge base, for retrievers that read its nodes.
        llm: The LLM; for ``hyde``, ``multi_query`` and routing by an LLM.
        graph: The graph, with its links between passages.
        rules: Rules of ``kg_rule``, or the path of their file.
        linker: Links the names in a query to entities of the graph; None for the default.
        docstore: LlamaIndex docstore with the parents of nodes, for ``auto_merging``.
        keyword: Keyword search of presets, if the store has none.
        reranker: Reranks in presets; None for `RuleRerank`.
        graph_seed: Retriever from whose hits the graph of presets is walked; None for the entities
            of the query.
        filters: Conditions on metadata of every retriever.
        scope: The scope of every retriever.
        vector_share: Share of vector search in ``hybrid``; None for the weights of its definition.
        given: Names of the parameters that the caller of `make` gave.
        requires_scope: Whether every query needs a scope.
        requires_principals: Whether every scope needs principals.
        curation: What the knowledge base does to every query, such as correcting it.
        objects: Additional application objects, by name.
        closers: Functions that close resources opened for retrievers.
    """

    make: Make = _unbound
    backend: Backend | None = None
    embed_model: BaseEmbedding | None = None
    languages: Sequence[str] | None = None
    kb: NodeSource | None = None
    llm: "LLM | None" = None
    graph: "PassageGraphs | None" = None
    rules: "Rules | None" = None
    linker: "EntityLinker | None" = None
    docstore: "BaseDocumentStore | None" = None
    keyword: BaseRetriever | None = None
    reranker: "AnyReranker | None" = None
    graph_seed: str | None = "vector"
    filters: MetadataFilters | None = None
    scope: Scope | None = None
    vector_share: float | None = None
    given: Collection[str] = ()
    requires_scope: bool = False
    requires_principals: bool = False
    curation: Curation | None = None
    objects: Mapping[str, object] = field(default_factory=dict)
    closers: list[Callable[[], object]] = field(default_factory=list)

    @property
    def live(self) -> dict[str, object]:
        """Objects available as references: ``store``, ``embed_model``, ``llm`` and so on."""
        named: dict[str, object | None] = {
            "kb": self.kb,
            "store": self.backend,
            "embed_model": self.embed_model,
            "llm": self.llm,
            "graph": self.graph,
            "graph_backend": None if self.graph is None else self.graph.backend,
            "rules": self.rules,
            "docstore": self.docstore,
            **self.objects,
        }
        return {name: part for name, part in named.items() if part is not None}

    def languages_unless(self, *weights: str) -> Sequence[str]:
        """Return the languages of the model; none if the caller gave one of these weights.

        Given weights hold for questions in every script.
        """
        if not set(weights).isdisjoint(self.given):
            return ()
        return languages_of(self.embed_model) if self.languages is None else self.languages

    def need_kb(self, name: str) -> NodeSource:
        """Return the knowledge base, or raise `ConfigurationError` if none was bound."""
        return _needed(self.kb, name, "a knowledge base: registry.bind(kb)")

    def need_backend(self, name: str) -> Backend:
        """Return the store of the knowledge base, or raise `ConfigurationError`."""
        return _needed(self.backend, name, "a knowledge base: registry.bind(kb)")

    def need_llm(self, name: str, llm: "LLM | None" = None) -> "LLM":
        """Return ``llm``, else the bound LLM, or raise `ConfigurationError`."""
        return _needed(self.llm if llm is None else llm, name, "an LLM: llm=..., or bind(llm=...)")

    def need_docstore(
        self, name: str, docstore: "BaseDocumentStore | None" = None
    ) -> "BaseDocumentStore":
        """Return ``docstore``, else the bound docstore, or raise `ConfigurationError`."""
        chosen = self.docstore if docstore is None else docstore
        return _needed(chosen, name, "the docstore with the parents: docstore=...")

    def need_graph(self, name: str) -> "PassageGraphs":
        """Return the graph, or raise `ConfigurationError` if none was bound."""
        advice = (
            "a knowledge base with a graph: KnowledgeBase.open(url, embed_model=..., "
            "graph='graph:./dir'), or registry.bind(kb, graph=...)"
        )
        return _needed(self.graph, name, advice)

    def model(self, name: str, config: "EmbeddingConfig | None" = None) -> BaseEmbedding:
        """Return the embedding model for queries: the model of the knowledge base.

        Raises:
            ModelMismatchError: The configuration names another model.
        """
        model = _needed(self.embed_model, name, "a knowledge base: registry.bind(kb)")
        where = "the knowledge base" if self.kb is None else self.kb.url
        return model if config is None else config.matching(model, where)

    def retriever(
        self, base: "BaseRetriever | str", params: Mapping[str, Any] | None = None
    ) -> BaseRetriever:
        """Return an inner retriever; a name is resolved, an object is returned unchanged.

        Raises:
            ConfigurationError: The name is unknown, or an object has parameters.
        """
        if isinstance(base, str):
            return self.make(base, params or {}, self)
        if params:
            raise ConfigurationError(
                f"parameters are for a base retriever by name, got {base!r} and {list(params)}"
            )
        return base

    def bound(self, retriever: R) -> R:
        """Return the retriever with the filters, the scope and the scope's requirement."""
        if not isinstance(retriever, Retriever):
            return retriever  # the gate of the composite around it checks its hits
        if self.filters is not None:
            retriever.filters = self.filters
        retriever.requires_scope = retriever.requires_scope or self.requires_scope
        retriever.requires_principals = retriever.requires_principals or self.requires_principals
        retriever.curation = self.curation or retriever.curation
        return retriever if self.scope is None else retriever.for_scope(self.scope)

    def rerank(self, model: "AnyReranker | str | None", name: str) -> "AnyReranker":
        """Return a reranker by name: ``rules``, ``llm``, ``embedding``, or a cross-encoder's name.

        Raises:
            ConfigurationError: A required part was not bound.
            MissingDependencyError: A cross-encoder needs ``sentence-transformers``; with
                ``fastembed:`` before its name the extra ``models``.
        """
        from llama_retrieval_ext.stages.rerank import llm, models, rules  # noqa: PLC0415

        if model is None or model == "rules":
            return rules.RuleRerank()
        if model == "llm":
            return llm.LLMRerank(self.need_llm(name))
        if model == "embedding":
            return models.EmbeddingRerank(self.model(name))
        if not isinstance(model, str):
            return models.as_reranker(model)
        return (
            models.ModelRerank(model) if model.startswith("fastembed:") else _cross_encoder(model)
        )

    def close(self) -> None:
        """Close resources opened for retrievers; bound objects stay open."""
        while self.closers:
            self.closers.pop()()


def _needed(part: T | None, name: str, what: str) -> T:
    if part is None:
        raise ConfigurationError(f"{name!r} needs {what}")
    return part


def _cross_encoder(model: str) -> "AnyReranker":
    if find_spec("sentence_transformers") is None:
        raise MissingDependencyError(
            f"the cross-encoder {model!r}", package="sentence-transformers"
        )
    from llama_index.core.postprocessor import SentenceTransformerRerank  # noqa: PLC0415 - slow

    return SentenceTransformerRerank(model=model, top_n=_ALL)
