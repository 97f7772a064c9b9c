"""`EntityLinker`: finds the entities that a question names, mostly without an LLM."""

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM

from llama_retrieval_ext.checks import check_count, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import note_inquiry
from llama_retrieval_ext.execution.drivers import either_way
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import embed_text
from llama_retrieval_ext.execution.running import callers
from llama_retrieval_ext.formulas.cosine import Matrix, cosines, matrix
from llama_retrieval_ext.graph.backend import GraphBackend
from llama_retrieval_ext.llm.model import SEARCH_TIMEOUT_S, LanguageModel, filled
from llama_retrieval_ext.llm.parsing import cleaned, is_cut_off, texts_in_json, unfenced
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.hit_embeddings import embed_texts
from llama_retrieval_ext.text.gazetteer import Gazetteer
from llama_retrieval_ext.wording import nearest, unknown

# Maximum number of scopes with cached names.
_SCOPES: Final = 32
# Most names that an LLM or a NER finds in a question, and their greatest length; a question names
# fewer, and longer names are not linked.
_MOST_NAMES: Final = 50
_LONGEST_NAME: Final = 200
_MARK: Final = re.compile(r"^(?:[-*•]|\d{1,2}[.)])\s+")  # of an item in a list
# Likeness of a question and a name that share a letter or two.
_LEAST: Final = 0.05
_PROMPT: Final = (
    "List the things, places, processes and other entities that this question names, one a line, "
    "as it spells them, and nothing else.\n\nQuestion: {query}\nEntities:\n"
)


@runtime_checkable
class NER(Protocol):
    """Any object that finds names in a text."""

    def extract(self, text: str) -> Iterable[object] | Awaitable[Iterable[object]]:
        """Return names: strings, or objects or dictionaries with the name in ``text``."""
        ...


NameFinder: TypeAlias = NER | Callable[[str], Iterable[object] | Awaitable[Iterable[object]]]


@dataclass(frozen=True, slots=True)
class LinkedEntity:
    """An entity that a question names.

    Attributes:
        node_id: Id of the entity.
        name: The matched name, normalised.
        surface: Its spelling in the question; the whole question for a match by meaning.
        score: In (0, 1]: 1 for an exact match.
        by: ``exact``, ``fuzzy``, ``ner``, ``embedding`` or ``llm``.
    """

    node_id: str
    name: str
    surface: str
    score: float
    by: str


@dataclass
class _Names:
    """Names that one scope sees, with their embeddings once these are needed."""

    version: tuple[int, int]
    gazetteer: Gazetteer
    pairs: tuple[tuple[str, str], ...]
    embeddings: Matrix | None = None


