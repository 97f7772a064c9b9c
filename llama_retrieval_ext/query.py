"""`Query` (text, filters and limits of a search) and `Scope` (the visible nodes)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypedDict, TypeVar

from llama_index.core.schema import BaseNode, QueryBundle
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext.checks import (
    Part,
    check_count,
    check_seconds,
    check_weights,
    checked_arguments,
    of_type,
)
from llama_retrieval_ext.dates import KNOWN_FROM, KNOWN_TO, VALID_FROM, VALID_TO, Moment, moment_of
from llama_retrieval_ext.errors import ConfigurationError, ScopeError, ScopeRequiredError
from llama_retrieval_ext.filter_syntax import describe_filters
from llama_retrieval_ext.filters import (
    SCOPE_KEYS,
    AllOf,
    AnyOf,
    Compare,
    Condition,
    Not,
    both,
    matches,
    parse_filters,
)
from llama_retrieval_ext.parameters import Check
from llama_retrieval_ext.text.normalization import valid_text

# The principals in `ALLOWED_KEY` may see a node: a list; without one, everyone in its scope.
TENANT_KEY, KB_KEY, ALLOWED_KEY = SCOPE_KEYS
# What stores of this package filter passages by, beside their metadata: the id of their document,
# and their position in its text. No key of a filter on metadata begins with "@".
DOCUMENT_FIELD = "@document"
START_FIELD = "@start"
# LlamaIndex's readers store the source file of a document under this key.
SOURCE_KEY = "file_path"
# The page or slide of a document: a number, or a label such as "iv".
PAGE_KEY = "page"
# Metadata of passages: the headings above them, the header of the table that they begin in.
PATH_KEY = "heading_path"
TABLE_KEY = "table"
# Metadata of messages: their session and speaker, and of memories their number in it and their time
# in microseconds since 1970: a whole number below 2**53, which every engine compares exactly.
SESSION_KEY = "session_id"
SPEAKER_KEY = "speaker"
TIME_KEY = "memory_time"
TURN_KEY = "memory_turn"

# As `Scope.as_of`: everything, whenever it holds.
ANY_TIME: Final = "any"
# What is known now, where what was known before is kept.
KNOWN_NOW: Final = MetadataFilters(
    filters=[MetadataFilter(key=KNOWN_TO, value=None, operator=FilterOperator.IS_EMPTY)]
)

Node = TypeVar("Node", bound=BaseNode)


# Any iterable is accepted, and each message says what isolation needs.
_CHECKED_HERE: Final = Check(lambda _: None)


@dataclass(frozen=True, slots=True, repr=False)
class Scope(Part):
    """The nodes that a query can access: those of a tenant, of some knowledge bases, or both.

    It also has the time for which a query asks, so that whatever obeys a scope obeys this, too.

    A scope is trusted: derive it from the authenticated user, never from text that a user or a
    model wrote. Nodes store it in their metadata as ``tenant_id`` and ``kb_id``, and the principals
    who may see them as ``allowed``.

    Args:
        tenant_id: The tenant whose nodes are accessible; None if there are no tenants.
        kb_ids: The accessible knowledge bases, at least one; None for all of the tenant's.
        principals: The user and all groups of the user: of these nodes, only those are accessible
            that name one of the principals, or none at all. None for a trusted caller, who can
            access all of them; an empty list for a user who can access only nodes that name none.
        as_of: A date or an instant: only what holds then is accessible, by its ``valid_from`` (the
            first instant) and ``valid_to`` (the first instant after); what names neither holds
            always; ``"any"`` for everything. None for now in a graph, and elsewhere for everything,
            which a knowledge base ranks by whether it holds now.
        known_at: A date or an instant: only what was known then is accessible, by its
            ``known_from`` and ``known_to``. None for what is known now.

    Raises:
        ConfigurationError: None of them is given, ``kb_ids`` is empty, or an id is not a non-empty
            string.

    Examples:
        >>> Scope("acme", kb_ids=["handbook"])
        Scope(tenant_id='acme', kb_ids=('handbook',))
        >>> Scope("acme", principals=["user:ann", "group:hr"])
        Scope(tenant_id='acme', principals=('group:hr', 'user:ann'))

    """

    tenant_id: Annotated[str | None, _CHECKED_HERE] = None
    kb_ids: Annotated[Sequence[str] | None, _CHECKED_HERE] = None
    principals: Annotated[Sequence[str] | None, _CHECKED_HERE] = None
    as_of: Annotated[Moment | None, _CHECKED_HERE] = None
    known_at: Annotated[Moment | None, _CHECKED_HERE] = None

    def __post_init__(self) -> None:
        given = () if self.kb_ids is None else self.kb_ids
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigurationError(
                f"kb_ids must be a list of ids, got {self.kb_ids!r}; write, for instance, "
                "['handbook']"
            )
        kb_ids = tuple(given)
        ids = (*kb_ids, *([] if self.tenant_id is None else [self.tenant_id]))
        if not kb_ids and self.kb_ids is not None:
            raise ConfigurationError(
                "kb_ids is empty, which would show no knowledge base; name at least one, or leave "
                "kb_ids out for all that the tenant has"
            )
        times = {"as_of": self.as_of, "known_at": self.known_at}
        if not ids and self.principals is None and not any(times.values()):
            raise ConfigurationError(
                "a scope needs a tenant_id or at least one of kb_ids, or principals; "
                "for a query without isolation pass scope=None"
            )
        for id_ in ids:
            if not isinstance(id_, str) or not id_.strip():
                raise ConfigurationError(f"ids of a scope must be non-empty strings, got {id_!r}")
        for name, when in times.items():
            is_moment = when is not None and (name, when) != ("as_of", ANY_TIME)
            object.__setattr__(self, name, moment_of(when, name) if is_moment else when)
        object.__setattr__(self, "kb_ids", tuple(dict.fromkeys(kb_ids)) or None)
        if self.principals is not None:
            # Sorted: the same principals are the same scope, which is part of the key of caches.
            object.__setattr__(self, "principals", principals_of(self.principals, "principals"))

    @property
    def condition(self) -> Condition:
        """The filter that keeps only nodes of this scope."""
        parts: list[Condition] = []
        if self.tenant_id is not None:
            parts.append(Compare(TENANT_KEY, FilterOperator.EQ, self.tenant_id))
        if self.kb_ids:
            parts.append(Compare(KB_KEY, FilterOperator.IN, tuple(self.kb_ids)))
        if self.principals is not None:
            parts.append(_visible_to(tuple(self.principals)))
        if self.time is not None:
            parts.append(self.time)
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    @property
    def time(self) -> Condition | None:
        """The condition that a node holds at one time, and was known at another."""
        outside = _outside(self.as_of, self.known_at)
        return Not(AnyOf(outside)) if outside else None

    @property
    def for_everyone(self) -> "Scope | None":
        """The scope without principals and time; None if nothing else is left.

        Statistics such as IDF cover it: they are those of the tenant, not of a user.
        """
        if self.tenant_id is None and not self.kb_ids:
            return None
        is_whole = self.principals is None and self.as_of is None and self.known_at is None
        return self if is_whole else Scope(self.tenant_id, self.kb_ids)

    @property
    def isolates(self) -> bool:
        """Whether it names a tenant, knowledge bases or principals, and not only a time."""
        return bool(self.tenant_id is not None or self.kb_ids) or self.principals is not None

    def has_principal_of(self, metadata: Mapping[str, object]) -> bool:
        """Return whether metadata names none or one of the principals; True without principals."""
        return self.principals is None or matches(_visible_to(tuple(self.principals)), metadata)

    def narrowed(self, other: "Scope | None") -> "Scope":
        """Return the intersection of both scopes.

        Raises:
            ScopeError: The intersection is empty; an empty answer would hide that.
        """
        if other is None or other == self:
            return self
        tenants = {id_ for id_ in (self.tenant_id, other.tenant_id) if id_ is not None}
        kb_ids = _common(self.kb_ids, other.kb_ids)
        both_principals = _common(self.principals, other.principals)
        lost = both_principals == () and self.principals and other.principals
        if len(tenants) > 1 or kb_ids == () or lost:
            raise ScopeError(
                f"{self} and {other} have nothing in common; a scope can only be narrowed"
            )
        return Scope(
            next(iter(tenants), None),
            kb_ids,
            both_principals,
            other.as_of or self.as_of,  # of the query
            other.known_at or self.known_at,
        )

    def metadata(self) -> dict[str, str]:
        """Return the metadata that puts a node into this scope.

        Raises:
            ConfigurationError: The scope has several knowledge bases; a node belongs to one. Or it
                has principals, for whom a node is not meant by that.
        """
        kb_ids = self.kb_ids or ()
        if len(kb_ids) > 1:
            raise ConfigurationError(f"a node lives in one knowledge base, got kb_ids={kb_ids}")
        if self.principals is not None:
            raise ConfigurationError(
                "a scope with principals can read and delete, but not add, since it does not see "
                "all that it may replace; add in a scope without them, and pass those who may see "
                "the document as allowed="
            )
        if self.as_of is not None or self.known_at is not None:
            raise ConfigurationError(
                "a scope with as_of or known_at only reads; pass the time for which a document "
                "holds as valid="
            )
        pairs = ((TENANT_KEY, self.tenant_id), (KB_KEY, next(iter(kb_ids), None)))
        return {key: value for key, value in pairs if value is not None}


def _visible_to(principals: tuple[str, ...]) -> Condition:
    """Return the condition that a node names none or one of the principals."""
    named = Compare(ALLOWED_KEY, FilterOperator.ANY, principals)
    unnamed = Compare(ALLOWED_KEY, FilterOperator.IS_EMPTY, None)
    return AnyOf((unnamed, named))  # engines recognise this form


def _outside(as_of: Moment | None, known_at: Moment | None) -> tuple[Condition, ...]:
    """Return the conditions of nodes that do not hold at one time, or were unknown at another."""
    times = ((as_of, VALID_FROM, VALID_TO), (known_at, KNOWN_FROM, KNOWN_TO))
    return tuple(
        part
        for when, start, end in times
        if when is not None and when != ANY_TIME
        for part in (
            Compare(start, FilterOperator.GT, str(when)),
            Compare(end, FilterOperator.LTE, str(when)),
        )
    )


def at_time(scope: Scope | None, as_of: Moment | None, known_at: Moment | None) -> Scope | None:
    """Return a scope for another time; the same for None.

    Examples:
        >>> at_time(Scope("acme"), "2021-09-01", None)
        Scope(tenant_id='acme', as_of='2021-09-01')

    """
    if as_of is None and known_at is None:
        return scope
    time = Scope(as_of=as_of, known_at=known_at)
    return time if scope is None else scope.narrowed(time)


def isolates(scope: Scope | None) -> bool:
    """Return whether a scope is given that separates, as a knowledge base may require."""
    return scope is not None and scope.isolates


def _common(first: Sequence[str] | None, second: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of both, in the order of the first; None stands for all."""
    if first is None or second is None:
        given = second if first is None else first
        return None if given is None else tuple(given)
    others = set(second)
    return tuple(name for name in first if name in others)


