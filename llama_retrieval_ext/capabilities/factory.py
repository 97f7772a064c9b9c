"""`CapabilityFactory`: builds capabilities from parts, each only once where that is asked for."""

from collections.abc import Callable, Hashable, Mapping
from threading import RLock
from typing import Any, Final, Self, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.capabilities.analysis import DataAnalyzer
from llama_retrieval_ext.capabilities.bundle import CapabilityBundle
from llama_retrieval_ext.capabilities.callable_llm import Caller
from llama_retrieval_ext.capabilities.insight import InsightGenerator
from llama_retrieval_ext.capabilities.intent import IntentRecognizer
from llama_retrieval_ext.capabilities.language_model import as_llm
from llama_retrieval_ext.capabilities.memory import MemoryManager
from llama_retrieval_ext.capabilities.memory_storage import backend_of, documents_only
from llama_retrieval_ext.capabilities.rag import RAGGenerator
from llama_retrieval_ext.capabilities.style import StyleGenerator
from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.entity_linking import EntityLinker, NameFinder
from llama_retrieval_ext.graph.open import Graph
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
from llama_retrieval_ext.ingest import KnowledgeBase
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.retrievers.keyword import KeywordRetriever
from llama_retrieval_ext.retrievers.presets import PRESETS, PresetParts, build_preset
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.vector import VectorRetriever
from llama_retrieval_ext.stages.rerank.chain import AnyReranker
from llama_retrieval_ext.stores.engine.backend import Backend
from llama_retrieval_ext.stores.open import Storage, source_of

T = TypeVar("T")
_ADVANCED: Final = "advanced"
_BASIC: Final = "basic"
_SEMANTIC: Final = "semantic"
_WITH_GRAPH: Final = (_ADVANCED, "auto")


