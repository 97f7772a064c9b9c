"""`Scope`: the nodes that a query may see, and the metadata by which they are told apart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext.checks import Part, of_type
from llama_retrieval_ext.dates import KNOWN_FROM, KNOWN_TO, VALID_FROM, VALID_TO, Moment, moment_of
from llama_retrieval_ext.errors import ConfigurationError, ScopeError, ScopeRequiredError
from llama_retrieval_ext.filters import SCOPE_KEYS, AllOf, AnyOf, Compare, Condition, Not, matches
from llama_retrieval_ext.parameters import Check

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