def principals_of(given: object, what: str) -> tuple[str, ...]:
    """Return principals, sorted and each once, or raise `ConfigurationError`.

    Examples:
        >>> principals_of(["user:ann", "group:hr"], "allowed")
        ('group:hr', 'user:ann')

    """
    listed = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    names: list[str] = list(given) if listed else []  # type: ignore[call-overload]  # iterable
    are_names = all(isinstance(name, str) and name.isprintable() and name.strip() for name in names)
    if not listed or not are_names:
        raise ConfigurationError(
            f"{what} must be a list of names of users and groups, such as ['user:ann', "
            f"'group:hr'], each of printable characters, got {given!r}"
        )
    return tuple(sorted(set(names)))


def without_allowed(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata, or the properties of a row of a graph, without the principals."""
    return {key: value for key, value in metadata.items() if key != ALLOWED_KEY}


def allowed_in(metadata: Mapping[str, object]) -> tuple[str, ...]:
    """Return the principals in the metadata of a stored node; empty for everyone."""
    allowed = metadata.get(ALLOWED_KEY)
    return tuple(allowed) if isinstance(allowed, list | tuple) else ()


def shown_to(scope: Scope | None, node: Node) -> Node:
    """Return a node that a scope may see, naming no principals but those of the scope.

    Who else may see it is not told; a scope without principals is trusted and sees all of them.
    The given node is not changed.

    Examples:
        >>> from llama_index.core.schema import TextNode
        >>> node = TextNode(metadata={"allowed": ["group:hr", "user:ann"]})
        >>> shown_to(Scope(principals=["user:ann"]), node).metadata
        {'allowed': ['user:ann']}

    """
    if scope is None or scope.principals is None or ALLOWED_KEY not in node.metadata:
        return node
    names = [name for name in allowed_in(node.metadata) if name in scope.principals]
    if names == node.metadata[ALLOWED_KEY]:
        return node
    return node.model_copy(update={"metadata": {**node.metadata, ALLOWED_KEY: names}})


def document_of(node: BaseNode) -> tuple[str, str | None, str | None] | None:
    """Return the document of a node: its id, tenant and knowledge base; None without one.

    The same id in another scope is another document.
    """
    return None if node.ref_doc_id is None else (node.ref_doc_id, *_scope_ids(node))


def source_of_node(node: BaseNode) -> tuple[str, str | None, str | None] | None:
    """Return the ``file_path`` of a node with its tenant and knowledge base, or `document_of`."""
    source = source_in(node.metadata)
    return (source, *_scope_ids(node)) if source else document_of(node)


def source_in(metadata: Mapping[str, object]) -> str:
    """Return the source file in the metadata; empty if there is none."""
    source = metadata.get(SOURCE_KEY)
    return source if isinstance(source, str) else ""


def page_in(metadata: Mapping[str, object]) -> object:
    """Return the page in the metadata, which LlamaIndex's readers call ``page_label``, or None."""
    return metadata.get(PAGE_KEY, metadata.get("page_label"))


def _scope_ids(node: BaseNode) -> tuple[str | None, str | None]:
    tenant_id, kb_id = (node.metadata.get(key) for key in (TENANT_KEY, KB_KEY))
    # Ids of a scope are strings.
    return (
        tenant_id if isinstance(tenant_id, str) else None,
        kb_id if isinstance(kb_id, str) else None,
    )


@checked_arguments
@dataclass
class Query(QueryBundle):
    """A LlamaIndex ``QueryBundle`` with filters, scope, limits and context.

    Every retriever accepts it in place of a string or a ``QueryBundle``. Treat it as immutable: use
    `but` for a changed copy.

    Args:
        filters: Further conditions on metadata, in addition to the retriever's own.
        scope: The accessible nodes; narrows the scope of the retriever.
        top_k: Number of hits to return, at least 1; None for the retriever's own number.
        timeout_s: Seconds for the whole answer, including composites; None for no limit.
        context: Values for the application's own stages, by name.
        at_least: Minimum number of hits that a composite requests from each leg, so that it can
            return ``top_k``; a leg returns its own number if that is larger. Set by composites.
        exact: Whether vector searches compare every embedding instead of using an approximate
            index; keyword searches are always exact.
        fields: The fields of keyword searches, with weights; None for those of the retriever, or of
            the `Schema`.
        correct: Whether a knowledge base corrects typing errors: a word that no visible node has is
            replaced by the nearest that one has, which ``corrected`` of the result says. Words in
            quotation marks, in capitals, with digits and in code stay.
        interpret: Whether a knowledge base makes filters of the words that state them, such as
            "after 2010", which ``hints`` and ``details`` of the result say; see
            `KnowledgeBase.interpret`.
        is_curated: Whether it is a part of a query that a knowledge base has corrected, and whose
            hits it will order. Set by it.
        synonyms: What keyword searches also look for, with half of the weight. Set by it.
        as_of: The time for which it asks, as of `Scope`; it becomes part of the scope. With None a
            knowledge base ranks what holds now before what no longer does.
        known_at: The time at which it was known, as of `Scope`; likewise.

    Raises:
        ConfigurationError: A value is out of range.
        InvalidFilterError: The filters are invalid.

    Examples:
        >>> Query("annual leave", top_k=3).top_k
        3

    """

    filters: MetadataFilters | None = None
    scope: Scope | None = None
    top_k: int | None = None
    timeout_s: float | None = None
    context: Mapping[str, object] = field(default_factory=dict)
    at_least: int | None = None
    exact: bool = False
    fields: Mapping[str, float] | None = None
    correct: bool = True
    interpret: bool = False
    is_curated: bool = False
    synonyms: tuple[str, ...] = ()
    as_of: Moment | None = None
    known_at: Moment | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.query_str, str):
            raise ConfigurationError(
                f"a query is a string, or a QueryBundle or Query of one, got {self.query_str!r}; "
                "several queries go to retrieve_many"
            )
        self.query_str = valid_text(self.query_str)  # as stored texts are
        for number in (self.top_k, self.at_least):
            if number is not None:
                check_count(number, "top_k")
        if self.timeout_s is not None:
            check_seconds(self.timeout_s, "timeout_s", otherwise="for no limit leave it out")
        if self.scope is not None:
            check_scope(self.scope)
        self.scope = at_time(self.scope, self.as_of, self.known_at)
        of_type(self.context, Mapping, "context")
        if self.fields is not None:
            check_weights(self.fields, "fields")
        of_type(self.correct, bool, "correct")
        of_type(self.interpret, bool, "interpret")
        self.filter = None if self.filters is None else parse_filters(self.filters)

    if not TYPE_CHECKING:  # which would otherwise accept any name

        def __getattr__(self, name: str) -> object:
            """Raise the error of an unknown attribute, with the right name of the text."""
            advice = "; write query_str" if name == "text" else ""
            message = f"{type(self).__name__!r} object has no attribute {name!r}{advice}"
            raise AttributeError(message, name=name, obj=self)

    @classmethod
    def of(cls, query: str | QueryBundle) -> "Query":
        """Return the query as a `Query`; a `Query` is returned unchanged."""
        if isinstance(query, Query):
            return query
        if isinstance(query, QueryBundle):
            return cls(
                query.query_str, query.image_path, query.custom_embedding_strs, query.embedding
            )
        return cls(query)

    def but(  # noqa: PLR0913 - what a search takes
        self,
        *,
        filters: MetadataFilters | None = None,
        scope: Scope | None = None,
        top_k: int | None = None,
        timeout_s: float | None = None,
        context: Mapping[str, object] | None = None,
        fields: Mapping[str, float] | None = None,
        correct: bool | None = None,
        interpret: bool | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
    ) -> "Query":
        """Return a copy; filters and scope are narrowed, other arguments replace values."""
        given: dict[str, object] = {"fields": fields, "correct": correct, "interpret": interpret}
        given |= {"top_k": top_k, "timeout_s": timeout_s, "as_of": as_of, "known_at": known_at}
        changes: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
        if filters is not None:
            changes["filters"] = narrowed_filters(self.filters, filters)
        if scope is not None:
            changes["scope"] = check_scope(scope).narrowed(self.scope)
        if context is not None:
            changes["context"] = {**self.context, **of_type(context, Mapping, "context")}
        return replace(self, **changes)

    def for_child(self, *, top_k: int | None = None) -> Self:
        """Return a copy for a leg of a composite, without the caller's ``top_k`` and time limit.

        A leg returns ``top_k`` hits if given, else its own number, but at least ``at_least``.
        """
        child = object.__new__(type(self))
        # The deadline is part of the execution context.
        vars(child).update(vars(self), top_k=top_k, timeout_s=None)
        return child

    @property
    def condition(self) -> Condition | None:
        """The condition that every hit must satisfy: the scope and the filters."""
        return self.filter if self.scope is None else both(self.scope.condition, self.filter)

    @property
    def restricts_passages(self) -> bool:
        """Whether filters or a time leave out passages that the scope sees in a graph."""
        scope = self.scope
        is_timed = scope is not None and (scope.as_of is not None or scope.known_at is not None)
        return self.filters is not None or is_timed

    @property
    def is_blank(self) -> bool:
        """Whether the query has neither text nor embedding."""
        return self.embedding is None and not "".join(self.embedding_strs).strip()


