"""`IndexParams`: the settings of Elasticsearch, checked before anything is created."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from llama_retrieval_ext.errors import ConfigurationError, DimensionMismatchError
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.config import (
    EngineParams,
    StoreConfig,
    check_distance,
    check_names,
)

COUNTS: Final = ("number_of_shards", "number_of_replicas")
_BODY: Final = ("settings", "mappings")
_VECTOR: Final = ("index_options", "dims", "similarity")
_PREFIX: Final = "index."
SIMILARITY_NAMES: Final[Mapping[Distance, str]] = {
    "cosine": "cosine",
    "dot": "max_inner_product",
    "euclid": "l2_norm",
}


@dataclass(frozen=True, kw_only=True)
class IndexParams(EngineParams):
    """Settings that only Elasticsearch has.

    All but ``num_candidates`` apply when the index is created. For an existing index they must
    equal the recorded ones, or be left out. ``body``, as in Elasticsearch's "create index", is
    another form of the same settings: see `params_of_body`.

    Attributes:
        number_of_shards: Shards of the index; None for the server's default, 1.
        number_of_replicas: Copies of each; None for the server's default, 1.
        index_options: How embeddings are indexed. ``hnsw``, the default, keeps scores exact;
            ``int8_hnsw`` and similar types need at most a quarter of the memory, and score in
            that precision; ``flat`` compares every embedding.
        analyzer: One of the server's analysers, or of ``settings``, for keyword search, in place of
            our tokenizer.
        routing: Whether all nodes of a tenant are on one shard, and its queries search only that
            shard; for many tenants, together with ``number_of_shards``. None for the recorded
            value, or False.
        num_candidates: Minimum number of nodes that each shard examines for the nearest; twice
            ``top_k`` if that is more. Elastic recommends to start with 100, which misses up to 3 of
            the nearest 10 for a question unlike the texts; 200 take half a millisecond more.
        settings: Further index settings, such as ``analysis``.
        dims: Dimension of the embeddings, as a ``body`` has it; must be that of the nodes.
        similarity: Similarity of the embeddings, likewise; must be that of the store's distance.

    Raises:
        ConfigurationError: A value is out of range, or belongs to the store.
    """

    engine = "Elasticsearch"
    at_creation = (*COUNTS, "index_options", "analyzer", "routing", "settings")

    number_of_shards: int | None = None
    number_of_replicas: int | None = None
    index_options: Mapping[str, Any] | None = None
    analyzer: str | None = None
    routing: bool | None = None
    num_candidates: int = 200
    settings: Mapping[str, Any] = field(default_factory=dict)
    dims: int | None = None
    similarity: str | None = None

    def __post_init__(self) -> None:
        least = {"number_of_shards": 1, "number_of_replicas": 0, "num_candidates": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < lowest):
                raise ConfigurationError(f"{name} must be at least {lowest}, got {value!r}")
        for name in self.settings:
            if name.removeprefix(_PREFIX).split(".")[0] == "similarity":
                raise ConfigurationError(
                    f"settings has {name!r}, which the store sets itself: BM25 as on every engine; "
                    "leave it out"
                )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return checked settings, or raise `ConfigurationError`."""
        direct = dict(settings)
        if "body" not in direct:
            return super().of(direct)
        of_body = params_of_body(direct.pop("body"))
        for name in sorted(direct.keys() & of_body.keys()):
            if direct[name] != of_body[name]:
                raise ConfigurationError(
                    f"store_params has {name}={direct[name]!r}, and its body has "
                    f"{of_body[name]!r}; leave one out"
                )
        return super().of({**of_body, **direct})

    def check(self, config: StoreConfig, where: object) -> None:
        """Raise if the dimension or the similarity is another than that of the store."""
        if self.dims is not None and config.dimension not in (None, self.dims):
            raise DimensionMismatchError(
                f"the body has dims={self.dims}, and {where} takes {config.dimension}; leave dims "
                "out"
            )
        check_distance(self.similarity, config, SIMILARITY_NAMES, what="similarity", where=where)

    @property
    def for_records(self) -> "IndexParams":
        """The settings of an index of records."""
        return IndexParams(
            number_of_shards=1,
            number_of_replicas=self.number_of_replicas,
            index_options={"type": "flat"},
        )


def params_of_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a ``body`` of Elasticsearch's "create index".

    Taken are all index settings but ``similarity``, the index options of the vector field and the
    analyser of the text field; dimension and similarity must be the store's. Other fields are
    refused, because the store has a mapping of its own, with exact filters on every key.

    Examples:
        >>> vector = {"type": "dense_vector", "index_options": {"type": "int8_hnsw"}}
        >>> params_of_body({
        ...     "settings": {"index": {"number_of_shards": 3}},
        ...     "mappings": {"properties": {"embedding": vector}},
        ... })
        {'number_of_shards': 3, 'index_options': {'type': 'int8_hnsw'}}

    """
    check_names(body, _BODY, where="body")
    settings = settings_of_body(body)
    taken: dict[str, Any] = {name: settings.pop(name) for name in COUNTS if name in settings}
    mappings = body.get("mappings") or {}
    check_names(mappings, ("properties",), where="mappings")
    for name, mapping in (mappings.get("properties") or {}).items():
        for key, value in _of_field(name, mapping).items():
            if taken.setdefault(key, value) != value:
                raise ConfigurationError(f"two fields of the body have another {key} each")
    return {**taken, **({"settings": settings} if settings else {})}


def settings_of_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the index settings in a body, without ``index`` before their names."""
    given = dict(body.get("settings") or {})
    nested = given.pop("index", {})
    return {name.removeprefix(_PREFIX): value for name, value in [*given.items(), *nested.items()]}


def _of_field(name: str, mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the mapping of a field; raise if one would be ignored."""
    where = f"the field {name!r} of the body"
    match mapping.get("type"):
        case "dense_vector":
            check_names(mapping, ("type", "index", *_VECTOR), where=where)
            if mapping.get("index") is False:
                raise ConfigurationError(f"{where} has index=False; for exact searches write flat")
        case "text":
            check_names(mapping, ("type", "analyzer"), where=where)
        case kind:
            raise ConfigurationError(
                f"{where} has the type {kind!r}; a store opened by URL keeps metadata in fields of "
                "its own, with exact filters on every key: leave the field out"
            )
    return {key: mapping[key] for key in (*_VECTOR, "analyzer") if key in mapping}
