"""Retrievers and operators by name, over objects that an application binds once.

The functions of this module use one registry per process; create `Registry` objects for several.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from threading import Lock
from typing import Any, Final, Literal, TypeVar

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.checks import checked_call, of_type
from llama_retrieval_ext.config import composite_retrievers, store_retrievers
from llama_retrieval_ext.config.definitions import Definition, class_definitions, definition_of
from llama_retrieval_ext.config.models import TYPE, Definitions, problems, unknown_name
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.spec import Builder, BuildError
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.open import Graph
from llama_retrieval_ext.graph.passage_graphs import PassageGraphs, as_passage_graphs
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.pipeline.pipeline import Pipeline
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query, Scope, check_top_k
from llama_retrieval_ext.retrievers.kg_rule import Rules

# Extra fields of the first record, by registry name; the value is used if an LLM failed.
_DETAILS: Final[Mapping[str, Mapping[str, object]]] = {
    "hyde": {"hyde_queries": [], "hyde_queries_count": 0},
    "multi_query": {"generated_queries": [], "queries_count": 1, "retrieval_details": []},
}


class Records(list[dict[str, Any]]):
    """Records of hits, best first.

    Attributes:
        details: Extra fields of the answer, such as ``hyde_queries``, also if nothing was found.
    """

    def __init__(self, records: Iterable[dict[str, Any]], details: Mapping[str, object]) -> None:
        super().__init__(records)
        self.details = dict(details)


@dataclass(frozen=True, slots=True)
class Operator:
    """Retriever that returns records, for any tenant and knowledge bases.

    It is stateless: threads, tenants and event loops may share it.

    Attributes:
        name: The retriever's name in the registry.
        retriever: The LlamaIndex retriever.
    """

    name: str
    retriever: BaseRetriever

    @checked_call
    async def retrieve(
        self,
        query: str,
        *,
        tenant_id: str | None = None,
        kb_ids: Sequence[str] | None = None,
        top_k: int = 10,
        filters: MetadataFilters | None = None,
        timeout_s: float | None = None,
    ) -> Records:
        """Return the best hits as records.

        Args:
            query: The query.
            tenant_id: The tenant; trusted, never from a user or a model.
            kb_ids: The tenant's visible knowledge bases; None for all.
            top_k: Number of records to return, at least 1.
            filters: Conditions on metadata for every hit; they can only narrow the scope.
            timeout_s: Time limit for the whole answer in seconds; None for no limit.

        Returns:
            Records of `Hit.to_dict`: ``chunk_id``, ``text``, ``score``, ``metadata``,
            ``knowledge_base_id``, ``document_id``, ``source``, best first. The first has extra
            fields: ``hyde_queries`` and ``hyde_queries_count`` for ``hyde``; for ``multi_query``
            ``generated_queries``, ``queries_count`` and ``retrieval_details``. The attribute
            ``details`` has them too, also if nothing was found.

        Raises:
            ConfigurationError: ``top_k`` is below 1, or ``kb_ids`` is empty.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        if kb_ids is not None and not list(kb_ids):
            raise ConfigurationError(
                "kb_ids is empty, which would show no knowledge base; name at least one, or leave "
                "kb_ids out for all that the tenant has"
            )
        has_scope = tenant_id is not None or kb_ids is not None
        scope = Scope(tenant_id, kb_ids=kb_ids or ()) if has_scope else None
        bound = Query.of(query).but(
            filters=filters, scope=scope, top_k=check_top_k(top_k), timeout_s=timeout_s
        )
        result = await self._own.asearch(bound)
        extra = _DETAILS.get(self.name, {})
        details = {name: result.details.get(name, default) for name, default in extra.items()}
        records = Records((hit.to_dict() for hit in result.hits), details)
        if records:
            records[0] |= details
        return records

    @property
    def _own(self) -> Retriever:
        """The retriever; one of another package is wrapped to enforce scopes."""
        own = self.retriever
        return own if isinstance(own, Retriever) else Pipeline(own, name=self.name)


F = TypeVar("F", bound=Callable[..., object])
Group = Literal["retriever", "preset"]

ENTRY_POINTS: Final = "llama_retrieval_ext.retrievers"
_BUILT_IN: Final = (*store_retrievers.DEFINITIONS, *composite_retrievers.DEFINITIONS)


