"""`KnowledgeBaseConfig`: the recorded configuration of a knowledge base."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from llama_retrieval_ext.errors import (
    ConfigurationError,
    GraphRequiredError,
    ModelMismatchError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.wording import counted

FORMAT: Final = 4
# Name in `KnowledgeBaseConfig.params`, on engines that have no setting for it.
MANY_TENANTS: Final = "many_tenants"


@dataclass(frozen=True, slots=True)
class KnowledgeBaseConfig:
    """The configuration of a knowledge base, as recorded or as requested by a caller."""

    embed_model: str  # its name
    tokenizer: str = ""  # as JSON; empty if the engine has its own
    require_scope: bool | None = False  # None in a request keeps the recorded setting
    dimension: int | None = None  # None until the first vector is stored
    format: int = FORMAT
    removing: bool = False
    params: str = ""  # engine settings as JSON, applied when the collection is created
    graph: str = ""  # its URL; empty for none
    model_record: str = (
        ""  # JSON, by which `RecordedEmbedding` builds the model; empty if it cannot
    )
    splitting: str = ""  # how the last documents were split; empty before the first
    # Share of vector search in hybrid search; None for that of the model.
    vector_share: float | None = None
    schema: str = ""  # its fields as JSON; empty for the default
    cursor_key: str = ""  # the secret that cursors are signed by
    history: bool = False  # whether what was known before an update or a deletion is kept
    learned: str = ""  # weights and adapter as YAML; empty for none
    graph_key: str = ""  # distinguishes its rows from those of others in the same graph

    def check_format(self, where: str) -> None:
        """Raise if another version wrote it."""
        check_format(self.format, where)

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
        described = replace(
            self, schema=requested.schema or self.schema, history=requested.history or self.history
        )
        if self.dimension is None:  # nothing has been indexed yet
            params = {**self.grouping, **json.loads(requested.params or "{}")}
            kept = replace(
                described,
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
        return described

    @property
    def grouping(self) -> Mapping[str, bool]:
        """The recorded ``many_tenants``; empty without one, or if the engine has a setting."""
        params = json.loads(self.params or "{}")
        return {name: value for name, value in params.items() if name == MANY_TENANTS}

    def as_new(self) -> "KnowledgeBaseConfig":
        """Return the configuration to record for a new knowledge base."""
        new = replace(
            self,
            dimension=None,
            require_scope=bool(self.require_scope),
            format=FORMAT,
            cursor_key=secrets.token_hex(16),
        )
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


def config_from(recorded: Mapping[str, object]) -> KnowledgeBaseConfig | None:
    """Return the configuration from a ledger's record; None if it is empty."""
    # A newer version may record other fields; `check_format` rejects it.
    fields = {name: recorded[name] for name in KnowledgeBaseConfig.__slots__ if name in recorded}
    return KnowledgeBaseConfig(**fields) if fields else None  # type: ignore[arg-type]  # from JSON


def check_format(format_: int, where: str) -> None:
    """Raise `StoreFormatError` if another version wrote a ledger."""
    if format_ != FORMAT:
        raise StoreFormatError(
            f"{where} has format {format_}, this version reads {FORMAT}; open it with the version "
            "that wrote it, or add its documents to a new knowledge base"
        )


def unknown_nodes_error(where: str, count: int) -> StoreFormatError:
    """Return the error for a store with nodes but without a ledger."""
    return StoreFormatError(
        f"{where} holds {counted(count, 'node')} not added through a knowledge base; search it "
        "with VectorRetriever and KeywordRetriever, or add the documents to a new one"
    )