class SearchOptions(TypedDict, total=False):
    """Options of one search; see ``Retriever.search``."""

    filters: MetadataFilters | None
    scope: Scope | None
    top_k: int | None
    timeout_s: float | None
    context: Mapping[str, object] | None
    fields: Mapping[str, float] | None
    correct: bool | None
    interpret: bool | None
    as_of: Moment | None
    known_at: Moment | None


def described_binding(query: Query) -> list[str]:
    """Return the scope and the filters of a query in words, one line each."""
    return [
        *([] if query.scope is None else [repr(query.scope)]),
        *([] if query.filters is None else [describe_filters(query.filters)]),
        *([] if query.fields is None else [f"fields {dict(query.fields)}"]),
    ]


def reworded(query: Query, text: str) -> Query:
    """Return the query with another text and without the embedding of the first text."""
    return replace(query, query_str=text, custom_embedding_strs=None, embedding=None)


def check_top_k(top_k: int) -> int:
    """Return the number of hits if it is valid, or raise `ConfigurationError`."""
    return check_count(top_k, "top_k")


def check_scope(scope: Scope) -> Scope:
    """Return the argument if it is a `Scope`, or raise `ConfigurationError`."""
    instead = "write Scope('acme') for a tenant, or Scope(kb_ids=['handbook']) for knowledge bases"
    return of_type(scope, Scope, "a scope", instead=instead)


def check_principals(scope: Scope | None, where: str) -> None:
    """Raise `ScopeRequiredError` if a scope has no principals."""
    if scope is None or scope.principals is None:
        raise ScopeRequiredError(
            f"{where} requires principals, the user and the user's groups; pass "
            "scope=Scope(tenant_id, principals=['user:ann', ...]), with an empty list for a user "
            "who may see only what everyone may"
        )


def narrowed_filters(
    first: MetadataFilters | None, second: MetadataFilters | None
) -> MetadataFilters | None:
    """Return the conjunction of two LlamaIndex filters."""
    if first is None or second is None:
        return first or second
    return MetadataFilters(filters=[first, second], condition=FilterCondition.AND)
