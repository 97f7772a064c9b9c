"""A collection: its columns, indexes and recorded config, and its nodes."""

# pymilvus declares wider types for some results than its blocking client returns.
# pyright: reportArgumentType=false, reportAssignmentType=false

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from threading import RLock
from typing import Any, Final, TypeAlias, TypeVar

from llama_index.core.schema import BaseNode
from pymilvus import CollectionSchema, DataType, Function, FunctionType, MilvusClient
from pymilvus.client.types import LoadState
from pymilvus.milvus_client.index import IndexParams

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.scope import TENANT_KEY
from llama_retrieval_ext.stores.encoding.node_json import StoredNode, node_from_text, node_to_text
from llama_retrieval_ext.stores.encoding.values import batches, filterable
from llama_retrieval_ext.stores.engine.collection import (
    Collection,
    CollectionMissingError,
    column_of,
    indexed_columns,
)
from llama_retrieval_ext.stores.engine.config import ConfigRequest, StoreConfig
from llama_retrieval_ext.stores.engine.connection import Steps
from llama_retrieval_ext.stores.engine.records import in_parts
from llama_retrieval_ext.stores.milvus.client import FORM, MilvusConnection, call_loaded
from llama_retrieval_ext.stores.milvus.filters import (
    COLUMNS,
    DOC,
    ID,
    SEPARATOR,
    Expression,
    column_value,
    fields_of,
    filter_text,
    one_of,
    safe_text,
)
from llama_retrieval_ext.stores.milvus.params import METRICS, MilvusParams, check_index_params

T = TypeVar("T")

FORMAT: Final = 7
PROPERTY: Final = "llama_retrieval_ext"
NODE: Final = "node"
DENSE: Final = "dense"
TERMS: Final = "terms"
BM25: Final = "bm25"

# Limit in UTF-8 bytes, for a string and for all dynamic fields of a node together.
MAX_BYTES: Final = 65_535
MAX_FIELDS_BYTES: Final = 65_536
# Limit for the names of tenants and knowledge bases, in UTF-8 bytes.
MAX_NAME_BYTES: Final = 4096

# The same for every engine of this package. Milvus Lite always uses k1 = 1.5.
_BM25: Final = {"bm25_k1": 1.2, "bm25_b": 0.75}
# Factor of the ordinary timeout for requests on a whole collection.
_BULK_TIMEOUTS: Final = 6


Row: TypeAlias = dict[str, Any]  # strings, and one list of numbers
StoredRow: TypeAlias = Mapping[str, Any]  # the type in pymilvus

