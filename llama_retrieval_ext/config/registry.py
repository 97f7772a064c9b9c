"""Retrievers and operators by name, over objects that an application binds once.

The functions of this module use one registry per process; create `Registry` objects for several.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar, get_args

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import LLM
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.config.definitions import (
    Definition,
    Definitions,
    definition_of,
    unknown_name,
)
from llama_retrieval_ext.config.operators import OperatorFactory, answers_records, record_definition
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.errors import ArgumentError, ConfigurationError
from llama_retrieval_ext.graph.open import Graph

if TYPE_CHECKING:
    from llama_retrieval_ext.graph.passage_graphs import PassageGraphs
    from llama_retrieval_ext.retrievers.kg_rule import Rules


class HasParts(Protocol):
    """A knowledge base."""

    @property
    def parts(self) -> RegistryParts:
        """The parts of its retrievers."""
        ...


F = TypeVar("F", bound=Callable[..., object])
Group = Literal["retriever", "preset"]

ENTRY_POINTS: Final = "llama_retrieval_ext.retrievers"
PRESETS: Final = ("basic", "advanced", "semantic", "auto")
# The module of the function of each name, which is imported when it is used.
_MODULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("vector", "keyword", "dense", "bm25", "hybrid"), "searches"),
    **dict.fromkeys(("llama_dense", "llama_bm25", "llama_hybrid"), "store_retrievers"),
    **dict.fromkeys(("fusion", "hyde", "multi_query", "graph", "kg_rule"), "composite_retrievers"),
    **dict.fromkeys(("knowledge", "router", "recursive", "rerank"), "composite_retrievers"),
    **dict.fromkeys(("auto_merging", "fallback"), "composite_retrievers"),
    **dict.fromkeys(PRESETS, "presets"),
}
# Extra fields of the first record of an answer, with their values if the LLM failed.
_FIELDS: Final[Mapping[str, Mapping[str, object]]] = {
    "hyde": {"hyde_queries": [], "hyde_queries_count": 0},
    "multi_query": {"generated_queries": [], "queries_count": 1, "retrieval_details": []},
}


@cache
def _built_in(name: str) -> Definition:
    """Return the definition of a function of this folder."""
    module = import_module(f"llama_retrieval_ext.config.{_MODULES[name]}")
    return definition_of(
        getattr(module, name), name=name, takes_parts=True, fields=_FIELDS.get(name, {})
    )


class Registry:
    """Retrievers by name, with typed parameters, over a bound knowledge base.

    It is thread-safe. It holds no tenant: each query carries its scope.

    Examples:
        >>> from llama_index.core import Document, MockEmbedding
        >>> from llama_retrieval_ext import KnowledgeBase
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
        self._parts = RegistryParts(make=self.make)
        self._own: dict[str, Definition] = {}
        self._installed: dict[str, EntryPoint] | None = None

    def bind(
        self,
        kb: HasParts | None = None,
        *,
        llm: LLM | None = None,
        graph: "Graph | PassageGraphs | None" = None,
        rules: "Rules | None" = None,
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
        parts = RegistryParts() if kb is None else _parts_of(kb)
        if llm is not None:
            advice = "pass one of LlamaIndex's, or a CustomLLM that calls your function"
            of_type(llm, LLM, "llm", instead=advice)
        if docstore is not None:
            of_type(docstore, BaseDocumentStore, "docstore")
        of_type(objects or {}, Mapping, "objects", instead="pass names with their objects")
        graphs = parts.graph
        if graph is not None:
            from llama_retrieval_ext.graph.passage_graphs import as_passage_graphs  # noqa: PLC0415

            graphs = as_passage_graphs(graph)
        self._parts = replace(
            parts,
            make=self.make,
            vector_share=None,  # the weights of the definition of hybrid search
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
        return sorted({*_MODULES, *self._own, *self._entry_points()}.difference(PRESETS))

    @property
    def definitions(self) -> Definitions:
        """Definitions that configurations can name as ``type``."""
        from llama_retrieval_ext.config.spec import class_definitions  # noqa: PLC0415 - slow

        definitions = dict(class_definitions())
        for name in (*PRESETS, *self.names):
            with suppress(ConfigurationError):  # raised later, for a configuration that names it
                definitions[name] = self.definition(name).timed
        return definitions

    @property
    def parts(self) -> RegistryParts:
        """The bound objects."""
        return self._parts

    @property
    def live(self) -> Mapping[str, object]:
        """Objects that configurations name as ``ref``."""
        return self._parts.live

    def get(self, group: Group, name: str | None = None) -> OperatorFactory:
        """Return the factory of operators of a name.

        Args:
            group: ``retriever``, or ``preset``.
            name: A name in `names`, or of a preset.

        Raises:
            ArgumentError: The group or the name is missing.
            ConfigurationError: There is no such group or name.
        """
        if name is None:
            is_group = group in get_args(Group)
            names = (group, "hybrid") if is_group else ("retriever", str(group))
            raise ArgumentError(f"get() takes a group and a name; write get{names!r}")
        if group not in get_args(Group):
            raise ConfigurationError(f"a group is 'retriever' or 'preset', got {group!r}")
        if group == "preset" and name not in PRESETS:
            raise ConfigurationError(unknown_name("preset", name, PRESETS))
        definition = self.definition(name)
        return OperatorFactory(definition, lambda params: self.make(name, params, self._parts))

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
        return self.make(name, params, self._parts)

    def register_retriever(self, name: str, name_in_group: str | None = None) -> Callable[[F], F]:
        """Return a decorator that registers a function or class that creates a retriever.

        Args:
            name: Its name: lower-case letters, digits and underscores. As in `get`, the group
                ``retriever`` may stand before it.
            name_in_group: The name, if the group stands before it.

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
        if name_in_group is not None:
            if name != "retriever":
                advice = f"write register_retriever({name_in_group!r})"
                raise ConfigurationError(f"a group is 'retriever', got {name!r}; {advice}")
            name = name_in_group
        if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
            raise ConfigurationError(
                f"the name of a retriever is lower-case letters, digits and _, got {name!r}"
            )

        def register(make: F) -> F:
            definition = _checked_definition(make, name)
            with self._lock:
                if name in _MODULES or name in self._own:
                    raise ConfigurationError(f"there is a retriever {name!r} already")
                self._own = {**self._own, name: definition}
            return make

        return register

    def close(self) -> None:
        """Close the stores opened for retrievers; bound objects stay open."""
        self._parts.close()

    def make(self, name: str, params: Mapping[str, Any], parts: RegistryParts) -> BaseRetriever:
        """Return a retriever from parts, which may be others than the bound ones.

        Raises:
            ArgumentError: A parameter is unknown.
            ConfigurationError: The name is unknown, a value is invalid, or a part is missing.
        """
        definition = self.definition(name)
        checked, mistakes = definition.checked(params)
        if mistakes:
            kind = (
                ArgumentError if any(mistake.at_key for mistake in mistakes) else ConfigurationError
            )
            raise kind("; ".join(mistake.message for mistake in mistakes))
        inner = replace(parts, make=self.make, given=frozenset(params))
        made = definition.build(checked, inner)
        if not isinstance(made, BaseRetriever):
            raise ConfigurationError(f"{name!r} must make a LlamaIndex retriever, got {made!r}")
        return parts.bound(made)

    def definition(self, name: str) -> Definition:
        """Return the definition of a name.

        Raises:
            ConfigurationError: There is no such name, or its package cannot be loaded.
        """
        if name in _MODULES:
            return _built_in(name)
        if name not in self._own:
            installed = self._entry_points().get(name)
            if installed is None:
                names = [*self.names, *PRESETS]
                raise ConfigurationError(unknown_name("retriever", name, names))
            definition = _checked_definition(_loaded(installed), name)
            with self._lock:
                self._own = {name: definition, **self._own}
        return self._own[name]

    def _entry_points(self) -> dict[str, EntryPoint]:
        """Return retrievers of installed packages; they cannot replace built-in names."""
        if self._installed is None:
            names = {*_MODULES, *self._own}
            installed = {
                entry_point.name: entry_point for entry_point in entry_points(group=ENTRY_POINTS)
            }
            self._installed = {
                name: point for name, point in installed.items() if name not in names
            }
        return self._installed


def _parts_of(kb: object) -> RegistryParts:
    parts = getattr(kb, "parts", None)
    advice = "open one with KnowledgeBase.open(url, ...)"
    if not isinstance(parts, RegistryParts):
        raise ConfigurationError(f"kb must be of type KnowledgeBase, got {kb!r}; {advice}")
    return parts


def _loaded(installed: EntryPoint) -> object:
    try:
        return installed.load()
    except Exception as error:
        raise ConfigurationError(
            f"the retriever {installed.name!r} of {installed.value} cannot be loaded: {error}"
        ) from error


def _checked_definition(make: Any, name: str) -> Definition:  # noqa: ANN401 - whatever was decorated
    if not callable(make):
        raise ConfigurationError(f"{name!r} must be a function or class, got {make!r}")
    try:
        if answers_records(make):
            return record_definition(make, name)
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


def registry_for(source: Registry | HasParts) -> Registry:
    """Return the registry, or one with the registered names over a knowledge base.

    Its retrievers have the defaults of the knowledge base, as those of ``kb.retriever``.
    """
    if isinstance(source, Registry):
        return source
    registry, parts = copy(_default), _parts_of(source)
    registry._parts = replace(parts, make=registry.make)  # noqa: SLF001 - of this module
    return registry


def default_registry() -> Registry:
    """Return the registry that the functions of this module use."""
    return _default