class EntityLinker:
    """Linker from questions to entities: a cascade that stops at the first step with a result.

    The steps: exact and similar names in the question; names that the ``ner`` finds, compared in
    the same way; names nearest in meaning; names that an LLM finds. A scope sees only its own
    names, so its results do not depend on other scopes.

    Args:
        graph: The graph with the entities.
        fuzzy: Minimum similarity of a name that is spelled differently; None for exact names
            only.
        ner: Finds names in a question: an object with ``extract(text)``, or a function; both may
            be async.
        embed_model: Embeds names and questions; None for no match by meaning.
        min_similarity: Minimum cosine of a match by meaning.
        llm: LLM for names if all other steps find nothing, within 10 s; None to skip this step.

    Raises:
        ConfigurationError: A number is out of range, or the NER has another type.
        MissingDependencyError: The extra ``graph`` is not installed.

    Examples:
        >>> from llama_retrieval_ext.graph.elements import GraphNode
        >>> from llama_retrieval_ext.graph.embedded import EmbeddedGraph
        >>> graph = EmbeddedGraph(":memory:")
        >>> graph.upsert([GraphNode("crane", "Equipment", "Tower crane")], [])
        >>> linked = EntityLinker(graph).link("which checks does a tower crain need?")
        >>> [(entity.node_id, entity.by) for entity in linked]
        [('crane', 'fuzzy')]
        >>> graph.close()

    """

    def __init__(
        self,
        graph: GraphBackend,
        *,
        fuzzy: float | None = 0.85,
        ner: NameFinder | None = None,
        embed_model: BaseEmbedding | None = None,
        min_similarity: float = 0.75,
        llm: LLM | None = None,
    ) -> None:
        for value, what in ((fuzzy, "fuzzy"), (min_similarity, "min_similarity")):
            if value is not None and not (is_number(value) and 0 < value <= 1):
                raise ConfigurationError(f"{what} must be in (0, 1], got {value!r}")
        self.graph = of_type(graph, GraphBackend, "graph")
        self.fuzzy = fuzzy
        self.ner = None if ner is None else check_ner(ner)
        self.embed_model = embed_model
        self.min_similarity = min_similarity
        self.llm = None if llm is None else LanguageModel(llm, SEARCH_TIMEOUT_S)
        self._names: OrderedDict[Scope | None, _Names] = OrderedDict()
        self._refreshes = 0
        self._lock = Lock()

    def plan_link(
        self, query: str, *, scope: Scope | None = None, limit: int = 10
    ) -> Plan[list[LinkedEntity]]:
        """Return the entities that a question names, best first, ties by id.

        Args:
            query: The question.
            scope: The rows that are visible.
            limit: Maximum number of entities.

        """
        check_count(limit, "limit")
        names = yield from self._names_of(scope)
        entities = self._in_text(query, names)
        if not entities and self.ner is not None:
            surfaces = yield find_names(self.ner, query)
            entities = self._by_surface(surfaces, names, "ner")
        if not entities and self.embed_model is not None and names.pairs:
            entities = yield from self._by_meaning(query, names, self.embed_model)
        if not entities and self.llm is not None:
            prompt = filled(_PROMPT, query=query)
            answers = yield from self.llm.answers("entity linking", prompt, _lines, scope=scope)
            entities = self._by_surface([*chain.from_iterable(answers)], names, "llm")
        best: dict[str, LinkedEntity] = {}
        for entity in entities:
            if entity.node_id not in best or best[entity.node_id].score < entity.score:
                best[entity.node_id] = entity
        return sorted(best.values(), key=lambda entity: (-entity.score, entity.node_id))[:limit]

    link, alink = callers(plan_link)

    def plan_unknown(self, what: str, name: str, *, scope: Scope | None) -> Plan[str]:
        """Return the plan for the sentence that no entity has a name, with the nearest names."""
        names = yield from self._names_of(scope)
        near = yield Call(lambda: unknown(what, name, (name for name, _ in names.pairs)))
        return str(near)

    unknown, aunknown = callers(plan_unknown)

    def note_unnamed(self, query: str, *, scope: Scope | None) -> None:
        """Note for the hints that a question names no entity, with the nearest names."""

        def hints() -> Plan[list[str]]:
            names = yield from self._names_of(scope)
            near = yield Call(
                lambda: nearest(query, (name for name, _ in names.pairs), least=_LEAST)
            )
            nothing = "the query names nothing of the graph"
            return [f"{nothing}; the nearest there: {near}" if near else nothing]

        note_inquiry(("entities", id(self.graph), query, scope), hints, always=False)

    def refresh(self) -> None:
        """Drop the cached names, so names written by other processes are found."""
        with self._lock:
            self._names.clear()
            self._refreshes += 1

    def _names_of(self, scope: Scope | None) -> Plan[_Names]:
        version = self.graph.version, self._refreshes
        with self._lock:
            cached = self._names.get(scope)
            if cached is not None and cached.version == version:
                self._names.move_to_end(scope)
                return cached
        pairs = yield self.graph.plan_names(scope=scope)
        # The call keeps the names itself: a caller whose time is over leaves them for the next one.
        names: _Names = yield Call(lambda: self._kept(scope, version, pairs))
        return names

    def _kept(
        self, scope: Scope | None, version: tuple[int, int], pairs: Sequence[tuple[str, str]]
    ) -> _Names:
        names = _Names(version, Gazetteer(pairs), tuple(pairs))
        with self._lock:
            self._names[scope] = names
            self._names.move_to_end(scope)
            while len(self._names) > _SCOPES:
                self._names.popitem(last=False)
        return names

    def _in_text(self, text: str, names: _Names, by: str = "") -> list[LinkedEntity]:
        """Return entities by exact names and, unless disabled, by similar names."""
        if self.fuzzy is None:
            mentions = names.gazetteer.find(text)
        else:
            mentions = names.gazetteer.find_similar(text, threshold=self.fuzzy)
        return [
            LinkedEntity(
                id_,
                mention.name,
                text[mention.start : mention.end],
                mention.score,
                by or ("exact" if mention.score == 1 else "fuzzy"),
            )
            for mention in mentions
            for id_ in mention.ids
        ]

    def _by_surface(self, surfaces: Sequence[str], names: _Names, by: str) -> list[LinkedEntity]:
        """Return the entities that the names found in a question link to."""
        bounded = [name for name in surfaces[:_MOST_NAMES] if len(name) <= _LONGEST_NAME]
        return [entity for name in bounded for entity in self._in_text(name, names, by)]

    def _by_meaning(
        self, query: str, names: _Names, model: BaseEmbedding
    ) -> Plan[list[LinkedEntity]]:
        if names.embeddings is None:
            vectors = yield embed_texts([name for name, _ in names.pairs], model)
            names.embeddings = matrix(vectors, dim=len(vectors[0]))
        vector = yield from embed_text(query, model)
        scores = cosines(names.embeddings, vector)
        return [
            LinkedEntity(
                names.pairs[at][1], names.pairs[at][0], query, float(scores[at]), "embedding"
            )
            for at in np.flatnonzero(scores >= self.min_similarity)
        ]


def check_ner(ner: NameFinder) -> NameFinder:
    """Return the NER if it has ``extract(text)`` or can be called, else raise."""
    if isinstance(ner, NER) or callable(ner):
        return ner
    raise ConfigurationError(
        f"ner is a function or has extract(text), got {ner!r}; wrap it in a lambda"
    )


def names_found(ner: NameFinder, text: str) -> list[str]:
    """Return the names that a NER, blocking or async, finds as strings, each once."""
    return find_names(ner, text).function()


def find_names(ner: NameFinder, text: str) -> Call[list[str]]:
    """Return the call for `names_found`."""
    find = ner.extract if isinstance(ner, NER) else ner
    blocking, attempt = either_way(find, text)

    def names(items: Iterable[object]) -> list[str]:
        values = [
            item.get("text") if isinstance(item, dict) else getattr(item, "text", item)
            for item in items
        ]
        stripped = [value.strip() for value in values if isinstance(value, str)]
        return [name for name in dict.fromkeys(stripped) if name]

    return Call(blocking, attempt).then(names)


def _lines(answer: str) -> list[str]:
    text = unfenced(cleaned(answer))
    names = texts_in_json(text)
    if names is None and not is_cut_off(text):
        names = [_MARK.sub("", line.strip()) for line in text.splitlines()]
    names = [name for name in dict.fromkeys(names or ()) if name]
    return names if len(names) <= _MOST_NAMES else []