class CapabilityFactory:
    """Builds retrievers, generators and bundles of them over one set of parts.

    With a ``cache_key`` a method returns the same object for the same key, also to threads that ask
    at once; without one, a new object. Nothing that it builds is bound to a scope unless the
    options say so: pass the scope with each call.

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
        self.llm = None if model is None else as_llm(model)
        self.embed_model = embed_model or embedding
        self.backend: Backend | None = None
        if vector_store is not None:
            source = source_of(vector_store)
            self.backend = source.backend
            self.embed_model = self.embed_model or source.embed_model
        if self.embed_model is not None:
            of_type(self.embed_model, BaseEmbedding, "embed_model")
        self.graphs = _graphs(graph_store)
        self.document_store = document_store
        self.ner = ner
        self.reranker = reranker
        self.kb: KnowledgeBase | None = None
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
        """Return the factory over a knowledge base, with its graph where it has one.

        Args:
            kb: The knowledge base.
            llm: As for the class.
            ner: As for the class.
            graph_store: A graph in place of its own.
            reranker: As for the class.
            llm_caller: As for the class.
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
        factory.kb = kb
        return factory

    @property
    def present(self) -> list[str]:
        """The names of the parts that there are."""
        parts = {
            "vector_store": self.backend,
            "graph_store": self.graphs,
            "document_store": self.document_store,
            "llm": self.llm,
            "ner": self.ner,
            "embed_model": self.embed_model,
            "reranker": self.reranker,
        }
        return [name for name, part in parts.items() if part is not None]

    def create_retriever(
        self,
        preset: str = _BASIC,
        *,
        use_graph: bool = False,
        cache_key: Hashable = None,
        **options: Any,  # noqa: ANN401 - those of the preset
    ) -> RetrievalPipeline:
        """Return the retriever of a preset.

        Args:
            preset: ``basic``, ``advanced``, ``semantic``, or ``auto``, which is ``advanced`` if
                asked for a graph and there is one, else ``basic``.
            use_graph: Whether ``advanced`` and ``auto`` search the graph.
            cache_key: What it is kept under; None for a new one.
            options: ``top_k`` and those of the preset; see `PRESETS`.

        Raises:
            ConfigurationError: There is no such preset or option; a part is missing; the preset
                uses no graph; or the key is taken by other options. The message lists what there
                is.
        """
        made_from = {"preset": preset, "use_graph": use_graph, **options}
        return self._kept(
            "retriever",
            cache_key,
            made_from,
            lambda: self._preset(preset, options, use_graph=use_graph),
        )

    def create_rag_generator(
        self,
        *,
        retriever: BaseRetriever | None = None,
        cache_key: Hashable = None,
        **options: Any,  # noqa: ANN401 - those of the class
    ) -> RAGGenerator:
        """Return a `RAGGenerator`.

        Args:
            retriever: None for ``advanced``, with the graph where there is one; ``basic`` where
                there is neither a graph nor keyword search.
            cache_key: What it is kept under; None for a new one.
            options: Of `RAGGenerator`.

        Raises:
            ConfigurationError: A part is missing, or the key is taken by other options.
        """
        return self._kept(
            "rag_generator",
            cache_key,
            {"retriever": retriever, **options},
            lambda: RAGGenerator(
                self._best() if retriever is None else retriever,
                llm=self._llm("a RAG generator"),
                **options,
            ),
        )

    def create_style_generator(
        self,
        *,
        with_retriever: bool = True,
        retriever: BaseRetriever | None = None,
        cache_key: Hashable = None,
        **options: Any,  # noqa: ANN401 - those of the class
    ) -> StyleGenerator:
        """Return a `StyleGenerator`, by default with a retriever ``basic`` for its examples.

        Args:
            with_retriever: Whether it retrieves examples.
            retriever: What finds them; None for ``basic``.
            cache_key: What it is kept under; None for a new one.
            options: Of `StyleGenerator`.

        Raises:
            ConfigurationError: A part is missing, or the key is taken by other options.
        """
        return self._kept(
            "style_generator",
            cache_key,
            {"with_retriever": with_retriever, "retriever": retriever, **options},
            lambda: StyleGenerator(
                _chosen(with_retriever, retriever, lambda: self._preset(_BASIC, {})),
                llm=self._llm("a style generator"),
                **{"embed_model": self.embed_model, **options},
            ),
        )

    def create_data_analyzer(
        self,
        *,
        with_retriever: bool = False,
        retriever: BaseRetriever | None = None,
        cache_key: Hashable = None,
        **options: Any,  # noqa: ANN401 - those of the class
    ) -> DataAnalyzer:
        """Return a `DataAnalyzer`, which compares with earlier material only if asked to.

        Args:
            with_retriever: Whether it retrieves comparable history.
            retriever: What finds it; None for ``advanced``, as for `create_rag_generator`.
            cache_key: What it is kept under; None for a new one.
            options: Of `DataAnalyzer`.

        Raises:
            ConfigurationError: A part is missing, or the key is taken by other options.
        """
        wanted = with_retriever or retriever is not None
        return self._kept(
            "data_analyzer",
            cache_key,
            {"with_retriever": wanted, "retriever": retriever, **options},
            lambda: DataAnalyzer(
                _chosen(wanted, retriever, self._best), llm=self._llm("a data analyzer"), **options
            ),
        )

    def create_insight_generator(
        self,
        *,
        cache_key: Hashable = None,
        **options: Any,  # noqa: ANN401 - those of the class
    ) -> InsightGenerator:
        """Return an `InsightGenerator`; ``options`` are its own.

        Raises:
            ConfigurationError: There is no LLM, or the key is taken by other options.
        """
        return self._kept(
            "insight_generator",
            cache_key,
            options,
            lambda: InsightGenerator(llm=self._llm("an insight generator"), **options),
        )

    def create_memory_manager(
        self,
        *,
        cache_key: Hashable = None,
        **options: Any,  # noqa: ANN401 - those of the class
    ) -> MemoryManager:
        """Return a `MemoryManager` over the knowledge base or store; ``options`` are its own.

        Searches by this factory's retrievers leave memories out.

        Raises:
            ConfigurationError: A part is missing, or the key is taken by other options.
        """
        return self._kept("memory_manager", cache_key, options, lambda: self._memory(options))

    def create_intent_recognizer(
        self,
        *,
        cache_key: Hashable = None,
        **options: Any,  # noqa: ANN401 - those of the class
    ) -> IntentRecognizer:
        """Return an `IntentRecognizer` by rules, and by embedding and LLM where there are any.

        Raises:
            ConfigurationError: The key is taken by other options.
        """
        steps = {"embed_model": self.embed_model, "llm": self.llm, **options}
        return self._kept(
            "intent_recognizer", cache_key, options, lambda: IntentRecognizer(**steps)
        )

    def create_search_capability_bundle(self, *, cache_key: Hashable = None) -> CapabilityBundle:
        """Return ``retriever`` (advanced, with graph) and ``memory_manager``."""
        return self._bundle(
            "search", cache_key, retriever=self._best, memory_manager=self.create_memory_manager
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
            retriever=lambda: self.create_retriever(_SEMANTIC),
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
            retriever=self._best,
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

    def _preset(
        self,
        preset: str,
        options: Mapping[str, Any],
        *,
        use_graph: bool = False,
    ) -> RetrievalPipeline:
        of_type(use_graph, bool, "use_graph")
        if preset in PRESETS:
            self._check_parts(preset, use_graph=use_graph)
        return build_preset(preset, self._parts(graph=use_graph), **options)

    def _check_parts(self, preset: str, *, use_graph: bool) -> None:
        there = f"there is {', '.join(self.present) or 'nothing'}"
        missing = [name for name in ("vector_store", "embed_model") if name not in self.present]
        if use_graph and preset == _ADVANCED and self.graphs is None:
            missing.append("graph_store")
        if use_graph and preset not in _WITH_GRAPH:
            missing += [] if self.graphs else ["graph_store"]
            if not missing:
                raise ConfigurationError(
                    f"the preset {preset!r} does not use the graph; use_graph=True is for "
                    f"{' and '.join(map(repr, _WITH_GRAPH))}; {there}"
                )
        if missing:
            raise ConfigurationError(
                f"the preset {preset!r} needs {' and '.join(missing)}; {there}. The presets are "
                f"{', '.join(map(repr, PRESETS))}"
            )

    def _best(self) -> RetrievalPipeline:
        """The preset ``advanced`` with all that there is; ``basic`` where that is only vectors."""
        parts = self._parts(graph=True)
        is_rich = self.backend is None or parts.graph is not None or parts.keyword is not None
        return self._preset(_ADVANCED if is_rich else _BASIC, {}, use_graph=self.graphs is not None)

    def _parts(self, *, graph: bool) -> PresetParts:
        backend = self.backend
        if backend is None or self.embed_model is None:
            return PresetParts(llm=self.llm, reranker=self.reranker)
        filters = self._document_filters(backend)
        return PresetParts(
            vector=VectorRetriever(backend, embed_model=self.embed_model, filters=filters),
            keyword=self._keyword(backend, filters),
            graph=self._graph(backend, filters) if graph else None,
            embed_model=self.embed_model,
            llm=self.llm,
            reranker=self.reranker,
        )

    def _document_filters(self, backend: Backend) -> MetadataFilters | None:
        """Leaves memories out, where the engine can say which nodes lack a key."""
        operators = backend.features.operators
        can_tell = operators is not None and FilterOperator.IS_EMPTY in operators
        return documents_only() if can_tell else None

    def _keyword(self, backend: Backend, filters: MetadataFilters | None) -> BaseRetriever | None:
        if backend.features.keyword is not None:
            return KeywordRetriever(backend, filters=filters)
        if self.document_store is None:
            return None
        return BM25Retriever.from_docstore(self.document_store)

    def _graph(self, backend: Backend, filters: MetadataFilters | None) -> BaseRetriever | None:
        if self.graphs is None:
            return None
        linker = None if self.ner is None else EntityLinker(self.graphs.backend, ner=self.ner)
        retriever = GraphRetriever(
            backend,
            graph=self.graphs,
            embed_model=self.embed_model,
            linker=linker,
            filters=filters,
        )
        retriever.requires_scope = self.kb is not None and self.kb.require_scope
        return retriever

    def _memory(self, options: Mapping[str, Any]) -> MemoryManager:
        with_llm = {"llm": self.llm, **options}
        if self.kb is not None:
            return MemoryManager(self.kb, **with_llm)
        if self.backend is None or self.embed_model is None:
            missing = [n for n in ("vector_store", "embed_model") if n not in self.present]
            raise ConfigurationError(
                f"a memory manager needs {' and '.join(missing)}; there is "
                f"{', '.join(self.present) or 'nothing'}"
            )
        return MemoryManager(self.backend, embed_model=self.embed_model, **with_llm)

    def _llm(self, what: str) -> LLM:
        if self.llm is None:
            raise ConfigurationError(
                f"{what} needs llm=; there is {', '.join(self.present) or 'nothing'}"
            )
        return self.llm


def _check_one(first: object, second: object, name: str, other: str) -> None:
    if first is not None and second is not None:
        raise ConfigurationError(f"{name} and {other} are two names of one part; give one")


def _graphs(graph: Graph | PassageGraphs | None) -> PassageGraphs | None:
    if graph is None or isinstance(graph, PassageGraphs):
        return graph
    return PassageGraphs(graph)


def _chosen(
    wanted: bool,  # noqa: FBT001 - private
    retriever: BaseRetriever | None,
    make: Callable[[], BaseRetriever],
) -> BaseRetriever | None:
    if retriever is not None:
        return retriever
    return make() if wanted else None


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
