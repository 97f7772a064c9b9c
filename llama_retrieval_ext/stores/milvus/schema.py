"""Collection of a store: config, columns, indexes, creation and loading."""

# pymilvus declares wider types for some results than its blocking client returns.
# pyright: reportArgumentType=false, reportAssignmentType=false

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import RLock
from typing import Any, Final, TypeVar

from pymilvus import CollectionSchema, DataType, Function, FunctionType, MilvusClient
from pymilvus.client.types import LoadState
from pymilvus.milvus_client.index import IndexParams

from llama_retrieval_ext.query import TENANT_KEY
from llama_retrieval_ext.stores.engine.collection import Collection
from llama_retrieval_ext.stores.engine.config import ConfigRequest, StoreConfig
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.milvus.client import FORM, MilvusConnection, call_loaded
from llama_retrieval_ext.stores.milvus.filters import COLUMNS, DOC, ID
from llama_retrieval_ext.stores.milvus.params import METRICS, MilvusParams, check_index_params

T = TypeVar("T")

FORMAT: Final = 5
PROPERTY: Final = "llama_retrieval_ext"
NODE: Final = "node"
TERMS: Final = "terms"
DENSE: Final = "dense"
BM25: Final = "bm25"

# Limit in UTF-8 bytes, for a string and for all dynamic fields of a node together.
MAX_BYTES: Final = 65_535
MAX_FIELDS_BYTES: Final = 65_536
# Limit for the names of tenants and knowledge bases, in UTF-8 bytes.
MAX_NAME_BYTES: Final = 4096

# The same for every engine of this package. Milvus Lite always uses k1 = 1.5.
_BM25: Final = {"bm25_k1": 1.2, "bm25_b": 0.75}
# Both analysers split the hexadecimal terms at spaces only; Milvus Lite has only the second.
_ANALYZER: Final = {"tokenizer": "whitespace"}
_LITE_ANALYZER: Final = {"tokenizer": "standard"}

# Factor of the ordinary timeout for requests on a whole collection.
_BULK_TIMEOUTS: Final = 6


