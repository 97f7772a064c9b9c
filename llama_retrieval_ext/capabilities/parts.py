"""`CapabilityParts`: the parts of capabilities, and retrievers built from them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.capabilities.memory import MemoryManager
from llama_retrieval_ext.capabilities.memory_storage import documents_only
from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.config.definitions import did_you_mean
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.registry import PRESETS, default_registry
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.entity_linking import EntityLinker, NameFinder
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.stages.rerank.chain import AnyReranker
from llama_retrieval_ext.stores.engine.backend import Backend

_WITH_GRAPH: Final = ("advanced", "auto")


@dataclass(frozen=True, kw_only=True)
class CapabilityParts:
    """The parts of a factory; each may be missing."""

    backend: Backend | None = None
    graphs: PassageGraphs | None = None
    document_store: BaseDocumentStore | None = None
    llm: LLM | None = None
    ner: NameFinder | None = None
    embed_model: BaseEmbedding | None = None
    reranker: AnyReranker | None = None
    kb: KnowledgeBase | None = None

    @property
    def present(self) -> list[str]:
        """Names of the parts that are not None, as in `CapabilityFactory`."""
        present = (
            attribute.name
            for attribute in fields(self)
            if getattr(self, attribute.name) is not None
        )
        names = {"backend": "vector_store", "graphs": "graph_store"}
        return [names.get(name, name) for name in present if name != "kb"]

    @property
    def _there(self) -> str:
        return f"there is {', '.join(self.present) or 'nothing'}"

    @property
    def requires_scope(self) -> bool:
        """Whether the knowledge base requires a scope for each operation."""
        return self.kb is not None and self.kb.require_scope

    def retriever(
        self, preset: str, options: Mapping[str, Any], *, use_graph: bool = False
    ) -> RetrievalPipeline:
        """Return the retriever of a preset; see `CapabilityFactory.create_retriever`."""
        of_type(use_graph, bool, "use_graph")
        if preset not in PRESETS:
            names = ", ".join(map(repr, PRESETS))
            advice = did_you_mean(str(preset), PRESETS, otherwise="write one of them")
            raise ConfigurationError(f"there is no preset {preset!r}, only {names}; {advice}")
        self._check_preset(preset, use_graph=use_graph)
        parts = self._registry_parts
        parts = parts if use_graph else replace(parts, graph=None)
        return default_registry().make(preset, options, parts)  # type: ignore[return-value]

    def _check_preset(self, preset: str, *, use_graph: bool) -> None:
        graph = ["graph_store"] if use_graph and preset != "auto" else []
        missing = [n for n in ("vector_store", "embed_model", *graph) if n not in self.present]
        if missing:
            raise ConfigurationError(
                f"the preset {preset!r} needs {' and '.join(missing)}; {self._there}. The presets "
                f"are {', '.join(map(repr, PRESETS))}"
            )
        if use_graph and preset not in _WITH_GRAPH:
            raise ConfigurationError(
                f"the preset {preset!r} does not use the graph; use_graph=True is for "
                f"{' and '.join(map(repr, _WITH_GRAPH))}; {self._there}"
            )

    def best_retriever(self) -> RetrievalPipeline:
        """Return the preset ``auto`` with all parts."""
        return self.retriever("auto", {}, use_graph=self.graphs is not None)

    @cached_property
    def _registry_parts(self) -> RegistryParts:
        backend = self.backend
        return RegistryParts(
            backend=backend,
            embed_model=self.embed_model,
            llm=self.llm,
            graph=self.graphs,
            linker=None if self.graphs is None else EntityLinker(self.graphs.backend, ner=self.ner),
            graph_seed=None,  # the designs' graph search starts from the names in a query
            keyword=None
            if self.document_store is None
            else BM25Retriever.from_docstore(self.document_store),
            reranker=self.reranker,
            filters=None if backend is None else _document_filters(backend),
            requires_scope=self.requires_scope,
        )

    def memory(self, options: Mapping[str, Any]) -> MemoryManager:
        """Return a memory manager over the knowledge base or store."""
        if self.kb is not None:
            return MemoryManager(self.kb, **options)
        if self.backend is None or self.embed_model is None:
            missing = [n for n in ("vector_store", "embed_model") if n not in self.present]
            raise ConfigurationError(
                f"a memory manager needs {' and '.join(missing)}; {self._there}"
            )
        return MemoryManager(self.backend, embed_model=self.embed_model, **options)

    def llm_for(self, what: str) -> LLM:
        """Return the LLM, or raise ConfigurationError if there is none."""
        if self.llm is None:
            raise ConfigurationError(f"{what} needs llm=; {self._there}")
        return self.llm


def _document_filters(backend: Backend) -> MetadataFilters | None:
    """Return filters that exclude memories, if the engine can filter nodes without a key."""
    operators = backend.features.operators or ()
    return documents_only() if FilterOperator.IS_EMPTY in operators else None
