"""`MilvusParams`: the settings of Milvus, checked before anything is created."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.config import (
    EngineParams,
    StoreConfig,
    check_distance,
    check_names,
)

METRICS: Final[Mapping[Distance, str]] = {"cosine": "COSINE", "dot": "IP", "euclid": "L2"}
# Milvus Lite accepts other types without an error, but then searches without an index.
_LITE_INDEX_TYPES: Final = ("FLAT", "HNSW", "HNSW_SQ", "IVF_FLAT", "IVF_SQ8", "AUTOINDEX")
_INDEX: Final = ("index_type", "metric_type", "params")
# Building parameters by index type; Milvus ignores some unknown ones. It checks other types itself.
_HNSW: Final = ("M", "efConstruction")
_REFINED: Final = ("refine", "refine_type")
_BUILD_PARAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "AUTOINDEX": (),
    "FLAT": (),
    "HNSW": _HNSW,
    "HNSW_SQ": (*_HNSW, "sq_type", *_REFINED),
    "HNSW_PQ": (*_HNSW, "m", "nbits", *_REFINED),
    "HNSW_PRQ": (*_HNSW, "m", "nbits", "nrq", *_REFINED),
    "IVF_FLAT": ("nlist",),
    "IVF_SQ8": ("nlist",),
    "IVF_PQ": ("nlist", "m", "nbits"),
}
# Searching parameters by the beginning of an index type, besides those of every type.
_SEARCH_PARAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "FLAT": (),
    "HNSW": ("ef", "refine_k"),
    "IVF": ("nprobe", "max_empty_result_buckets", "refine_k", "rbq_query_bits"),
    "SCANN": ("nprobe", "reorder_k"),
    "DISKANN": ("search_list",),
    "AUTOINDEX": ("level", "ef", "nprobe"),
}
_RANGE: Final = ("radius", "range_filter")


def check_index_params(index: Mapping[str, Any], *, lite: bool) -> None:
    """Raise unless these are index parameters as in Milvus's ``create_index``, each optional."""
    check_names(index, _INDEX, where="index_params")
    index_type = index.get("index_type")
    if index_type is None and index.get("params"):
        raise ConfigurationError("index_params has params without the index_type they belong to")
    names = _BUILD_PARAMS.get(str(index_type))
    if names is not None:
        check_names(index.get("params") or {}, names, where=f"params of {index_type}")
    if lite and index_type not in (None, *_LITE_INDEX_TYPES):
        raise ConfigurationError(
            f"Milvus Lite has no index_type {index_type!r}; it has {', '.join(_LITE_INDEX_TYPES)}. "
            "Leave it out, or use a Milvus server"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MilvusParams(EngineParams):
    """Settings that only Milvus has.

    All but ``search_params`` apply when the collection is created. For an existing collection they
    must equal the recorded ones, or be left out.

    Attributes:
        index_params: Index of the embeddings, as in Milvus's ``create_index``: ``{"index_type":
            "HNSW", "metric_type": "COSINE", "params": {"M": 16, "efConstruction": 200}}``; each
            part may be left out. The default is ``AUTOINDEX``, and on Milvus Lite ``FLAT``, which
            is exact, and faster there. The metric is that of the store's distance.
        search_params: Parameters of searches in it, such as ``{"nprobe": 32}``; HNSW's ``ef`` is
            raised to the number of hits.
        consistency_level: ``Session``, the default, lets a client read its own writes; or
            ``Strong``, ``Bounded`` or ``Eventually``.
        by_tenant: Whether the tenant is the partition key, so that searches in a tenant's scope
            read one partition only; None for the recorded value, or False.
        num_partitions: Number of partitions; None for Milvus's default.

    Raises:
        ConfigurationError: A setting is unknown, or contradicts another.
    """

    engine = "Milvus"
    at_creation = ("index_params", "consistency_level", "by_tenant", "num_partitions")
    instead = dict.fromkeys(_INDEX, "index_params={'index_type': ..., 'params': {...}}")

    index_params: Mapping[str, Any] = field(default_factory=dict)  # Any: the type in pymilvus
    search_params: Mapping[str, Any] = field(default_factory=dict)
    consistency_level: str | None = None
    by_tenant: bool | None = None
    num_partitions: int | None = None

    def __post_init__(self) -> None:
        check_index_params(self.index_params, lite=False)
        every = {*_RANGE, *(name for names in _SEARCH_PARAMS.values() for name in names)}
        check_names(self.search_params, sorted(every), where="search_params")

    def check(self, config: StoreConfig, where: object) -> None:
        """Raise if the metric contradicts the distance, or Milvus would ignore a setting."""
        metric = self.index_params.get("metric_type")
        check_distance(metric, config, METRICS, what="metric_type", where=where)
        index_type = config.params.get("index_params", {}).get("index_type", "")
        for kind, names in _SEARCH_PARAMS.items():
            if index_type.startswith(kind):
                allowed = (*_RANGE, *names)
                check_names(self.search_params, allowed, where=f"search_params of {index_type}")
        if self.num_partitions and not config.params.get("by_tenant"):
            raise ConfigurationError(
                "num_partitions needs by_tenant=True (of a knowledge base: many_tenants=True); "
                "without it Milvus has one partition"
            )

    @property
    def recorded(self) -> Mapping[str, Any]:
        """Settings that are recorded with a new collection; the distance records the metric."""
        index = {
            key: part for key, part in self.index_params.items() if key != "metric_type" and part
        }
        # In a class with slots, `super()` needs its arguments.
        settings = dict(super(MilvusParams, self).recorded)
        settings.pop("index_params", None)
        return {**settings, "index_params": index} if index else settings

    @property
    def for_records(self) -> "MilvusParams":
        """The settings of a collection of records: strong consistency, to read others' writes."""
        return MilvusParams(index_params={"index_type": "FLAT"}, consistency_level="Strong")
