"""The ledger: the configuration of a knowledge base, and its documents, which `Journal` changes."""

import json
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from llama_retrieval_ext.errors import (
    ConfigurationError,
    GraphRequiredError,
    ModelMismatchError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.text.normalization import spellings
from llama_retrieval_ext.wording import counted

_FORMAT: Final = 2
# Name in `KnowledgeBaseConfig.params`, on engines that have no setting for it.
MANY_TENANTS: Final = "many_tenants"


@dataclass(frozen=True, slots=True)
class KnowledgeBaseConfig:
    """The configuration of a knowledge base, as recorded or as requested by a caller."""

    embed_model: str  # its name
    tokenizer: str = ""  # as JSON; empty if the engine has its own
    require_scope: bool | None = False  # None in a request keeps the recorded setting
    dimension: int | None = None  # None until the first vector is stored
    format: int = _FORMAT
    removing: bool = False
    params: str = ""  # engine settings as JSON, applied when the collection is created
    graph: str = ""  # its URL; empty for none
    model_record: str = (
        ""  # JSON, by which `RecordedEmbedding` builds the model; empty if it cannot
    )
    splitting: str = ""  # how the last documents were split; empty before the first
    graph_key: str = ""  # distinguishes its rows from those of others in the same graph

    def check_format(self, where: str) -> None:
        """Raise if another version wrote it."""
        if self.format != _FORMAT:
            raise StoreFormatError(
                f"{where} has format {self.format}, this version reads {_FORMAT}; open it with the "
                "version that wrote it, or add its documents to a new knowledge base"
            )

    def opened(self, requested: "KnowledgeBaseConfig", where: str) -> "KnowledgeBaseConfig":
        """Return the configuration to keep when a knowledge base is opened, or raise.

        The caller may require a scope although the knowledge base does not; this then applies to
        this caller only.
        """
        self.check_format(where)
        if self.removing:
            raise StoreUnavailableError(
                f"{where} is being removed, or an earlier removal was interrupted; to finish it: "
                f"KnowledgeBase.remove({where!r})"
            )
        self._check_model(requested, where)
        self._check_grouping(requested, where)
        if self.require_scope and requested.require_scope is False:
            raise ConfigurationError(
                f"{where} was made with require_scope=True, and is opened with "
                "require_scope=False; leave it out, and give queries a scope"
            )
        if self.graph and not requested.graph:
            raise GraphRequiredError(
                f"{where} has the graph {self.graph}, and what is written to one has to be written "
                f"to the other; open it with graph={self.graph!r}",
                self.graph,
            )
        same_graph = is_same_graph(self.graph, requested.graph)
        if self.dimension is None:  # nothing has been indexed yet
            params = {**self.grouping, **json.loads(requested.params or "{}")}
            kept = replace(
                self,
                tokenizer=requested.tokenizer,
                params=json.dumps(params, sort_keys=True) if params else "",
            )
            return kept if same_graph else _with_graph(kept, requested.graph)
        if not same_graph:
            made, advice = "without a graph", "to get one with a graph, copy it"
            if self.graph:
                made, advice = f"with the graph {self.graph}", "open it with the first, or copy it"
            raise ConfigurationError(
                f"{where} was made {made}, and is opened with {requested.graph}; {advice}: "
                f"copy_knowledge_base({where!r}, new_url, graph=...)"
            )
        if self.tokenizer != requested.tokenizer:
            raise ConfigurationError(
                f"{where} was indexed with the tokenizer {self.tokenizer}, and is opened with "
                f"{requested.tokenizer}; leave tokenizer= out, or make a new knowledge base"
            )
        return self

    @property
    def grouping(self) -> Mapping[str, bool]:
        """The recorded ``many_tenants``; empty without one, or if the engine has a setting."""
        params = json.loads(self.params or "{}")
        return {name: value for name, value in params.items() if name == MANY_TENANTS}

    def as_new(self) -> "KnowledgeBaseConfig":
        """Return the configuration to record for a new knowledge base."""
        new = replace(self, dimension=None, require_scope=bool(self.require_scope), format=_FORMAT)
        return _with_graph(new, self.graph) if self.graph else new

    def _check_grouping(self, requested: "KnowledgeBaseConfig", where: str) -> None:
        grouped = self.grouping.get(MANY_TENANTS, False)
        if self.dimension is not None and requested.grouping.get(MANY_TENANTS, grouped) != grouped:
            raise ConfigurationError(
                f"{where} was made with many_tenants={grouped}, and is opened with "
                f"many_tenants={not grouped}, which counts only when it is made; leave it out"
            )

    def _check_model(self, requested: "KnowledgeBaseConfig", where: str) -> None:
        if requested.embed_model and self.embed_model != requested.embed_model:
            raise ModelMismatchError(
                f"{where} was made with the embedding model {self.embed_model!r}, and is opened "
                f"with {requested.embed_model!r}; open it with the first, or embed its texts anew "
                f"in a new place: copy_knowledge_base({where!r}, new_url, embed_model=...)"
            )
        dimensions = {self.dimension, requested.dimension}
        if None not in dimensions and len(dimensions) > 1:
            raise ModelMismatchError(
                f"{where} holds vectors of dimension {self.dimension}, and is opened with "
                f"{requested.embed_model!r}, which makes vectors of dimension "
                f"{requested.dimension}; open it with the model that made those, or copy it to a "
                f"new place: copy_knowledge_base({where!r}, new_url, embed_model=...)"
            )


def is_same_graph(recorded: str, given: str) -> bool:
    """Return whether two URLs name one graph; options such as credentials do not count.

    Examples:
        >>> is_same_graph("neo4j://db/kb?user_env=USER", "neo4j://db:7687/kb")
        True

    """
    return _identity(recorded) == _identity(given)


def _identity(url: str) -> object:
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or 7687, parts.path.strip("/")


def _with_graph(config: KnowledgeBaseConfig, url: str) -> KnowledgeBaseConfig:
    key = config.graph_key or secrets.token_hex(8)
    return replace(config, graph=url, graph_key=key)


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document in a knowledge base.

    Attributes:
        document_id: Its id; ``ref_doc_id`` of its nodes.
        source: The file that it came from; its own id if there is none.
        tenant_id: Its tenant; None if it has none.
        kb_id: Its knowledge base within the tenant; None if it has none.
        n_nodes: Number of its nodes.
        allowed: The principals who may see it, of a scope with principals only its own; empty for
            everyone in its scope.
    """

    document_id: str
    source: str
    tenant_id: str | None
    kb_id: str | None
    n_nodes: int
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredSource:
    """The origin of documents in a knowledge base: a file, or the document itself.

    Attributes:
        source: The path of the file, or the id of the document.
        documents: Number of its documents.
        nodes: Number of their nodes.
        scope: The scope that it belongs to; None for none.
    """

    source: str
    documents: int
    nodes: int
    scope: Scope | None


class Entry(NamedTuple):
    """The ledger's entry for a document; its digest is that of its version."""

    key: DocumentKey
    digest: str
    source: str
    n_nodes: int
    allowed: tuple[str, ...] = ()


class SourceKey(NamedTuple):
    """The identity of a source: its scope, whose parts may be empty, and its name."""

    tenant: str
    kb: str
    source: str


class SyncedSource(NamedTuple):
    """A source as `KnowledgeBase.sync` found it; it is the same while all fields are."""

    owner: str  # the name and the scope of the sync
    key: SourceKey
    size: int = -1
    mtime_ns: int = -1  # -1 if a later edit may not change it
    content: str = ""  # digest of the file; empty if it is unknown
    stamp: str = ""  # digest of its stored documents; empty until they are complete
    allowed: str = ""  # as JSON, the principals of its documents, for when they are not stored
    earlier: str = ""  # the restricted source of its content, until somebody is named here


def principals_json(allowed: Iterable[tuple[str, ...]]) -> str:
    """Return the principals of documents as JSON, two if they differ; "" for everyone."""
    names = sorted({*allowed} - {()})[:2]
    return json.dumps(names) if names else ""


def unknown_nodes_error(where: str, count: int) -> StoreFormatError:
    """Return the error for a store with nodes but without a ledger."""
    return StoreFormatError(
        f"{where} holds {counted(count, 'node')} not added through a knowledge base; search it "
        "with VectorRetriever and KeywordRetriever, or add the documents to a new one"
    )


class Ledger(ABC):
    """The configuration of a knowledge base and its documents."""

    _admitted: tuple[KnowledgeBaseConfig, str] | None = None

    @abstractmethod
    def config(self) -> KnowledgeBaseConfig | None:
        """Return the configuration; None if the knowledge base is not set up yet."""

    @abstractmethod
    def update_config(
        self, change: Callable[[KnowledgeBaseConfig | None], KnowledgeBaseConfig | None]
    ) -> KnowledgeBaseConfig | None:
        """Replace the configuration by the result of `change`; return the new one.

        `change` is called again if another writer has changed the configuration meanwhile.
        """

    def admit(self, requested: KnowledgeBaseConfig, where: str) -> bool:
        """Check the caller's configuration; return False if there is no knowledge base yet."""
        recorded = self.config()
        if requested.require_scope is None:
            # Fixed now: if another process sets it up with True, this one must fail.
            requires = recorded is not None and recorded.require_scope
            requested = replace(requested, require_scope=requires)
        self._admitted = requested, where
        if recorded is None:
            return False
        if recorded.opened(requested, where) != recorded:
            self.update_config(lambda found: found and found.opened(requested, where))
        return True

    @property
    def requires_scope(self) -> bool:
        """Whether every operation of the admitted caller needs a scope."""
        return self._admitted is not None and bool(self._admitted[0].require_scope)

    def dimension(self) -> int | None:
        """Return the dimension of the vectors; None until the first is stored."""
        config = self.config()
        return None if config is None else config.dimension

    def record_dimension(self, dimension: int) -> None:
        """Record the dimension of the vectors before the first is stored.

        The first writer sets the tokenizer and whether all callers need a scope. Raise if another
        process has set it up with other settings since it was opened.
        """

        def decided(recorded: KnowledgeBaseConfig | None) -> KnowledgeBaseConfig | None:
            if recorded is None or self._admitted is None:
                return recorded
            requested, where = self._admitted
            recorded.opened(replace(requested, dimension=dimension), where)
            kept = recorded.opened(requested, where)
            required = kept.require_scope or requested.require_scope
            return replace(kept, dimension=dimension, require_scope=required)

        self.update_config(decided)

    def forget_dimension(self) -> None:
        """Forget the dimension if there are no nodes: the next ones may have another."""
        if self.n_nodes_at_rest(exact=True) == 0 and self.dimension() is not None:
            self.update_config(lambda config: config and replace(config, dimension=None))

    def record_splitting(self, splitting: str) -> None:
        """Record how documents are split from now on."""
        config = self.config()
        if config is not None and config.splitting != splitting:
            self.update_config(lambda found: found and replace(found, splitting=splitting))

    def check_exists(self) -> None:  # noqa: B027 - a file that is open exists
        """Raise StoreClosedError if the knowledge base was removed since it was opened."""

    @abstractmethod
    def check_unwritten(self, where: str) -> None:
        """Raise StoreUnavailableError if another process is writing."""

    @abstractmethod
    def n_nodes_at_rest(self, *, exact: bool = False) -> int | None:
        """Return the expected number of nodes in the store; None during writes."""

    @abstractmethod
    def digests(self, keys: Iterable[DocumentKey]) -> list[str | None]:
        """Return the digest of each document, in order; None for one that is not stored."""

    @abstractmethod
    def allowed(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, tuple[str, ...]]:
        """Return the principals of the documents that are stored and visible to some only."""

    @abstractmethod
    def node_ids(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, list[str]]:
        """Return the ids of each document's nodes, in ascending order."""

    @abstractmethod
    def doubt_all(self) -> None:
        """Mark every document as changed, so that adding it again writes it again."""

    @abstractmethod
    def entries(self) -> list[Entry]:
        """Return all documents that are not being written, in insertion order."""

    @abstractmethod
    def named(self, name: str, scope: Scope | None) -> list[Entry]:
        """Return the documents with this id or source in a scope; None means in no scope."""

    def find(self, name: str, scope: Scope | None) -> list[Entry]:
        """Return the documents with this id or source, which may be a relative path.

        An id may come from elsewhere and look like any path, so ``~`` is not expanded. An empty
        name is an error: it would be the source of all documents that have none.
        """
        if not isinstance(name, str) or not name:
            raise ConfigurationError(
                f"name the path of a file or the id of a document, got {name!r}"
            )
        paths = [] if "\0" in name else [os.path.realpath(name)]  # no path has a NUL
        names = dict.fromkeys(spelling for path in (name, *paths) for spelling in spellings(path))
        found = (self.named(name, scope) for name in names)
        return next(filter(None, found), [])

    @abstractmethod
    def visible(self, scope: Scope | None) -> list[Entry]:
        """Return the documents visible to a scope in insertion order; without a scope, all."""

    @abstractmethod
    def synced(self, owner: str | None = None) -> list[SyncedSource]:
        """Return the sources that a sync has recorded; None for those of all."""

    @abstractmethod
    def record_synced(
        self, sources: Sequence[SyncedSource], *, forget: Sequence[SyncedSource] = ()
    ) -> None:
        """Record sources of a sync, replacing earlier records, and forget others."""

    def remember_principals(self, entries: Iterable[Entry]) -> None:
        """Record who sees documents that will be deleted, for when a sync finds them again."""
        seen_by: dict[SourceKey, list[tuple[str, ...]]] = {}
        for (tenant, kb, _), _, source, _, allowed in entries:
            if allowed:
                seen_by.setdefault(SourceKey(tenant, kb, source), []).append(allowed)
        if seen_by:
            found = [each for each in self.synced() if each.key in seen_by]
            self.record_synced(
                [each._replace(allowed=principals_json(seen_by[each.key])) for each in found]
            )

    @abstractmethod
    def count(self) -> tuple[int, int]:
        """Return the number of documents and nodes."""

    def compact(self) -> None:  # noqa: B027 - servers do it themselves
        """Remove what is left of deleted records."""

    @abstractmethod
    def close(self) -> None:
        """Close the ledger's resources."""

    def documents(self, scope: Scope | None) -> list[StoredDocument]:
        """Return the documents visible to a scope, by id; without a scope, all."""
        entries = sorted(
            self.visible(scope), key=lambda each: (each.key.ref, each.key.tenant, each.key.kb)
        )
        principals = None if scope is None else scope.principals
        return [
            StoredDocument(
                *(key.ref, source, key.tenant or None, key.kb or None, n_nodes),
                allowed if principals is None else tuple(a for a in allowed if a in principals),
            )
            for key, _, source, n_nodes, allowed in entries
        ]

    def sources(self, scope: Scope | None) -> list[StoredSource]:
        """Return the sources visible to a scope, by name; without a scope, all."""
        counts: dict[tuple[str, str, str], list[int]] = {}
        for key, _, source, n_nodes, _ in self.visible(scope):
            counts.setdefault((source, key.tenant, key.kb), []).append(n_nodes)
        return [
            StoredSource(source, len(each), sum(each), _scope_of(tenant, kb))
            for (source, tenant, kb), each in sorted(counts.items())
        ]

    def n_sources(self) -> int:
        """Return the number of sources."""
        return len(self.sources(None))

    def visible_ids(self, scope: Scope | None, limit: int | None = None) -> list[str]:
        """Return the first node ids visible to a scope, in ascending order; without one, of any."""
        ids = self.node_ids(each.key for each in self.visible(scope))
        return sorted(node_id for own in ids.values() for node_id in own)[:limit]


def config_from(recorded: Mapping[str, object]) -> KnowledgeBaseConfig | None:
    """Return the configuration from a ledger's record; None if it is empty."""
    # A newer version may record other fields; `check_format` rejects it.
    fields = {name: recorded[name] for name in KnowledgeBaseConfig.__slots__ if name in recorded}
    return KnowledgeBaseConfig(**fields) if fields else None  # type: ignore[arg-type]  # from JSON


def _scope_of(tenant: str, kb: str) -> Scope | None:
    # Metadata may contain a blank name; a scope cannot.
    tenant, kb = tenant.strip() and tenant, kb.strip() and kb
    return Scope(tenant or None, [kb] if kb else None) if tenant or kb else None
