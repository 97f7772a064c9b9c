"""`CapabilityFactory`: builds capabilities from parts and caches them by key."""
# ruff: noqa: ANN401, ARG002, SLF001 - options are of any type; `_cached_by_key` takes cache_key

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import wraps
from inspect import signature
from threading import RLock
from typing import Any, Final, ParamSpec, Self, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_retrieval_ext.capabilities.analysis import DataAnalyzer
from llama_retrieval_ext.capabilities.insight import InsightGenerator
from llama_retrieval_ext.capabilities.intent import IntentRecognizer
from llama_retrieval_ext.capabilities.language_model import Caller, as_llm
from llama_retrieval_ext.capabilities.memory import MemoryManager
from llama_retrieval_ext.capabilities.parts import CapabilityParts
from llama_retrieval_ext.capabilities.rag import RAGGenerator
from llama_retrieval_ext.capabilities.style import StyleGenerator
from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.entity_linking import NameFinder
from llama_retrieval_ext.graph.open import Graph
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs, as_passage_graphs
from llama_retrieval_ext.knowledge_base import KnowledgeBase
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.stages.rerank.chain import AnyReranker
from llama_retrieval_ext.stores.open import Storage, source_of


class CapabilityBundle(dict[str, Any]):
    """Capabilities by name, as a dictionary and as attributes.

    Examples:
        >>> bundle = CapabilityBundle(retriever="advanced")
        >>> bundle.retriever, list(bundle)
        ('advanced', ['retriever'])

    """

    def __getattr__(self, name: str) -> Any:
        """Return a capability by name."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the bundle has {', '.join(self)}, but no {name!r}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


P = ParamSpec("P")
T = TypeVar("T")
# Types of options that are compared by value.
_PLAIN: Final = (str, int, float, bool, tuple, list, dict, frozenset)


def _cached_by_key(create: Callable[P, T]) -> Callable[P, T]:
    """Cache the result of a method under its ``cache_key``, with the arguments of the call."""
    kind, parameters = create.__name__.removeprefix("create_"), signature(create)

    @wraps(create)
    def cached(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        options = {**bound.arguments, **bound.arguments.get("options", {})}
        factory, key = options.pop("self"), options.pop("cache_key")
        options.pop("options", None)
        if key is None:
            return create(*args, **kwargs)
        with factory._lock:
            if (kind, key) not in factory._cache:
                factory._cache[kind, key] = (options, create(*args, **kwargs))
            known, capability = factory._cache[kind, key]
        if not _same(known, options):
            raise ConfigurationError(
                f"the cache_key {key!r} has a {kind} that was made with {known}, not with "
                f"{options}; use another key, or clear_cache()"
            )
        return capability  # type: ignore[no-any-return]  # of this kind

    return cached


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
        ner: Finds names in queries, for entity search in the graph.
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
        llm: LLM | Caller | None = None,
        ner: NameFinder | None = None,
        embed_model: BaseEmbedding | None = None,
        *,
        reranker: AnyReranker | None = None,
        llm_caller: LLM | Caller | None = None,
        embedding: BaseEmbedding | None = None,
    ) -> None:
        _check_one(llm, llm_caller, "llm", "llm_caller")
        _check_one(embed_model, embedding, "embed_model", "embedding")
        model, embeds = llm or llm_caller, embed_model or embedding
        source = None if vector_store is None else source_of(vector_store)
        if embeds is None and source is not None:
            embeds = source.embed_model
        if embeds is not None:
            of_type(embeds, BaseEmbedding, "embed_model")
        self.parts = CapabilityParts(
            backend=None if source is None else source.backend,
            graphs=None if graph_store is None else as_passage_graphs(graph_store),
            document_store=document_store,
            llm=None if model is None else as_llm(model),
            ner=ner,
            embed_model=embeds,
            reranker=reranker,
        )
        self._lock = RLock()
        self._cache: dict[tuple[str, Hashable], tuple[Mapping[str, object], object]] = {}

    @classmethod
    def of(
        cls,
        kb: KnowledgeBase,
        *,
        llm: LLM | Caller | None = None,
        ner: NameFinder | None = None,
        graph_store: Graph | PassageGraphs | None = None,
        reranker: AnyReranker | None = None,
        llm_caller: LLM | Caller | None = None,
    ) -> Self:
        """Return the factory over a knowledge base, with its graph unless ``graph_store`` is set.

        The other arguments are the same as for the class.
        """
        of_type(kb, KnowledgeBase, "kb", instead="or pass vector_store= to CapabilityFactory")
        factory = cls(
            kb.retriever("vector").backend,
            kb.graph if graph_store is None else graph_store,
            llm=llm,
            ner=ner,
            embed_model=kb.embed_model,
            reranker=reranker,
            llm_caller=llm_caller,
        )
        factory.parts = replace(factory.parts, kb=kb)
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
        return self.parts.retriever(preset, options, use_graph=use_graph)

    @_cached_by_key
    def create_rag_generator(
        self, *, retriever: BaseRetriever | None = None, cache_key: Hashable = None, **options: Any
    ) -> RAGGenerator:
        """Return a `RAGGenerator`.

        The default retriever is ``auto`` with the graph, if there is one.
        """
        finds = self.parts.best_retriever() if retriever is None else retriever
        return RAGGenerator(finds, llm=self.parts.llm_for("a RAG generator"), **options)

    @_cached_by_key
    def create_style_generator(
        self,
        *,
        with_retriever: bool = True,
        retriever: BaseRetriever | None = None,
        cache_key: Hashable = None,
        **options: Any,
    ) -> StyleGenerator:
        """Return a `StyleGenerator`; its examples come from a ``basic`` retriever by default."""
        if retriever is None and with_retriever:
            retriever = self.parts.retriever("basic", {})
        llm = self.parts.llm_for("a style generator")
        return StyleGenerator(
            retriever, llm=llm, **{"embed_model": self.parts.embed_model, **options}
        )

    @_cached_by_key
    def create_data_analyzer(
        self,
        *,
        with_retriever: bool = False,
        retriever: BaseRetriever | None = None,
        cache_key: Hashable = None,
        **options: Any,
    ) -> DataAnalyzer:
        """Return a `DataAnalyzer`; with a retriever, it compares with earlier material.

        ``with_retriever`` uses the same retriever as `create_rag_generator`.
        """
        if retriever is None and with_retriever:
            retriever = self.parts.best_retriever()
        return DataAnalyzer(retriever, llm=self.parts.llm_for("a data analyzer"), **options)

    @_cached_by_key
    def create_insight_generator(
        self, *, cache_key: Hashable = None, **options: Any
    ) -> InsightGenerator:
        """Return an `InsightGenerator`."""
        return InsightGenerator(llm=self.parts.llm_for("an insight generator"), **options)

    @_cached_by_key
    def create_memory_manager(self, *, cache_key: Hashable = None, **options: Any) -> MemoryManager:
        """Return a `MemoryManager` over the knowledge base or store.

        This factory's retrievers exclude memories.
        """
        return self.parts.memory(options)

    @_cached_by_key
    def create_intent_recognizer(
        self, *, cache_key: Hashable = None, **options: Any
    ) -> IntentRecognizer:
        """Return an `IntentRecognizer`; rules, plus embedding and LLM if the factory has them."""
        steps = {"embed_model": self.parts.embed_model, "llm": self.parts.llm, **options}
        return IntentRecognizer(**steps)

    @_cached_by_key
    def create_search_capability_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return ``retriever`` (advanced, with graph) and ``memory_manager``."""
        return CapabilityBundle(
            retriever=self.parts.best_retriever(), memory_manager=self.create_memory_manager()
        )

    @_cached_by_key
    def create_conversation_capability_bundle(
        self, *, cache_key: Hashable = None
    ) -> CapabilityBundle:
        """Return ``intent_recognizer``, ``memory_manager``, ``retriever``, ``style_generator``.

        The retriever is ``semantic``; the style generator uses ``basic``.
        """
        return CapabilityBundle(
            intent_recognizer=self.create_intent_recognizer(),
            memory_manager=self.create_memory_manager(),
            retriever=self.create_retriever("semantic"),
            style_generator=self.create_style_generator(),
        )

    @_cached_by_key
    def create_work_capability_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return ``analyzer``, ``rag_generator``, ``memory_manager`` and ``style_generator``.

        The first two use ``advanced`` retrievers, the style generator ``basic``.
        """
        return CapabilityBundle(
            analyzer=self.create_data_analyzer(with_retriever=True),
            rag_generator=self.create_rag_generator(),
            memory_manager=self.create_memory_manager(),
            style_generator=self.create_style_generator(),
        )

    @_cached_by_key
    def create_knowledge_capability_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return ``retriever``, ``analyzer``, ``insight_generator`` and ``memory_manager``.

        Both the retriever and the analyzer use ``advanced``, with graph.
        """
        return CapabilityBundle(
            retriever=self.parts.best_retriever(),
            analyzer=self.create_data_analyzer(with_retriever=True),
            insight_generator=self.create_insight_generator(),
            memory_manager=self.create_memory_manager(),
        )

    def clear_cache(self) -> None:
        """Remove all cached objects."""
        with self._lock:
            self._cache.clear()


def _check_one(first: object, second: object, name: str, other: str) -> None:
    if first is not None and second is not None:
        raise ConfigurationError(f"{name} and {other} are two names of one part; give one")


def _same(known: Mapping[str, object], options: Mapping[str, object]) -> bool:
    """Return whether options are equal; compare models, retrievers etc. by identity."""
    return known.keys() == options.keys() and all(
        a is b or (isinstance(a, _PLAIN) and type(a) is type(b) and a == b)
        for a, b in ((known[name], options[name]) for name in known)
    )
