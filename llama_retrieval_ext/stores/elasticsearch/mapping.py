"""The body that an index is made with."""

from collections.abc import Mapping
from typing import Any, Final

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.elasticsearch.conditions import PIECES, TERMS
from llama_retrieval_ext.stores.elasticsearch.index_params import IndexParams
from llama_retrieval_ext.stores.elasticsearch.manifest import META, Manifest
from llama_retrieval_ext.stores.elasticsearch.request import Json
from llama_retrieval_ext.stores.elasticsearch.similarity import SIMILARITIES

ID: Final = "id"
DOC: Final = "doc"
NODE: Final = "node"
TEXT: Final = "text"
VECTOR: Final = "vector"

# Every engine of this package weighs terms so.
_BM25: Final = {"type": "BM25", "k1": 1.2, "b": 0.75}
# Looked up by whole terms only: no columns on disk are needed for it.
_KEYWORD: Final = {"type": "keyword", "doc_values": False}
# Scores in full precision, where nothing else is asked for.
_EXACT: Final = {"type": "hnsw"}


def index_body(manifest: Manifest, params: IndexParams) -> Json:
    """Settings and mapping of a new index.

    Raises:
        ConfigurationError: The user's mapping has a field by the name of one of ours.
    """
    own: Json = {
        ID: {"type": "keyword"},
        DOC: _KEYWORD,
        # Kept beside the source as well, which holds the embedding and takes longer to read.
        NODE: {"type": "text", "index": False, "norms": False, "store": True},
        TEXT: {
            "type": "text",
            "analyzer": manifest.analyzer or "whitespace",
            "index_options": "freqs",
        },
        TERMS: _KEYWORD,
        PIECES: _KEYWORD,
        VECTOR: {
            "type": "dense_vector",
            "dims": manifest.dimension,
            "similarity": SIMILARITIES[manifest.distance].name,
            "index": True,
            "index_options": dict(params.index_options or _EXACT),
        },
    }
    clash = sorted(set(own).intersection(params.properties))
    if clash:
        raise ConfigurationError(
            f"the fields {', '.join(clash)} belong to the store; give yours other names"
        )
    return {
        "settings": _settings(params),
        "mappings": {
            # A field that nobody declared is a mistake, and must not become a mapping.
            "dynamic": "strict",
            "_meta": {META: manifest.to_json()},
            "_routing": {"required": manifest.routing},
            "properties": {**own, **params.properties},
        },
    }


def _settings(params: IndexParams) -> Mapping[str, Any]:
    counts = {
        name: getattr(params, name)
        for name in ("number_of_shards", "number_of_replicas")
        if getattr(params, name) is not None
    }
    return {"similarity": {"default": _BM25}, **counts, **params.settings}
