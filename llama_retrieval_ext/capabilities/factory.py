"""`CapabilityFactory`: builds capabilities from parts and caches them by key."""
# ruff: noqa: ANN401, ARG002, SLF001 - options are of any type; `_cached_by_key` takes cache_key

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from inspect import signature
from threading import RLock
from typing import Any, Final, ParamSpec, Self, TypeVar

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.capabilities.analysis import DataAnalyzer
from llama_retrieval_ext.capabilities.insight import InsightGenerator
from llama_retrieval_ext.capabilities.intent import IntentRecognizer
from llama_retrieval_ext.capabilities.memory import MemoryManager
from llama_retrieval_ext.capabilities.memory_storage import documents_only
from llama_retrieval_ext.capabilities.rag import RAGGenerator
from llama_retrieval_ext.capabilities.style import StyleGenerator
from llama_retrieval_ext.checks import checked_call, declared_arguments, nearest, of_type
from llama_retrieval_ext.config.definitions import did_you_mean
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.registry import PRESETS, default_registry
from llama_retrieval_ext.errors import ArgumentError, ConfigurationError
from llama_retrieval_ext.graph.entity_linking import EntityLinker, NameFinder, check_ner
from llama_retrieval_ext.graph.open import Graph
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs, as_passage_graphs
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.llm.functions import AnyLLM, as_llm
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.stages.rerank.models import AnyReranker
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.open import Storage, source_of


@dataclass(frozen=True, kw_only=True)
class CapabilityBundle:
    """Capabilities that belong together; those that a bundle does not have are None."""

    retriever: RetrievalPipeline | None = None
    rag_generator: RAGGenerator | None = None
    style_generator: StyleGenerator | None = None
    analyzer: DataAnalyzer | None = None
    insight_generator: InsightGenerator | None = None
    memory_manager: MemoryManager | None = None
    intent_recognizer: IntentRecognizer | None = None

    def __getitem__(self, name: str) -> Any:
        """Return a capability by its name; raise KeyError if the bundle does not have it."""
        if name not in self:
            names = ", ".join(
                attribute.name for attribute in fields(self) if attribute.name in self
            )
            raise KeyError(f"the bundle has no {name!r}; it has {names}")
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        """Return whether the bundle has a capability."""
        names = {field.name for field in fields(self)}
        return isinstance(name, str) and name in names and getattr(self, name) is not None


P = ParamSpec("P")
T = TypeVar("T")
_ADVANCED: Final = "advanced"
_WITH_GRAPH: Final = (_ADVANCED, "auto")


