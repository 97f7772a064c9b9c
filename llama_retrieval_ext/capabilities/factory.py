"""`CapabilityFactory`: builds capabilities from parts, and keeps those with a key."""
# ruff: noqa: ANN401 - options are of any type

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from threading import RLock
from typing import Any, Final, Self, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_retrieval_ext.capabilities.analysis import DataAnalyzer
from llama_retrieval_ext.capabilities.generation.callable_llm import Caller
from llama_retrieval_ext.capabilities.generation.language_model import as_llm
from llama_retrieval_ext.capabilities.insight import InsightGenerator
from llama_retrieval_ext.capabilities.intent import IntentRecognizer
from llama_retrieval_ext.capabilities.memory import MemoryManager
from llama_retrieval_ext.capabilities.memory_storage import backend_of
from llama_retrieval_ext.capabilities.parts import CapabilityParts
from llama_retrieval_ext.capabilities.rag import RAGGenerator
from llama_retrieval_ext.capabilities.style import StyleGenerator
from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.entity_linking import NameFinder
from llama_retrieval_ext.graph.open import Graph
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs, as_passage_graphs
from llama_retrieval_ext.ingest import KnowledgeBase
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
        """Return a member."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the bundle has {', '.join(self)}, but no {name!r}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


T = TypeVar("T")


class CapabilityFactory:
    """Builds retrievers, generators and bundles of them over one set of parts.

    With a ``cache_key`` a method returns the same object for the same key, also to threads that ask
    at once; without one, a new object. ``options`` are the arguments of the class that is built. A
    method raises `ConfigurationError` if a part is missing, an option is wrong, or the key has an
    object that was built with other options. No object is bound to a scope unless the options say
    so: pass the scope with each call.

    Args:
        vector_store: A LlamaIndex vector store or index, or the URL of a store that exists.
        graph_store: A graph: its URL, or a LlamaIndex property graph store or index.
        document_store: A LlamaIndex docstore, for keyword search where the store has none.
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
        model = llm or llm_caller
        source = None if vector_store is None else source_of(vector_store)
        embeds = embed_model or embedding or (None if source is None else source.embed_model)
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
        """Return the factory over a knowledge base, with its graph unless ``graph_store`` is one.

        The other arguments are those of the class.
        """
        of_type(kb, KnowledgeBase, "kb", instead="or pass vector_store= to CapabilityFactory")
        factory = cls(
            backend_of(kb),
            kb.graph if graph_store is None else graph_store,
            llm=llm,
            ner=ner,
            embed_model=kb.embed_model,
            reranker=reranker,
            llm_caller=llm_caller,
        )
        factory.parts = replace(factory.parts, kb=kb)
        return factory

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
            preset: ``basic``, ``advanced``, ``semantic``, or ``auto``: ``advanced`` with
                ``use_graph`` and a graph, else ``basic``.
            use_graph: Whether ``advanced`` and ``auto`` search the graph.
            cache_key: See the class.
            options: ``top_k`` and those of the preset; see `PRESETS`.

        Raises:
            ConfigurationError: As the class says; the message lists the presets and the parts.
        """
        made_from = {"preset": preset, "use_graph": use_graph, **options}
        return self._kept(
            "retriever",
            cache_key,
            made_from,
            lambda: self.parts.retriever(preset, options, use_graph=use_graph),
        )

    def create_rag_generator(
        self,
        *,
        retriever: BaseRetriever | None = None,
        cache_key: Hashable = None,
        **options: Any,
    ) -> RAGGenerator:
        """Return a `RAGGenerator`.

        Its retriever is by default ``advanced``, with the graph where there is one; ``basic`` where
        there is neither a graph nor keyword search.
        """
        return self._kept(
            "rag_generator",
            cache_key,
            {"retriever": retriever, **options},
            lambda: RAGGenerator(
                self.parts.best_retriever() if retriever is None else retriever,
                llm=self.parts.llm_for("a RAG generator"),
                **options,
            ),
        )

    def create_style_generator(
        self,
        *,
        with_retriever: bool = True,
        retriever: BaseRetriever | None = None,
        cache_key: Hashable = None,
        **options: Any,
    ) -> StyleGenerator:
        """Return a `StyleGenerator`, by default with a retriever ``basic`` for its examples."""
        return self._kept(
            "style_generator",
            cache_key,
            {"with_retriever": with_retriever, "retriever": retriever, **options},
            lambda: StyleGenerator(
                _chosen(with_retriever, retriever, lambda: self.parts.retriever("basic", {})),
                llm=self.parts.llm_for("a style generator"),
                **{"embed_model": self.parts.embed_model, **options},
            ),
        )

    def create_data_analyzer(
        self,
        *,
        with_retriever: bool = False,
        retriever: BaseRetriever | None = None,
        cache_key: Hashable = None,
        **options: Any,
    ) -> DataAnalyzer:
        """Return a `DataAnalyzer`; one with a retriever compares with earlier material.

        The retriever of ``with_retriever`` is that of `create_rag_generator`.
        """
        retrieves = with_retriever or retriever is not None
        return self._kept(
            "data_analyzer",
            cache_key,
            {"with_retriever": retrieves, "retriever": retriever, **options},
            lambda: DataAnalyzer(
                _chosen(retrieves, retriever, self.parts.best_retriever),
                llm=self.parts.llm_for("a data analyzer"),
                **options,
            ),
        )

    def create_insight_generator(
        self, *, cache_key: Hashable = None, **options: Any
    ) -> InsightGenerator:
        """Return an `InsightGenerator`."""
        return self._kept(
            "insight_generator",
            cache_key,
            options,
            lambda: InsightGenerator(llm=self.parts.llm_for("an insight generator"), **options),
        )

    def create_memory_manager(self, *, cache_key: Hashable = None, **options: Any) -> MemoryManager:
        """Return a `MemoryManager` over the knowledge base or store.

        Searches by this factory's retrievers leave memories out.
        """
        return self._kept("memory_manager", cache_key, options, lambda: self.parts.memory(options))

    def create_intent_recognizer(
        self, *, cache_key: Hashable = None, **options: Any
    ) -> IntentRecognizer:
        """Return an `IntentRecognizer` by rules, and by embedding and LLM where there are any."""
        steps = {"embed_model": self.parts.embed_model, "llm": self.parts.llm, **options}
        return self._kept(
            "intent_recognizer", cache_key, options, lambda: IntentRecognizer(**steps)
        )

    def create_search_capability_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return ``retriever`` (advanced, with graph) and ``memory_manager``."""
        return self._bundle(
            "search",
            cache_key,
            retriever=self.parts.best_retriever,
            memory_manager=self.create_memory_manager,
        )

    def create_conversation_capability_bundle(
        self, *, cache_key: Hashable = None
    ) -> CapabilityBundle:
        """Return ``intent_recognizer``, ``memory_manager``, ``retriever``, ``style_generator``.

        The retriever is ``semantic``, that of the style generator ``basic``.
        """
        return self._bundle(
            "conversation",
            cache_key,
            intent_recognizer=self.create_intent_recognizer,
            memory_manager=self.create_memory_manager,
            retriever=lambda: self.create_retriever("semantic"),
            style_generator=self.create_style_generator,
        )

    def create_work_capability_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return ``analyzer``, ``rag_generator``, ``memory_manager`` and ``style_generator``.

        The retrievers of the first two are ``advanced``, that of the style generator ``basic``.
        """
        return self._bundle(
            "work",
            cache_key,
            analyzer=lambda: self.create_data_analyzer(with_retriever=True),
            rag_generator=self.create_rag_generator,
            memory_manager=self.create_memory_manager,
            style_generator=self.create_style_generator,
        )

    def create_knowledge_capability_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return ``retriever``, ``analyzer``, ``insight_generator`` and ``memory_manager``.

        The retriever and that of the analyzer are ``advanced``, with graph.
        """
        return self._bundle(
            "knowledge",
            cache_key,
            retriever=self.parts.best_retriever,
            analyzer=lambda: self.create_data_analyzer(with_retriever=True),
            insight_generator=self.create_insight_generator,
            memory_manager=self.create_memory_manager,
        )

    def clear_cache(self) -> None:
        """Forget everything that was kept under a key."""
        with self._lock:
            self._cache.clear()

    def _kept(
        self, kind: str, key: Hashable, made_from: Mapping[str, object], make: Callable[[], T]
    ) -> T:
        """What is kept under a key, made now if there is nothing."""
        if key is None:
            return make()
        with self._lock:
            if (kind, key) not in self._cache:
                self._cache[kind, key] = (dict(made_from), make())
            known, kept = self._cache[kind, key]
            if not _same(known, made_from):
                raise ConfigurationError(
                    f"the cache_key {key!r} has a {kind} that was made with {known}, not with "
                    f"{dict(made_from)}; use another key, or clear_cache()"
                )
            return kept  # type: ignore[return-value]  # of this kind

    def _bundle(self, name: str, key: Hashable, **makers: Callable[[], object]) -> CapabilityBundle:
        return self._kept(
            f"{name} bundle",
            key,
            {},
            lambda: CapabilityBundle({member: make() for member, make in makers.items()}),
        )


def _check_one(first: object, second: object, name: str, other: str) -> None:
    if first is not None and second is not None:
        raise ConfigurationError(f"{name} and {other} are two names of one part; give one")


def _chosen(
    retrieves: bool,  # noqa: FBT001 - private
    retriever: BaseRetriever | None,
    make: Callable[[], BaseRetriever],
) -> BaseRetriever | None:
    if retriever is not None:
        return retriever
    return make() if retrieves else None


def _same(known: Mapping[str, object], made_from: Mapping[str, object]) -> bool:
    """Whether options are the same; parts such as models and retrievers by identity."""
    if known.keys() != made_from.keys():
        return False
    return all(
        value is made_from[name]
        or (
            isinstance(value, _PLAIN)
            and type(value) is type(made_from[name])
            and value == made_from[name]
        )
        for name, value in known.items()
    )


_PLAIN: Final = (str, int, float, bool, tuple, list, dict, frozenset)