@dataclass(frozen=True, slots=True)
class OperatorFactory:
    """Factory of operators of one name: ``registry.get("retriever", "hybrid")(dense_weight=0.6)``.

    Attributes:
        registry: The registry.
        name: The name in it.
    """

    registry: "Registry"
    name: str

    def __call__(self, **params: object) -> Operator:
        """Return an operator; raise ConfigurationError if a parameter is unknown or invalid."""
        return Operator(self.name, self.registry.get_retriever(self.name, **params))

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters with their defaults."""
        parameters = self.registry.definitions[self.name].parameters
        return {name: each.default for name, each in parameters.items()}


class Registry:
    """Retrievers by name, with typed parameters, over a bound knowledge base.

    It is thread-safe. It holds no tenant: each query carries its scope.

    Examples:
        >>> from llama_index.core import Document, MockEmbedding
        >>> registry = Registry()
        >>> with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
        ...     _ = kb.add([Document(text="Annual leave: 25 days.")])
        ...     retriever = registry.bind(kb).get_retriever("bm25", top_k=3)
        ...     print([(hit.text, hit.score) for hit in retriever.retrieve("annual leave")])
        [('Annual leave: 25 days.', 1.0)]
        >>> registry.get_retriever("hybird")
        Traceback (most recent call last):
            ...
        llama_retrieval_ext.errors.ConfigurationError: there is no retriever 'hybird'; did you \
