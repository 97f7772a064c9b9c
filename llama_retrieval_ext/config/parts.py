"""`RegistryParts`: the objects bound to a registry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_retrieval_ext.config.embedding import EmbeddingConfig
from llama_retrieval_ext.errors import ConfigurationError, MissingDependencyError
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.retrievers.kg_rule import Rules
from llama_retrieval_ext.retrievers.presets import PresetParts
from llama_retrieval_ext.stages.rerank.chain import AnyReranker, as_reranker
from llama_retrieval_ext.stages.rerank.llm import LLMRerank
from llama_retrieval_ext.stages.rerank.models import EmbeddingRerank
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.stores.engine.backend import Backend

T = TypeVar("T")
# More hits than any retriever returns; the next stage cuts them.
_ALL: Final = 10_000
# Creates a retriever by its name in the registry.
Make = Callable[[str, Mapping[str, Any]], BaseRetriever]


@dataclass(frozen=True, kw_only=True)
class RegistryParts:
    """Objects bound to a registry; the first argument of each definition.

    Attributes:
        make: Creates a retriever by name and parameters, for retrievers that contain others.
        kb: The knowledge base.
        llm: The LLM; for ``hyde``, ``multi_query`` and routing by an LLM.
        graph: The graph, with its links between passages.
        rules: Rules of ``kg_rule``, or the path of their file.
        docstore: LlamaIndex docstore with the parents of nodes, for ``auto_merging``.
        objects: Additional application objects, by name.
        closers: Functions that close resources opened for retrievers.
    """

    make: Make
    kb: KnowledgeBase | None = None
    llm: LLM | None = None
    graph: PassageGraphs | None = None
    rules: Rules | None = None
    docstore: BaseDocumentStore | None = None
    objects: Mapping[str, object] = field(default_factory=dict)
    closers: list[Callable[[], object]] = field(default_factory=list)

    @property
    def live(self) -> dict[str, object]:
        """Objects available as references: ``store``, ``embed_model``, ``llm`` and so on."""
        named: dict[str, object | None] = {
            "kb": self.kb,
            "store": None if self.kb is None else self.backend("store"),
            "embed_model": None if self.kb is None else self.kb.embed_model,
            "llm": self.llm,
            "graph": self.graph,
            "graph_backend": None if self.graph is None else self.graph.backend,
            "rules": self.rules,
            "docstore": self.docstore,
            **self.objects,
        }
        return {name: each for name, each in named.items() if each is not None}

    def need_kb(self, name: str) -> KnowledgeBase:
        """Return the knowledge base, or raise `ConfigurationError` if none was bound."""
        return _needed(self.kb, f"{name!r} needs a knowledge base: registry.bind(kb)")

    def backend(self, name: str) -> Backend:
        """Return the backend of the knowledge base's store."""
        return self.need_kb(name).retriever("vector").backend

    def need_llm(self, name: str) -> LLM:
        """Return the LLM, or raise `ConfigurationError` if none was bound."""
        return _needed(self.llm, f"{name!r} needs an LLM: registry.bind(kb, llm=...)")

    def need_docstore(self, name: str) -> BaseDocumentStore:
        """Return the docstore, or raise `ConfigurationError` if none was bound."""
        message = f"{name!r} needs the docstore with the parents: registry.bind(kb, docstore=...)"
        return _needed(self.docstore, message)

    def need_graph(self, name: str) -> PassageGraphs:
        """Return the graph, or raise `ConfigurationError` if none was bound."""
        return _needed(self.graph, f"{name!r} needs a graph: registry.bind(kb, graph=...)")

    def embed_model(self, config: EmbeddingConfig | None, name: str) -> BaseEmbedding:
        """Return the embedding model for queries: the model of the knowledge base.

        Raises:
            ModelMismatchError: The configuration names another model.
        """
        kb = self.need_kb(name)
        return kb.embed_model if config is None else config.matching(kb.embed_model, kb.url)

    def retriever(
        self, base: "BaseRetriever | str", params: Mapping[str, Any] | None = None
    ) -> BaseRetriever:
        """Return an inner retriever; a name is resolved, an object is returned unchanged.

        Raises:
            ConfigurationError: The name is unknown, or an object has parameters.
        """
        if isinstance(base, str):
            return self.make(base, params or {})
        if params:
            raise ConfigurationError(
                f"parameters are for a base retriever by name, got {base!r} and {list(params)}"
            )
        return base

    def reranker(self, model: "AnyReranker | str | None", name: str) -> AnyReranker:
        """Return a reranker by name: ``rules``, ``llm``, ``embedding``, or a cross-encoder's name.

        Raises:
            ConfigurationError: A required part was not bound.
            MissingDependencyError: A cross-encoder needs ``sentence-transformers``.
        """
        if model is None or model == "rules":
            return RuleRerank()
        if model == "llm":
            return LLMRerank(self.need_llm(name))
        if model == "embedding":
            return EmbeddingRerank(self.need_kb(name).embed_model)
        return _cross_encoder(model) if isinstance(model, str) else as_reranker(model)

    def preset_parts(self) -> PresetParts:
        """Return the parts of presets."""
        kb = self.need_kb("a preset")
        has_keywords = self.backend("a preset").features.keyword is not None
        return PresetParts(
            vector=kb.retriever("vector"),
            keyword=kb.retriever("keyword") if has_keywords else None,
            graph=None if self.graph is None else self.make("graph", {"seed": "dense"}),
            embed_model=kb.embed_model,
            llm=self.llm,
        )

    def close(self) -> None:
        """Close resources opened for retrievers; bound objects stay open."""
        while self.closers:
            self.closers.pop()()


def _needed(part: T | None, message: str) -> T:
    if part is None:
        raise ConfigurationError(message)
    return part


def _cross_encoder(model: str) -> AnyReranker:
    if find_spec("sentence_transformers") is None:
        raise MissingDependencyError(
            f"the cross-encoder {model!r}", package="sentence-transformers"
        )
    from llama_index.core.postprocessor import SentenceTransformerRerank  # noqa: PLC0415 - slow

    return SentenceTransformerRerank(model=model, top_n=_ALL)
