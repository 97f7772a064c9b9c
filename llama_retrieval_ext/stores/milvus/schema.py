"""The columns and indexes of a collection."""

from collections.abc import Mapping
from typing import Any, Final

from pymilvus import CollectionSchema, DataType, Function, FunctionType, MilvusClient
from pymilvus.milvus_client.index import IndexParams

from llama_retrieval_ext.query import TENANT_KEY
from llama_retrieval_ext.stores.milvus.conditions import COLUMNS
from llama_retrieval_ext.stores.milvus.manifest import Manifest
from llama_retrieval_ext.stores.milvus.params import MilvusParams
from llama_retrieval_ext.stores.nodes.distance import Distance
from llama_retrieval_ext.stores.nodes.document_key import KEY_LENGTH

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
