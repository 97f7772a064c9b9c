"""The columns and indexes of a collection."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Self

from pymilvus import CollectionSchema, DataType, Function, FunctionType, MilvusClient
from pymilvus.milvus_client.index import IndexParams

from llama_retrieval_ext.errors import ConfigurationError, StoreFormatError
from llama_retrieval_ext.query import TENANT_KEY
from llama_retrieval_ext.stores.encoding.values import KEY_LENGTH
from llama_retrieval_ext.stores.encoding.vectors import Distance
from llama_retrieval_ext.stores.engine.config import ConfigRequest, made_with
from llama_retrieval_ext.stores.milvus.filters import COLUMNS
from llama_retrieval_ext.text.tokenizer import Tokenizer

# Others it takes without a word, and searches without an index.
_OF_LITE: Final = ("FLAT", "HNSW", "HNSW_SQ", "IVF_FLAT", "IVF_SQ8", "AUTOINDEX")
_KEPT: Final = ("index_type", "index_params", "consistency_level", "num_partitions")

# With which Milvus can go by documents, as its documentation of grouping searches lists them.
GROUPING: Final = (
    "AUTOINDEX",
    "DISKANN",
    "FLAT",
    "HNSW",
    "HNSW_PQ",
    "HNSW_PRQ",
    "HNSW_SQ",
    "IVF_FLAT",
    "IVF_SQ8",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MilvusParams:
    """What Milvus can be told beyond what every engine can.

    All but ``search_params`` counts when the collection is made. Of one that is there it must be
    what it was made with, or be left out.

    Attributes:
        index_type: Of the embeddings: ``HNSW``, ``IVF_FLAT``, ``IVF_PQ``, ``FLAT`` and others; None
            for ``AUTOINDEX``, and on Milvus Lite for ``FLAT``, which is exact, and faster there.
        index_params: Of that index, such as ``{"M": 16, "efConstruction": 200}``.
        search_params: Of searches in it, such as ``{"nprobe": 32}``; HNSW's ``ef`` is raised to the
            number of hits wanted.
        consistency_level: ``Session``, the default, shows a client what it has written itself;
            ``Strong``, ``Bounded`` and ``Eventually`` are the others.
        by_tenant: Whether the tenant is the partition key: searches in a tenant's scope then look
            into one part of the collection only; None for as it is, or no.
        num_partitions: How many parts that are; None for Milvus's own number.
        analyzer_params: Milvus's analyser that cuts the text of keyword search instead of this
            package's tokenizer.
    """

    index_type: str | None = None
    index_params: Mapping[str, Any] = field(default_factory=dict)  # Any: as pymilvus has them
    search_params: Mapping[str, Any] = field(default_factory=dict)
    consistency_level: str | None = None
    by_tenant: bool | None = None
    num_partitions: int | None = None
    analyzer_params: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The parameters that a mapping holds.

        Raises:
            ConfigurationError: It has an unknown key.

        Examples:
            >>> MilvusParams.of({"index_type": "HNSW"}).index_type
            'HNSW'

        """
        known = [each.name for each in fields(cls)]
        unknown = sorted(set(given).difference(known))
        if unknown:
            raise ConfigurationError(
                f"store_params has {', '.join(unknown)}; for Milvus there are {', '.join(known)}"
            )
        return cls(**given)

    @property
    def recorded(self) -> Mapping[str, Any]:
        """What counts when the collection is made, as JSON has it; some is recorded by itself."""
        return made_with(self, _KEPT)

    def check_lite(self) -> None:
        """Nothing, where Milvus Lite can make the index.

        Raises:
            ConfigurationError: It cannot.
        """
        if self.index_type not in (None, *_OF_LITE):
            raise ConfigurationError(
                f"Milvus Lite has no index_type {self.index_type!r}; it has {', '.join(_OF_LITE)}. "
                "Leave it out, or use a Milvus server"
            )


FORMAT: Final = 3
PROPERTY: Final = "llama_retrieval_ext"


