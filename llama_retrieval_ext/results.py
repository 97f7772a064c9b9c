"""Results of a search: `SearchResult`, `Hit` and `Contribution`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, Self, TypeVar, overload

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, Document, NodeWithScore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.dates import validity_in_words
from llama_retrieval_ext.filters import SCOPE_KEYS
from llama_retrieval_ext.lazy import Viewed
from llama_retrieval_ext.scope import KB_KEY, PATH_KEY, without_allowed
from llama_retrieval_ext.text.highlighting import (
    Highlight,
    Question,
    highlights_by_meaning,
    highlights_by_words,
)
from llama_retrieval_ext.trace import Degradation, Trace
from llama_retrieval_ext.wording import quoted

T = TypeVar("T")

# Number of characters of a hit's text in its `repr`.
_SHOWN: Final = 50
# The attributes that hold a hit's origin, and its relevance to the stage that reranked it.
_ORIGIN: Final = "_origin"
_RELEVANCE: Final = "_relevance"
_NO_QUESTION: Final = Question("")
_QUESTION: Final = "_question"


@dataclass(frozen=True, slots=True)
class Contribution:
    """The part of one leg of a fusion in a hit's score.

    Attributes:
        leg: Name of the leg.
        rank: Rank in the leg, from 1; None if the leg did not find the hit but still adds to its
            score, as a custom fusion may decide.
        score: The leg's own score, unchanged; None if the retriever gives none.
        weight: The leg's weight in the fusion.
        share: The leg's part of the fused score; the shares of additive fusions sum to it.
        normalised: The leg's score on the scale of the fusion; None for fusions by rank.
    """

    leg: str
    rank: int | None
    score: float | None
    weight: float
    share: float
    normalised: float | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        score = None if self.score is None else float(f"{self.score:.4g}")
        numbers = f"{score=}, weight={self.weight:.4g}, share={self.share:.4g}"
        return f"Contribution({self.leg!r}, rank={self.rank}, {numbers})"

    def to_dict(self) -> dict[str, object]:
        """Return the contribution as JSON."""
        # Not `asdict`, which copies every value, in ten times the time.
        fields: dict[str, object] = {
            "leg": self.leg,
            "rank": self.rank,
            "score": self.score,
            "weight": self.weight,
            "share": self.share,
        }
        return fields if self.normalised is None else {**fields, "normalised": self.normalised}


@dataclass(frozen=True, slots=True)
class ProofEdge:
    """Edge of the graph that supports a rule's conclusion.

    Attributes:
        source: Id of the start node.
        type: Its relation type.
        target: Id of the end node.
        text: The edge in words, with the names of both ends.
    """

    source: str
    type: str
    target: str
    text: str

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, object]:
        """Return the edge as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The store of a hit and its embedding model, if known, for stages that read stored data."""

    store: BasePydanticVectorStore
    embed_model: BaseEmbedding | None = None
    # Reads nodes with their embeddings by id, where the store itself cannot. Any: a later layer's.
    nodes: Callable[[Sequence[str]], Any] | None = None

    def __deepcopy__(self, memo: object) -> "Origin":
        return self

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return (type(None), ())  # stores are not pickled


class Hit(Viewed, NodeWithScore):
    """A node with its score and its source.

    Attributes:
        source: Name of the retriever that found the hit, or of the fusion that ranked it.
        priority: Order of sources that take precedence over the score (rules before search); None
            if unused.
        proof: The edges from which a rule derived the hit.
        contributions: The part of each leg of a fusion in the score.
        matched_entities: Entities, titles and phrases of the query that a graph links to the hit.
        hop_distance: Number of graph edges from these to the hit; None for other hits.
        path: These edges in words.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> hit = Hit(node=TextNode(id_="n1", text="..."), score=0.5, source="vector")
        >>> hit.to_dict()["node_id"]
        'n1'

    """

    _view: ClassVar[str] = "results.hit"

    source: str = ""
    priority: int | None = None
    proof: tuple[ProofEdge, ...] = ()
    contributions: tuple[Contribution, ...] = ()
    matched_entities: tuple[str, ...] = ()
    hop_distance: int | None = None
    path: str = ""

    @classmethod
    def class_name(cls) -> str:
        """Return LlamaIndex's name of the class in serialised form."""
        return "Hit"

    def __repr__(self) -> str:
        # Pydantic's version prints the whole node with its relationships.
        text = self.node.get_content()
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        id_, source = self.node.node_id, self.source
        score = None if self.score is None else float(f"{self.score:.4g}")
        return f"{type(self).__name__}({id_!r}, {score=}, {source=}, text={shown!r})"

    @property
    def text(self) -> str:
        """Text of the node; that of LlamaIndex's raises an error for a `Document`."""
        return self.node.get_content()

    @property
    def start(self) -> int | None:
        """Position of its text in the text of its document, in characters, if it is known."""
        return getattr(self.node, "start_char_idx", None)

    @property
    def end(self) -> int | None:
        """Position after its text in the text of its document, if it is known."""
        return getattr(self.node, "end_char_idx", None)

    @property
    def validity(self) -> str:
        """Since when it no longer holds, or before when not; empty if it holds now."""
        return validity_in_words(self.node.metadata)

    @property
    def question(self) -> Question | None:
        """What it was found for; None if that is not known."""
        question: Question | None = vars(self).get(_QUESTION)
        return question

    @property
    def highlights(self) -> tuple[Highlight, ...]:
        """The words of the question in its text and metadata, in order; computed when read.

        Words are found as by keyword search: folded, stemmed, corrected, Chinese by pairs. A hit
        without them has the sentence of its text that is nearest to the question: by the embedding
        model if that is static, which takes no time, else by shared letters.
        """
        question = self.question
        if question is None:
            return ()
        origin = origin_of(self)
        model = None if origin is None else origin.embed_model
        embed = getattr(model, "embed_static", None)
        return highlights_by_words(self._fields(), question) or highlights_by_meaning(
            self.text, question, embed
        )

    def _fields(self) -> list[tuple[str, int | None, str]]:
        """Return the searched texts, each with its field, and its index in a list."""
        fields: list[tuple[str, int | None, str]] = [("text", None, self.text)]
        hidden = {*self.node.excluded_embed_metadata_keys, *SCOPE_KEYS}
        for key, value in self.node.metadata.items():
            name = "headings" if key == PATH_KEY else key
            if key not in hidden and isinstance(value, str):
                fields.append((name, None, value))
            elif key not in hidden and isinstance(value, list | tuple):
                fields += [(name, at, v) for at, v in enumerate(value) if isinstance(v, str)]
        return fields

    def to_dict(self, **_: object) -> dict[str, object]:
        """Return the hit as JSON; HTTP, MCP and the command line have the same names.

        Without the principals who may see it, who are no concern of those who do.
        """
        node = self.node
        fields: dict[str, object] = {
            "node_id": node.node_id,
            "text": node.get_content(),
            "score": self.score,
            "metadata": without_allowed(node.metadata),
            "kb_id": node.metadata.get(KB_KEY),
            "document_id": document_id(node),
            "source": self.source,
        }
        if self.start is not None:
            fields |= {"start": self.start, "end": self.end}
        if self.validity:
            fields["validity"] = self.validity
        if self.priority is not None:
            fields["priority"] = self.priority
        if self.proof:
            fields["proof"] = [edge.to_dict() for edge in self.proof]
        if self.contributions:
            fields["contributions"] = [part.to_dict() for part in self.contributions]
        if self.question is not None:
            fields["highlights"] = [highlight.to_dict() for highlight in self.highlights]
        if self.hop_distance is not None:
            fields |= {
                "matched_entities": list(self.matched_entities),
                "hop_distance": self.hop_distance,
                "path": self.path,
            }
        return fields