# Limit of a column in bytes, and its name in messages.
_LIMITS: Final = {
    ID: (MAX_BYTES, "id"),
    DOC: (MAX_BYTES, "document's id"),
    NODE: (MAX_BYTES, "text and metadata"),
    TERMS: (MAX_BYTES, "terms for keyword search"),
    **{column: (MAX_NAME_BYTES, key) for key, column in COLUMNS.items()},
}
_BATCH: Final = 512
# Added to the name of a collection for its copy with other fields; names have 255 letters at most.
_COPY: Final = "__fields"
_MAX_NAME: Final = 255
# Well below a server's message limit of 64 MB.
_BATCH_BYTES: Final = 16 * 2**20
# Milvus Lite searches unflushed rows in plain Python: 45 ms per thousand.
_MAX_UNFLUSHED: Final = 256
_PAGE: Final = 1000
_LITE_MAX_ROWS: Final = 10**7


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
        self.creating = self._lock = RLock()
        self._unflushed = 0

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

        def load(client: MilvusClient) -> None:
            # Milvus Lite opens collections unloaded, and then refuses each search.
            state = client.get_load_state(self.name, timeout=self.connection.timeout_s)
            if state.get("state") != LoadState.Loaded:
                self._load(client)

        yield load
        return config

    def make(self, config: StoreConfig) -> Steps[None]:
        """Create the collection with its indexes, and load it."""
        has_partitions = config.params.get("by_tenant") and self.params.num_partitions
        options = {"num_partitions": self.params.num_partitions} if has_partitions else {}

        def make(client: MilvusClient) -> None:
            client.create_collection(
                self.name,
                schema=self._columns(config),
                consistency_level=self.params.consistency_level or "Session",
                properties={PROPERTY: json.dumps(self.record_of(config))},
                timeout=self.timeout_s,
                **options,
            )
            # Milvus Lite answers after building them, and has no call for waiting.
            client.create_index(
                self.name,
                self._indexes(config),
                sync=not self.connection.is_lite,
                timeout=self.timeout_s,
            )
            self._load(client)

        yield make

    def _columns(self, config: StoreConfig) -> CollectionSchema:
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=True)
        schema.add_field(ID, DataType.VARCHAR, is_primary=True, max_length=MAX_BYTES)
        for key, column in COLUMNS.items():
            schema.add_field(
                column,
                DataType.VARCHAR,
                max_length=MAX_NAME_BYTES,
                is_partition_key=bool(config.params.get("by_tenant")) and key == TENANT_KEY,
            )
        schema.add_field(DOC, DataType.VARCHAR, max_length=MAX_BYTES)
        schema.add_field(NODE, DataType.VARCHAR, max_length=MAX_BYTES)
        schema.add_field(DENSE, DataType.FLOAT_VECTOR, dim=config.dimension)
        for name in config.schema.text:
            terms, bm25 = column_of(TERMS, name), column_of(BM25, name)
            schema.add_field(
                terms,
                DataType.VARCHAR,
                max_length=MAX_BYTES,
                enable_analyzer=True,
                # Both split hexadecimal terms at spaces only; Milvus Lite has only the first.
                analyzer_params={
                    "tokenizer": "standard" if self.connection.is_lite else "whitespace"
                },
            )
            schema.add_field(bm25, DataType.SPARSE_FLOAT_VECTOR)
            function = Function(f"{bm25}_of_terms", FunctionType.BM25, [terms], [bm25])
            schema.add_function(function)
        return schema

    def _indexes(self, config: StoreConfig) -> IndexParams:
        lite, of_vectors = self.connection.is_lite, self.params.index_params
        indexes = MilvusClient.prepare_index_params()
        indexes.add_index(
            DENSE,
            index_type=of_vectors.get("index_type", "FLAT" if lite else "AUTOINDEX"),
            metric_type=METRICS[config.distance],
            params=dict(of_vectors.get("params") or {}),
        )
        for name in config.schema.text:
            indexes.add_index(
                column_of(BM25, name),
                index_type="SPARSE_INVERTED_INDEX",
                metric_type="BM25",
                params=dict(_BM25),
            )
        # If a crash leaves such an index incomplete, Milvus Lite cannot read the collection.
        for column in () if lite else (*COLUMNS.values(), DOC):
            indexes.add_index(column, index_type="INVERTED")
        return indexes

    def remove(self) -> Steps[None]:
        """Drop the collection, if it exists, and what `index_fields` has left."""
        timeout_s = self.connection.timeout_s
        yield lambda client: client.drop_collection(self._copy_name, timeout=timeout_s)
        yield lambda client: client.drop_collection(self.name, timeout=timeout_s)

    def add(self, nodes: Sequence[BaseNode]) -> Steps[None]:
        """Add nodes, or replace those with the same id; all are checked before the first write."""
        # Looked up each time: another process may have indexed fields.
        vectors = yield from self.vectors_of(nodes, again=True)
        dimension, config = len(vectors[0]), self.config
        rows = [_row(node, vector, config) for node, vector in zip(nodes, vectors, strict=True)]
        yield from self._write(rows, dimension)

    def _write(self, rows: Sequence[Row], dimension: int) -> Steps[None]:
        def size_bytes(row: Row) -> int:
            return sum(4 * len(value) for value in row.values())

        for batch in batches(rows, size_bytes, max_items=_BATCH, max_bytes=_BATCH_BYTES):
            yield from self.create(dimension)
            try:
                yield self.loaded(self._upsert(batch))
            except CollectionMissingError:  # dropped meanwhile
                self.forget()
                yield from self.create(dimension)
                yield self._upsert(batch)
        with self._lock:
            self._unflushed += len(rows)
            many = self._unflushed >= _MAX_UNFLUSHED
        if many:
            yield from self.flush()

    def index_fields(self) -> Steps[int]:
        """Index the fields of the schema from the stored nodes; return their number.

        Milvus cannot add such columns. So the rows are copied to a collection with them, which then
        takes the name of this one. A copy that was killed is dropped by the next call; after this
        collection is dropped, whoever opens it next gives the copy its name.
        """
        config = replace(self.config, schema=self.schema)
        copy = MilvusCollection(
            f"{self.name}{_COPY}",
            self.connection,
            request=ConfigRequest(config.tokenizer, config.distance, schema=config.schema),
            params=MilvusParams.of(config.params),
        )
        dimension = config.dimension or 1
        yield from copy.remove()
        yield from copy.create(dimension)
        copied = set[str]()
        # Again, until no other process has written meanwhile.
        while (keys := {row[ID] for row in (yield self._rows([ID]))}) != copied:
            for part in in_parts(sorted(keys - copied), _BATCH):
                stored = yield self._rows([NODE, DENSE], one_of(ID, part))
                rows = [_row(node_from_text(row[NODE]), [*row[DENSE]], config) for row in stored]
                yield from copy._write(
                    [{**row, ID: old[ID]} for row, old in zip(rows, stored, strict=True)], dimension
                )
            if copied - keys:
                yield from copy.delete(one_of(ID, sorted(copied - keys)))
            copied = keys
        yield from copy.flush()
        timeout_s = self.connection.timeout_s
        yield lambda client: client.drop_collection(self.name, timeout=timeout_s)
        self.forget()
        yield from self.look_up()  # gives the copy its name
        return len(copied)

    def delete(self, matching: Expression) -> Steps[None]:
        """Delete the nodes that match; True deletes nothing."""
        if isinstance(matching, str):
            yield self.loaded(
                lambda client: client.delete(self.name, filter=matching, timeout=self.timeout_s)
            )

    def stored(self, matching: Expression, *, embeddings: bool) -> Steps[Iterable[StoredNode]]:
        """Return the nodes that match as stored, with their embeddings if asked."""
        if matching is False:
            return []
        rows = yield self._rows([NODE, DENSE] if embeddings else [NODE], matching)
        return [(row[NODE], row.get(DENSE)) for row in rows]

    def count(self, matching: Expression) -> Steps[int]:
        """Return the number of nodes that match."""
        if matching is False:
            return 0
        rows = yield self.loaded(
            lambda client: client.query(
                self.name,
                filter=filter_text(matching),
                output_fields=["count(*)"],
                timeout=self.connection.timeout_s,
                consistency_level="Strong",  # others may return an outdated count
            )
        )
        return int(rows[0]["count(*)"])

    def flush(self) -> Steps[None]:
        """Make Milvus Lite write and index its log; servers do that automatically."""
        with self._lock:
            self._unflushed = 0
        if self.connection.is_lite:
            yield self.loaded(lambda client: client.flush(self.name, timeout=self.timeout_s))

    def loaded(self, function: Callable[[MilvusClient], T]) -> Callable[[MilvusClient], T]:
        """Return a function that loads the collection and retries if it is not loaded."""
        return lambda client: call_loaded(client, function, self._load)

    @property
    def _copy_name(self) -> str:
        return f"{self.name}{_COPY}"[:_MAX_NAME]

    def _rows(
        self, columns: list[str], matching: Expression | None = None
    ) -> Callable[[MilvusClient], list[StoredRow]]:
        return self.loaded(
            lambda client: read_rows(
                client,
                self.name,
                columns,
                filter_=filter_text(matching),
                is_lite=self.connection.is_lite,
                timeout_s=self.connection.timeout_s,
            )
        )

    def _upsert(self, rows: Sequence[Row]) -> Callable[[MilvusClient], object]:
        # An upsert of Milvus Lite keeps dynamic fields of the old row, which filters would still
        # find; its insert replaces the row. A server's insert would add a second one.
        write = MilvusClient.insert if self.connection.is_lite else MilvusClient.upsert
        return lambda client: write(client, self.name, [*rows], timeout=self.timeout_s)

    def _describe(self, client: MilvusClient) -> Mapping[str, Any] | None:
        timeout_s = self.connection.timeout_s
        # Checked first, because pymilvus prints a traceback for a missing collection.
        if not client.has_collection(self.name, timeout=timeout_s):
            if not client.has_collection(self._copy_name, timeout=timeout_s):
                return None
            # `index_fields` was about to do it.
            client.rename_collection(self._copy_name, self.name, timeout=timeout_s)
        described: Mapping[str, Any] = client.describe_collection(self.name, timeout=timeout_s)
        return described

    def _load(self, client: MilvusClient) -> None:
        client.load_collection(self.name, timeout=self.timeout_s)