def schema_of(config: StoreConfig, *, lite: bool) -> CollectionSchema:
    """Return the columns of a collection."""
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field(ID, DataType.VARCHAR, is_primary=True, max_length=MAX_BYTES)
    for key, column in COLUMNS.items():
        is_partition_key = bool(config.params.get("by_tenant")) and key == TENANT_KEY
        schema.add_field(
            column, DataType.VARCHAR, max_length=MAX_NAME_BYTES, is_partition_key=is_partition_key
        )
    schema.add_field(DOC, DataType.VARCHAR, max_length=MAX_BYTES)
    schema.add_field(NODE, DataType.VARCHAR, max_length=MAX_BYTES)
    schema.add_field(
        TERMS,
        DataType.VARCHAR,
        max_length=MAX_BYTES,
        enable_analyzer=True,
        analyzer_params=_LITE_ANALYZER if lite else _ANALYZER,
    )
    schema.add_field(DENSE, DataType.FLOAT_VECTOR, dim=config.dimension)
    schema.add_field(BM25, DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(
        Function(
            name="bm25_of_terms",
            function_type=FunctionType.BM25,
            input_field_names=[TERMS],
            output_field_names=[BM25],
        )
    )
    return schema


def indexes_of(config: StoreConfig, params: MilvusParams, *, lite: bool) -> IndexParams:
    """Return the indexes of a collection."""
    indexes = MilvusClient.prepare_index_params()
    indexes.add_index(
        DENSE,
        index_type=params.index_params.get("index_type", "FLAT" if lite else "AUTOINDEX"),
        metric_type=METRICS[config.distance],
        params=dict(params.index_params.get("params") or {}),
    )
    indexes.add_index(
        BM25, index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=dict(_BM25)
    )
    # If a crash leaves such an index incomplete, Milvus Lite cannot read the collection.
    for column in () if lite else (*COLUMNS.values(), DOC):
        indexes.add_index(column, index_type="INVERTED")
    return indexes


class MilvusCollection(Collection[StoreConfig, MilvusConnection, MilvusParams]):
    """A Milvus collection; the steps yield functions of the client."""

    format = FORMAT
    config_type = StoreConfig
    llama_index_store = "MilvusVectorStore"

    def __init__(
        self,
        name: str,
        connection: MilvusConnection,
        *,
        request: ConfigRequest,
        params: MilvusParams,
    ) -> None:
        super().__init__(FORM.check_name(name), connection, request=request, params=params)
        check_index_params(params.index_params, lite=connection.is_lite)
        # Creating a collection takes several requests, so threads must not interleave.
        self._lock = RLock()

    @property
    def index_type(self) -> str:
        """Index type of the embeddings; for ``AUTOINDEX`` Milvus chooses."""
        return str(self.config.params.get("index_params", {}).get("index_type", "AUTOINDEX"))

    @property
    def timeout_s(self) -> float:
        """Timeout of a request on a whole collection, in seconds."""
        return self.connection.timeout_s * _BULK_TIMEOUTS

    def recorded(self) -> Steps[StoreConfig | None]:
        """Return the recorded config, and load the collection; None if it does not exist."""
        description: Mapping[str, Any] | None = yield self._describe
        if description is None:
            return None
        record = None
        with suppress(KeyError, ValueError):
            record = json.loads(description["properties"][PROPERTY])
        config = self.config_of(record)
        yield self._load_if_released
        return config

    def create(
        self,
        dimension: int,
        *,
        again: bool = False,
        **settings: Any,  # noqa: ANN401 - the config's fields
    ) -> Steps[StoreConfig]:
        """Return the config; create the collection if it does not exist."""
        with self._lock:
            return (yield from super().create(dimension, again=again, **settings))

    def make(self, config: StoreConfig) -> Steps[None]:
        """Create the collection with its indexes, and load it."""
        lite = self.connection.is_lite
        partitions = self.params.num_partitions
        options = (
            {"num_partitions": partitions} if config.params.get("by_tenant") and partitions else {}
        )

        def make(client: MilvusClient) -> None:
            client.create_collection(
                self.name,
                schema=schema_of(config, lite=lite),
                consistency_level=self.params.consistency_level or "Session",
                properties={PROPERTY: json.dumps({"format": FORMAT, **config.to_dict()})},
                timeout=self.timeout_s,
                **options,
            )
            indexes = indexes_of(config, self.params, lite=lite)
            # Milvus Lite answers after building them, and has no call for waiting.
            client.create_index(self.name, indexes, sync=not lite, timeout=self.timeout_s)
            self._load(client)

        yield make

    def remove(self) -> Steps[None]:
        """Drop the collection, if it exists."""
        timeout_s = self.connection.timeout_s
        yield lambda client: client.drop_collection(self.name, timeout=timeout_s)

    def loaded(self, function: Callable[[MilvusClient], T]) -> Callable[[MilvusClient], T]:
        """Return a function that loads the collection and retries if it is not loaded."""
        return lambda client: call_loaded(client, function, self._load)

    def _describe(self, client: MilvusClient) -> Mapping[str, Any] | None:
        timeout_s = self.connection.timeout_s
        # Checked first, because pymilvus prints a traceback for a missing collection.
        if not client.has_collection(self.name, timeout=timeout_s):
            return None
        described: Mapping[str, Any] = client.describe_collection(self.name, timeout=timeout_s)
        return described

    def _load_if_released(self, client: MilvusClient) -> None:
        # Milvus Lite opens collections unloaded, and then refuses each search.
        state = client.get_load_state(self.name, timeout=self.connection.timeout_s)
        if state.get("state") != LoadState.Loaded:
            self._load(client)

    def _load(self, client: MilvusClient) -> None:
        client.load_collection(self.name, timeout=self.timeout_s)