class Correction(str):
    """The sentence that a question was searched with other words than it has; a hint, with data.

    Attributes:
        typed: The question as it was asked.
        query: The question that was searched.
        words: The words of the question that no visible node has, each with its replacement.

    Examples:
        >>> correction = Correction("emploee", "employee", {"emploee": "employee"})
        >>> correction, correction.words
        ("searched for 'employee' instead of 'emploee'", {'emploee': 'employee'})

    """

    __slots__ = ("query", "typed", "words")
    typed: str
    query: str
    words: Mapping[str, str]

    def __new__(cls, typed: str, query: str, words: Mapping[str, str]) -> Self:
        """Return the sentence for a question and the words that were replaced."""
        pairs = (f"{quoted(meant)} instead of {quoted(typed)}" for typed, meant in words.items())
        made = super().__new__(cls, f"searched for {' and '.join(pairs)}")
        made.typed, made.query, made.words = typed, query, dict(words)
        return made

    def __getnewargs__(self) -> tuple[str, str, Mapping[str, str]]:  # type: ignore[override]  # its own
        return self.typed, self.query, self.words

    def to_dict(self) -> dict[str, object]:
        """Return the correction as JSON."""
        return {"text": str(self), "query": self.query, "words": dict(self.words)}


def correction_in(hints: Iterable[str]) -> Correction | None:
    """Return the correction among hints; None if the question was searched as it is."""
    return next((hint for hint in hints if isinstance(hint, Correction)), None)


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult(Viewed, Sequence[Hit]):
    """A ranking with degraded parts, trace and details.

    It behaves as a sequence of hits: it has a length, can be iterated, indexed and sliced, and is
    true if it has hits.

    Attributes:
        hits: Best first.
        degraded: Parts that failed and were left out; empty if the answer is complete.
        hints: Sentences on what was looked for and is not there, such as a key of a filter, with
            the nearest that is; only of what the scope can see.
        trace: The steps that ran, with durations; None if it is not yet known.
        details: Values that stages add, such as ``generated_queries`` and ``routes``; those of the
            outermost stages by name, those of stages inside a leg by path (``leg/routes``).
        query: The text of the query.
        cursor: Where the next page of a search of a knowledge base begins, for ``cursor=`` of the
            same search; None if there is none.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> hits = [Hit(node=TextNode(id_="n1", text="25 days"), score=0.75)]
        >>> SearchResult(hits, query="annual leave")
        SearchResult('annual leave', 1 hit)
          1. 0.75  n1  '25 days'

    """

    _view: ClassVar[str] = "results.result"

    hits: list[Hit]
    degraded: tuple[Degradation, ...] = ()
    trace: Trace | None = None
    details: dict[str, object] = field(default_factory=dict)
    query: str = ""
    hints: tuple[str, ...] = ()
    cursor: str | None = None

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> list[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | list[Hit]:
        return self.hits[index]

    def __repr__(self) -> str:
        text: str = self._shown("text")
        return text

    @property
    def corrected(self) -> Correction | None:
        """The words that were searched instead of typing errors, also a hint; None if none were."""
        return correction_in(self.hints)

    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON."""
        return {
            "query": self.query,
            "hits": [hit.to_dict() for hit in self.hits],
            "degraded": [asdict(part) for part in self.degraded],
            "hints": [*map(str, self.hints)],
            "corrected": self.corrected and self.corrected.to_dict(),
            "cursor": self.cursor,
            "trace": None if self.trace is None else self.trace.to_dict(),
            **self.details,
        }


class ResultList(list[T]):
    """List of results, with what is missing.

    Attributes:
        degraded: As for `SearchResult`.
        hints: As for `SearchResult`.
    """

    degraded: tuple[Degradation, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def corrected(self) -> Correction | None:
        """As for `SearchResult`."""
        return correction_in(self.hints)


def document_id(node: BaseNode) -> str | None:
    """Return the id of a node's document; a document that was not split is its own."""
    return node.node_id if isinstance(node, Document) else node.ref_doc_id


def with_origin(hit: Hit, origin: Origin | None, question: Question | None = None) -> Hit:
    """Attach an origin, and a question, to a new hit and return the hit; its copies inherit both.

    They are not part of the hit's value: `repr`, comparison, JSON and pickle leave them out.
    """
    # In `__dict__`, as pydantic stores cached properties: a private attribute would double the time
    # to create a hit.
    if origin is not None:
        vars(hit)[_ORIGIN] = origin
    if question is not None:
        vars(hit)[_QUESTION] = question
    return hit


def answered(hit: NodeWithScore, source: str, text: str) -> Hit:
    """Return a new `Hit` of the answer to a question; ``source`` is for hits without one."""
    if not isinstance(hit, Hit):
        made = Hit(node=hit.node, score=hit.score, source=source)
    else:
        made = hit.model_copy(update={} if hit.source else {"source": source})
    before: Question = vars(made).get(_QUESTION) or _NO_QUESTION
    vars(made)[_QUESTION] = Question(text, before.tokenizer, before.synonyms)
    return made


def origin_of(hit: NodeWithScore) -> Origin | None:
    """Return the origin of a hit; None if it is unknown."""
    origin: Origin | None = vars(hit).get(_ORIGIN)
    return origin


def with_relevance(hit: Hit, relevance: float) -> Hit:
    """Return a copy with the relevance that a stage gave the hit; its copies inherit it."""
    judged = hit.model_copy()
    vars(judged)[_RELEVANCE] = relevance  # no part of the value, as the origin
    return judged


def relevance_of(hit: NodeWithScore) -> float | None:
    """Return the relevance that the last reranking or rescoring stage gave; None without one."""
    relevance: float | None = vars(hit).get(_RELEVANCE)
    return relevance