def read_rows(  # noqa: PLR0913 - what pymilvus takes
    client: MilvusClient,
    name: str,
    columns: list[str],
    *,
    filter_: str = "",
    key: str = ID,
    is_lite: bool,
    timeout_s: float | None = None,
) -> list[StoredRow]:
    """Return columns of all rows of a collection that match a filter, by their primary key."""

    def query(filter_: str, columns: list[str], limit: int) -> list[StoredRow]:
        return client.query(name, filter_, columns, timeout_s, limit=limit)  # type: ignore[no-any-return]  # pyright: ignore[reportReturnType]

    rows: list[StoredRow] = []
    if is_lite:
        # Milvus Lite limits answers by message size only, and its iterator prints a warning.
        keys = query(filter_, [key], _LITE_MAX_ROWS)
        for part in in_parts((row[key] for row in keys), _PAGE):
            rows += query(filter_text(one_of(key, part)), columns, _PAGE)
        return rows
    pages = client.query_iterator(
        name, batch_size=_PAGE, filter=filter_, output_fields=columns, timeout=timeout_s
    )
    with closing(pages):
        while page := pages.next():
            rows += page
    return rows


def _row(node: BaseNode, vector: list[float], config: StoreConfig) -> Row:
    if not node.node_id:
        raise ConfigurationError("a node has an empty id; Milvus needs one, such as a UUID")
    counts = config.tokenizer.term_counts

    def encode(text: str) -> str:
        return joined_terms(counts(text))

    strings = {
        ID: safe_text(node.node_id),
        # No document has this id.
        DOC: SEPARATOR if node.ref_doc_id is None else safe_text(node.ref_doc_id),
        NODE: node_to_text(node),
        **indexed_columns(node, config.schema, encode, kind=TERMS, separator=" "),
        **{column: column_value(node.metadata.get(key)) for key, column in COLUMNS.items()},
    }
    for column, value in strings.items():
        limit_bytes, name = _LIMITS.get(column, _LIMITS[TERMS])
        _check_size(node, name, len(value.encode()), limit_bytes)
    fields = fields_of(filterable(node))
    size_bytes = len(json.dumps(fields, ensure_ascii=False).encode())
    _check_size(node, "metadata", size_bytes, MAX_FIELDS_BYTES)
    return {**strings, **fields, DENSE: vector}


def joined_terms(counts: Mapping[int, int]) -> str:
    """Return terms with repetitions, joined by spaces.

    Milvus Lite has no analyser that splits at spaces only: ``c++`` would become ``c``. So terms are
    hexadecimal numbers, which no analyser splits.

    Examples:
        >>> joined_terms({17: 2, 255: 1})
        '11 11 ff'

    """
    return " ".join(f"{term:x}" for term, count in counts.items() for _ in range(count))


def _check_size(node: BaseNode, name: str, size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise ConfigurationError(
            f"node {node.node_id[:100]!r} cannot be stored: its {name} take {size_bytes} bytes, "
            f"Milvus takes {limit_bytes}; split the text into smaller nodes, or shorten the "
            "metadata"
        )