@dataclass(frozen=True, slots=True)
class Manifest:
    """How a collection is set up.

    Attributes:
        tokenizer: Cuts documents and queries into terms.
        distance: How embeddings are compared.
        dimension: Length of the embeddings; None until the collection is made.
        analyzer: Milvus's own analyser, which does the tokenizer's work; None for the tokenizer.
        by_tenant: Whether the tenant is the partition key.
        params: What else Milvus was told when it was made.
    """

    tokenizer: Tokenizer
    distance: Distance = "cosine"
    dimension: int | None = None
    analyzer: Mapping[str, Any] | None = None  # Any: JSON
    by_tenant: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)

    def to_text(self) -> str:
        """What is recorded."""
        data = {
            "format": FORMAT,
            "tokenizer": self.tokenizer.to_dict(),
            "distance": self.distance,
            "dimension": self.dimension,
            "analyzer": None if self.analyzer is None else dict(self.analyzer),
            "by_tenant": self.by_tenant,
            "params": dict(self.params),
        }
        return json.dumps(data)

    @classmethod
    def of_properties(cls, properties: Mapping[str, str], where: str) -> Self:
        """What a collection records.

        Args:
            properties: Of the collection.
            where: The collection, for messages.

        Raises:
            StoreFormatError: The collection is none of ours, or from a newer release.
        """
        try:
            data = json.loads(properties[PROPERTY])
            if data["format"] == FORMAT:
                rest = {k: data[k] for k in ("distance", "dimension", "analyzer", "by_tenant")}
                params = data["params"]
                return cls(Tokenizer.from_dict(data["tokenizer"]), **rest, params=params)
        except (KeyError, TypeError, ValueError) as error:
            raise StoreFormatError(
                f"{where} was not made by this package; name another collection, or hand in the "
                "LlamaIndex MilvusVectorStore that it belongs to"
            ) from error
        raise StoreFormatError(
            f"{where} has format {data['format']!r}, this release reads {FORMAT}; install the "
            "release that wrote it, or index the documents again"
        )


@dataclass(frozen=True, slots=True)
class RequestedConfig(ConfigRequest):
    """What the one who opens a store asks for; None takes what is recorded, or the default."""

    kept_in: ClassVar[str] = "collection"
    also_called: ClassVar[Mapping[str, str]] = {
        "by_tenant": "by_tenant (of a knowledge base: many_tenants)"
    }

    analyzer: Mapping[str, Any] | None = None  # Any: JSON
    by_tenant: bool | None = None

    @property
    def fresh(self) -> Manifest:
        """The manifest of a collection that is made so."""
        return Manifest(
            self.tokenizer or Tokenizer(),
            self.distance or "cosine",
            self.dimension,
            self.analyzer,
            bool(self.by_tenant),
            dict(self.params or {}),
        )

    def with_dimension(self, dimension: int) -> Manifest:
        """The manifest of a new collection for such embeddings, unless others are asked for."""
        return replace(self.fresh, dimension=self.dimension or dimension)


ID: Final = "id"
DOC: Final = "doc"
DOC_KEY: Final = "doc_key"
NODE: Final = "node"
TERMS: Final = "terms"
DENSE: Final = "dense"
BM25: Final = "bm25"

METRICS: Final[Mapping[Distance, str]] = {"cosine": "COSINE", "dot": "IP", "euclid": "L2"}
# Bytes of UTF-8: of a string, and of all dynamic fields of a node together.
LONGEST: Final = 65_535
LONGEST_FIELDS: Final = 65_536
# Of the names of tenants and knowledge bases.
LONGEST_NAME: Final = 4096

# As every engine of this package weighs terms. Milvus Lite has k1 = 1.5, whatever it is told.
_BM25: Final = {"bm25_k1": 1.2, "bm25_b": 0.75}
# Terms are numbers in hexadecimal: both cut them at spaces, and Milvus Lite has only the second.
_ANALYZER: Final = {"tokenizer": "whitespace"}
_LITE_ANALYZER: Final = {"tokenizer": "standard"}


def schema_of(manifest: Manifest, *, lite: bool) -> CollectionSchema:
    """The columns."""
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field(ID, DataType.VARCHAR, is_primary=True, max_length=LONGEST)
    for key, column in COLUMNS.items():
        is_partition_key = manifest.by_tenant and key == TENANT_KEY
        schema.add_field(
            column, DataType.VARCHAR, max_length=LONGEST_NAME, is_partition_key=is_partition_key
        )
    schema.add_field(DOC, DataType.VARCHAR, max_length=LONGEST)
    schema.add_field(DOC_KEY, DataType.VARCHAR, max_length=KEY_LENGTH)
    schema.add_field(NODE, DataType.VARCHAR, max_length=LONGEST)
    analyzer: Mapping[str, Any] = manifest.analyzer or (_LITE_ANALYZER if lite else _ANALYZER)
    schema.add_field(
        TERMS,
        DataType.VARCHAR,
        max_length=LONGEST,
        enable_analyzer=True,
        analyzer_params=dict(analyzer),
    )
    schema.add_field(DENSE, DataType.FLOAT_VECTOR, dim=manifest.dimension)
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


def indexes_of(manifest: Manifest, params: MilvusParams, *, lite: bool) -> IndexParams:
    """The indexes."""
    indexes = MilvusClient.prepare_index_params()
    indexes.add_index(
        DENSE,
        index_type=params.index_type or ("FLAT" if lite else "AUTOINDEX"),
        metric_type=METRICS[manifest.distance],
        params=dict(params.index_params),
    )
    indexes.add_index(
        BM25, index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=dict(_BM25)
    )
    # Milvus Lite cannot open a collection any more where a crash left half of such an index.
    for column in () if lite else (*COLUMNS.values(), DOC, DOC_KEY):
        indexes.add_index(column, index_type="INVERTED")
    return indexes