def _cached_by_key(create: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments of a method, and cache its result under its ``cache_key`` with them."""
    kind, parameters = create.__name__.removeprefix("create_"), signature(create)

    @checked_call
    @wraps(create)
    def cached(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        further = bound.arguments.pop("options", {})
        for option in further:
            if near := nearest(option, parameters.parameters):
                method = f"create_{kind}()"
                raise ArgumentError(f"{method} has no argument {option!r}; write {near}=...")
        options = {**bound.arguments, **further}
        factory, key = options.pop("self"), options.pop("cache_key")
        if key is None:
            return create(*args, **kwargs)
        with factory._lock:
            if (kind, key) not in factory._cache:
                factory._cache[kind, key] = (options, create(*args, **kwargs))
            before, capability = factory._cache[kind, key]
        if before != options:  # whose values may contain secrets
            names = (
                name for name in {**before, **options} if before.get(name) != options.get(name)
            )
            raise ConfigurationError(
                f"the cache_key {key!r} has a {kind} that was made with other values of "
                f"{', '.join(names)}; use another key, or clear_cache()"
            )
        return capability  # type: ignore[no-any-return]  # of this kind

    return cached


@declared_arguments
class CapabilityFactory:
    """Builds retrievers, generators and bundles of them over one set of parts.

    With a ``cache_key`` a method returns the same object for the same key, also to concurrent
    threads; without one, a new object. ``options`` are the arguments of the class that is built. A
    method raises `ConfigurationError` if a part is missing, an option is wrong, or the key has an
    object that was built with other options. Objects have no scope unless the options set one:
    pass the scope with each call.

    Args:
        vector_store: A LlamaIndex vector store or index, or the URL of a store that exists.
        graph_store: A graph: its URL, or a LlamaIndex property graph store or index.
        document_store: A LlamaIndex docstore, for keyword search if the store has none.
        llm: Any LlamaIndex LLM, or a function from prompt to text, sync or async.
        ner: Finds names in queries, for entity search in the graph; blocking or async.
        embed_model: The embedding model of the vector store.
        reranker: Reranks in the presets; None for `RuleRerank`.
        llm_caller: Another name of ``llm``.
        embedding: Another name of ``embed_model``.

    Raises:
        ConfigurationError: A part has two names, or is of another type.

    Examples:
        >>> from llama_index.core import Document, MockEmbedding
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     _ = kb.add([Document(text="Annual leave: 25 days.", id_="leave")])
        ...     factory = CapabilityFactory.of(kb, llm=lambda prompt: "25 days [1].")
        ...     str(factory.create_rag_generator(cache_key="hr").generate("How much leave?"))
        '25 days [1].'

    """

    def __init__(  # noqa: PLR0913 - the parts that there are
        self,
        vector_store: Storage | None = None,
        graph_store: Graph | PassageGraphs | None = None,
        document_store: BaseDocumentStore | None = None,
        llm: AnyLLM | None = None,
        ner: NameFinder | None = None,
        embed_model: BaseEmbedding | None = None,
        *,
        reranker: AnyReranker | None = None,
        llm_caller: AnyLLM | None = None,
        embedding: BaseEmbedding | None = None,
    ) -> None:
        _check_one(llm, llm_caller, "llm", "llm_caller")
        _check_one(embed_model, embedding, "embed_model", "embedding")
        model, embeds = llm or llm_caller, embed_model or embedding
        source = None if vector_store is None else source_of(vector_store)
        if embeds is None and source is not None:
            embeds = source.embed_model
        backend = None if source is None else source.backend
        self.kb: KnowledgeBase | None = None
        self.ner = None if ner is None else check_ner(ner)
        self.parts = RegistryParts(
            backend=backend,
            graph=None if graph_store is None else as_passage_graphs(graph_store),
            docstore=document_store,
            llm=None if model is None else as_llm(model),
            embed_model=embeds,
            reranker=reranker,
            graph_seed=None,  # the designs' graph search starts from the names in a query
            filters=None if backend is None else _document_filters(backend),
        )
        self._lock = RLock()
        self._cache: dict[tuple[str, Hashable], tuple[Mapping[str, object], object]] = {}

    @classmethod
    @checked_call
    def of(
        cls,
        kb: KnowledgeBase,
        *,
        llm: AnyLLM | None = None,
        ner: NameFinder | None = None,
        graph_store: Graph | PassageGraphs | None = None,
        reranker: AnyReranker | None = None,
    ) -> Self:
        """Return the factory over a knowledge base, with its graph unless ``graph_store`` is set.

        The other arguments are the same as for the class.
        """
        of_type(kb, KnowledgeBase, "kb", instead="or pass vector_store= to CapabilityFactory")
        factory = cls(llm=llm, ner=ner, reranker=reranker)
        of_kb, given = kb.parts, factory.parts
        factory.kb = kb
        factory.parts = replace(
            of_kb,
            graph=of_kb.graph if graph_store is None else as_passage_graphs(graph_store),
            llm=given.llm,
            reranker=given.reranker,
            graph_seed=given.graph_seed,
            filters=_document_filters(of_kb.need_backend("capabilities")),
        )
        return factory

    @_cached_by_key
    def create_retriever(
        self,
        preset: str = "basic",
        *,
        use_graph: bool = False,
        cache_key: Hashable = None,
        **options: Any,
    ) -> RetrievalPipeline:
        """Return the retriever of a preset.

        Args:
            preset: ``basic``, ``advanced``, ``semantic``, or ``auto``: ``advanced`` if there is a
                graph, with ``use_graph``, or keyword search, else ``basic``.
            use_graph: Whether ``advanced`` and ``auto`` search the graph.
            cache_key: See the class.
            options: ``top_k`` and those of the preset; see ``config/README.md``.

        Raises:
            ConfigurationError: See the class; the message lists the presets and the parts.
        """
        return self._retriever(preset, options, use_graph=use_graph)

    @_cached_by_key
    def create_rag_generator(
        self, *, retriever_preset: str = _ADVANCED, cache_key: Hashable = None, **options: Any
    ) -> RAGGenerator:
        """Return a `RAGGenerator` over the retriever of a preset.

        ``advanced`` has the graph and keyword search if there are any.
        """
        llm = self._llm_for("a RAG generator")
        return RAGGenerator(self._preset(retriever_preset), llm=llm, **options)

    @_cached_by_key
    def create_style_generator(
        self,
        *,
        with_retriever: bool = True,
        retriever_preset: str = "basic",
        cache_key: Hashable = None,
        **options: Any,
    ) -> StyleGenerator:
        """Return a `StyleGenerator`; its examples come from a retriever by default."""
        llm = self._llm_for("a style generator")
        retriever = self._preset(retriever_preset) if with_retriever else None
        return StyleGenerator(
            retriever, llm=llm, **{"embed_model": self.parts.embed_model, **options}
        )

    @_cached_by_key
    def create_data_analyzer(
        self,
        *,
        with_retriever: bool = False,
        retriever_preset: str = _ADVANCED,
        cache_key: Hashable = None,
        **options: Any,
    ) -> DataAnalyzer:
        """Return a `DataAnalyzer`; with a retriever, it compares with earlier material."""
        llm = self._llm_for("a data analyzer")
        retriever = self._preset(retriever_preset) if with_retriever else None
        return DataAnalyzer(retriever, llm=llm, **options)

    @_cached_by_key
    def create_insight_generator(
        self, *, cache_key: Hashable = None, **options: Any
    ) -> InsightGenerator:
        """Return an `InsightGenerator`."""
        return InsightGenerator(llm=self._llm_for("an insight generator"), **options)

    @_cached_by_key
    def create_memory_manager(self, *, cache_key: Hashable = None, **options: Any) -> MemoryManager:
        """Return a `MemoryManager` over the knowledge base or store.

        This factory's retrievers exclude memories.
        """
        if self.kb is not None:
            return MemoryManager(self.kb, **options)
        self._need("a memory manager", "vector_store", "embed_model")
        backend = self.parts.need_backend("a memory manager")
        return MemoryManager(backend, embed_model=self.parts.embed_model, **options)

    @_cached_by_key
    def create_intent_recognizer(
        self, *, cache_key: Hashable = None, **options: Any
    ) -> IntentRecognizer:
        """Return an `IntentRecognizer`; rules, plus embedding and LLM if the factory has them."""
        steps = {"embed_model": self.parts.embed_model, "llm": self.parts.llm, **options}
        return IntentRecognizer(**steps)

    @_cached_by_key
    def create_search_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return an ``advanced`` retriever and a memory manager."""
        return CapabilityBundle(
            retriever=self.best_retriever(), memory_manager=self.create_memory_manager()
        )

    @_cached_by_key
    def create_conversation_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return a ``semantic`` retriever, intents, a memory manager and a style generator."""
        return CapabilityBundle(
            intent_recognizer=self.create_intent_recognizer(),
            memory_manager=self.create_memory_manager(),
            retriever=self.create_retriever("semantic"),
            style_generator=self.create_style_generator(),
        )

    @_cached_by_key
    def create_work_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return the same with an analyzer, a RAG generator and a style generator."""
        return CapabilityBundle(
            retriever=self.best_retriever(),
            analyzer=self.create_data_analyzer(with_retriever=True),
            rag_generator=self.create_rag_generator(),
            memory_manager=self.create_memory_manager(),
            style_generator=self.create_style_generator(),
        )

    @_cached_by_key
    def create_knowledge_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return an ``advanced`` retriever, an analyzer, insights and a memory manager."""
        return CapabilityBundle(
            retriever=self.best_retriever(),
            analyzer=self.create_data_analyzer(with_retriever=True),
            insight_generator=self.create_insight_generator(),
            memory_manager=self.create_memory_manager(),
        )

    # The designs' names.
    create_search_capability_bundle = create_search_bundle
    create_conversation_capability_bundle = create_conversation_bundle
    create_work_capability_bundle = create_work_bundle
    create_knowledge_capability_bundle = create_knowledge_bundle

    def best_retriever(self) -> RetrievalPipeline:
        """Return the retriever of ``advanced``, or of ``basic``, with all parts that there are."""
        return self._retriever("auto", {}, use_graph=self.parts.graph is not None)

    def _preset(self, name: str) -> RetrievalPipeline:
        return self.best_retriever() if name == _ADVANCED else self._retriever(name, {})

    def _retriever(
        self, preset: str, options: Mapping[str, Any], *, use_graph: bool = False
    ) -> RetrievalPipeline:
        of_type(use_graph, bool, "use_graph")
        if preset not in PRESETS:
            names = ", ".join(map(repr, PRESETS))
            advice = did_you_mean(str(preset), PRESETS, otherwise="write one of them")
            raise ConfigurationError(f"there is no preset {preset!r}, only {names}; {advice}")
        graph = ["graph_store"] if use_graph and preset != "auto" else []
        self._need(f"the preset {preset!r}", "vector_store", "embed_model", *graph)
        if use_graph and preset not in _WITH_GRAPH:
            raise ConfigurationError(
                f"the preset {preset!r} does not use the graph; use_graph=True is for "
                f"{' and '.join(map(repr, _WITH_GRAPH))}; {self._there}"
            )
        parts = self._searched if use_graph else replace(self._searched, graph=None)
        return default_registry().make(preset, options, parts)  # type: ignore[return-value]

    @cached_property
    def _searched(self) -> RegistryParts:
        """The parts of retrievers, with those that take time to make."""
        graph, docstore = self.parts.graph, self.parts.docstore
        return replace(
            self.parts,
            linker=None if graph is None else EntityLinker(graph.backend, ner=self.ner),
            keyword=None if docstore is None else BM25Retriever.from_docstore(docstore),
        )

    def _llm_for(self, what: str) -> LLM:
        if self.parts.llm is None:
            raise ConfigurationError(f"{what} needs llm=; {self._there}")
        return self.parts.llm

    def _need(self, what: str, *names: str) -> None:
        missing = [name for name in names if self._named[name] is None]
        if missing:
            raise ConfigurationError(f"{what} needs {' and '.join(missing)}; {self._there}")

    @property
    def _named(self) -> dict[str, object | None]:
        """The parts by the names of the arguments."""
        return {
            "vector_store": self.parts.backend,
            "graph_store": self.parts.graph,
            "document_store": self.parts.docstore,
            "llm": self.parts.llm,
            "ner": self.ner,
            "embed_model": self.parts.embed_model,
            "reranker": self.parts.reranker,
        }

    @property
    def _there(self) -> str:
        present = [name for name, part in self._named.items() if part is not None]
        return f"there is {', '.join(present) or 'nothing'}"

    def clear_cache(self) -> None:
        """Remove all cached objects."""
        with self._lock:
            self._cache.clear()


def _check_one(first: object, second: object, name: str, other: str) -> None:
    if first is not None and second is not None:
        raise ConfigurationError(f"{name} and {other} are two names of one part; give one")


def _document_filters(backend: Backend) -> MetadataFilters | None:
    """Return filters that exclude memories, if the engine can filter nodes without a key."""
    operators = backend.features.operators or ()
    return documents_only() if FilterOperator.IS_EMPTY in operators else None