mean 'hybrid'?

    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._parts = RegistryParts(make=self._make)
        built_in = (definition_of(each, name=each.__name__, takes_parts=True) for each in _BUILT_IN)
        self._retrievers = {each.name: each for each in built_in}
        self._presets = composite_retrievers.preset_definitions()
        self._installed: dict[str, EntryPoint] | None = None

    def bind(
        self,
        kb: KnowledgeBase | None = None,
        *,
        llm: LLM | None = None,
        graph: Graph | PassageGraphs | None = None,
        rules: Rules | None = None,
        docstore: BaseDocumentStore | None = None,
        objects: Mapping[str, object] | None = None,
    ) -> "Registry":
        """Bind the objects that retrievers use; replaces earlier ones.

        Existing retrievers keep their parts. The caller closes the bound objects.

        Args:
            kb: The knowledge base.
            llm: Writes queries, for ``hyde`` and ``multi_query``.
            graph: A URL such as ``graph:./dir``, a LlamaIndex property graph store or index, or
                `PassageGraphs`; None for the knowledge base's own, if any.
            rules: Rules of ``kg_rule``, or the path of their file.
            docstore: Has the parents of nodes, for ``auto_merging``.
            objects: Additional objects; configurations refer to them as ``{ref: NAME}``.

        Returns:
            The registry.

        Raises:
            ConfigurationError: An argument has the wrong type.
        """
        if kb is not None:
            of_type(kb, KnowledgeBase, "kb", instead="open one with KnowledgeBase.open(url, ...)")
        chosen = kb.graph if graph is None and kb is not None else graph
        graphs = None if chosen is None else as_passage_graphs(chosen)
        self._parts = RegistryParts(
            make=self._make,
            kb=kb,
            llm=llm,
            graph=graphs,
            rules=rules,
            docstore=docstore,
            objects=dict(objects or {}),
            closers=[graphs.close] if isinstance(graph, str) and graphs is not None else [],
        )
        return self

    @property
    def names(self) -> list[str]:
        """Names of retrievers: built in, registered, and of installed packages."""
        return sorted({*self._retrievers, *self._entry_points()})

    @property
    def definitions(self) -> Definitions:
        """Definitions that configurations can name as ``type``."""
        for name in self._entry_points():
            with suppress(ConfigurationError):  # raised later, for a configuration that names it
                self._definition(name)
        return {**class_definitions(), **self._presets, **self._retrievers}

    @property
    def parts(self) -> RegistryParts:
        """The bound objects."""
        return self._parts

    @property
    def live(self) -> Mapping[str, object]:
        """Objects that configurations name as ``ref``."""
        return self._parts.live

    def get(self, group: Group, name: str) -> OperatorFactory:
        """Return the factory of operators of a name.

        Args:
            group: ``retriever``, or ``preset``.
            name: A name in `names`, or of a preset.

        Raises:
            ConfigurationError: There is no such group or name.
        """
        if group == "retriever":
            self._definition(name)
        elif group != "preset":
            raise ConfigurationError(f"a group is 'retriever' or 'preset', got {group!r}")
        elif name not in self._presets:
            raise ConfigurationError(unknown_name("preset", name, self._presets))
        return OperatorFactory(self, name)

    def get_retriever(self, name: str, **params: object) -> BaseRetriever:
        """Return a LlamaIndex retriever.

        Args:
            name: A name in `names`, or of a preset.
            params: Its parameters; the others have their defaults.

        Raises:
            ConfigurationError: The name or a parameter is unknown, a value is invalid, or a
                required object was not bound.
            ModelMismatchError: ``embedding_config`` names another model than the knowledge base's.
        """
        return self._make(name, params)

    def register_retriever(self, name: str) -> Callable[[F], F]:
        """Return a decorator that registers a function or class that creates a retriever.

        Args:
            name: Its name: lower-case letters, digits and underscores.

        Returns:
            The decorator. The decorated function gets `RegistryParts` as its first argument; its
            keyword parameters, typed and with defaults, become those of the name.

        Raises:
            ConfigurationError: The name is taken or invalid.

        Examples:
            >>> registry = Registry()
            >>> @registry.register_retriever("titles")
            ... def titles(parts: RegistryParts, *, top_k: int = 3) -> BaseRetriever:
            ...     return parts.retriever("bm25", {"top_k": top_k})
            >>> registry.get("retriever", "titles").parameters
            {'top_k': 3}

        """
        if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
            raise ConfigurationError(
                f"the name of a retriever is lower-case letters, digits and _, got {name!r}"
            )

        def register(make: F) -> F:
            definition = _checked_definition(make, name)
            with self._lock:
                if name in self._retrievers or name in self._presets:
                    raise ConfigurationError(f"there is a retriever {name!r} already")
                self._retrievers = {**self._retrievers, name: definition}
            return make

        return register

    def close(self) -> None:
        """Close the stores opened for retrievers; bound objects stay open."""
        self._parts.close()

    def _make(self, name: str, params: Mapping[str, Any]) -> BaseRetriever:
        definition = self._presets.get(name) or self._definition(name)
        if TYPE in params:
            raise ConfigurationError(f"{name!r} has no field {TYPE!r}; the name is the type")
        parts = self._parts
        data, known = {TYPE: name, **params}, {**self.definitions, name: definition}
        mistakes = list(problems(data, known))
        if mistakes:
            raise ConfigurationError("; ".join(each.message for each in mistakes))
        try:
            retriever = Builder(known, parts.live, parts).value(data)
        except BuildError as error:
            raise error.cause from error.cause.__cause__
        if isinstance(retriever, BaseRetriever):
            return retriever
        raise ConfigurationError(f"{name!r} must make a LlamaIndex retriever, got {retriever!r}")

    def _definition(self, name: str) -> Definition:
        known = self._retrievers.get(name)
        if known is not None:
            return known
        installed = self._entry_points().get(name)
        if installed is None:
            names = [*self.names, *self._presets]
            raise ConfigurationError(unknown_name("retriever", name, names))
        try:
            loaded = installed.load()
        except Exception as error:
            raise ConfigurationError(
                f"the retriever {name!r} of {installed.value} cannot be loaded: {error}"
            ) from error
        with self._lock:
            if name not in self._retrievers:
                definition = _checked_definition(loaded, name)
                self._retrievers = {**self._retrievers, name: definition}
        return self._retrievers[name]

    def _entry_points(self) -> dict[str, EntryPoint]:
        """Return retrievers of installed packages; they cannot replace built-in names."""
        if self._installed is None:
            own = {*self._retrievers, *self._presets}
            installed = {each.name: each for each in entry_points(group=ENTRY_POINTS)}
            self._installed = {name: each for name, each in installed.items() if name not in own}
        return self._installed


def _checked_definition(make: Any, name: str) -> Definition:  # noqa: ANN401 - whatever was decorated
    if not callable(make):
        raise ConfigurationError(f"{name!r} must be a function or class, got {make!r}")
    try:
        return definition_of(make, name=name, takes_parts=True)
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the signature of {name!r} cannot be read: {error}; give every parameter a type"
        ) from error


_default: Final = Registry()
bind = _default.bind
close = _default.close
get = _default.get
get_retriever = _default.get_retriever
register_retriever = _default.register_retriever


def default_registry() -> Registry:
    """Return the registry that the functions of this module use."""
    return _default
