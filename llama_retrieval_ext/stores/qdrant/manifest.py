"""What a collection of ours says about itself, in the collection's own metadata."""

from collections.abc import Mapping
from typing import Final

from qdrant_client import models

from llama_retrieval_ext.errors import StoreFormatError
from llama_retrieval_ext.stores.nodes.distance import Distance
from llama_retrieval_ext.stores.points.manifest import Manifest
from llama_retrieval_ext.text.tokenizer import Tokenizer

FORMAT: Final = 3
DENSE: Final = "dense"
BM25: Final = "bm25"
_KEY: Final = "llama_retrieval_ext"
DISTANCES: Final[Mapping[Distance, models.Distance]] = {
    "cosine": models.Distance.COSINE,
    "dot": models.Distance.DOT,
    "euclid": models.Distance.EUCLID,
}


def recorded(info: models.CollectionInfo, where: str) -> Manifest:
    """The manifest of a collection.

    Args:
        info: What the engine says of the collection.
        where: The store, for messages.

    Raises:
        StoreFormatError: The collection is not one of ours, or from a newer release.
    """
    data = (info.config.metadata or {}).get(_KEY)
    vectors = info.config.params.vectors
    params = vectors.get(DENSE) if isinstance(vectors, dict) else None
    if not isinstance(data, dict) or params is None:
        raise StoreFormatError(
            f"{where} was not made by this package; hand in LlamaIndex's QdrantVectorStore over "
            "it, or use another collection"
        )
    if data.get("format") != FORMAT:
        raise StoreFormatError(
            f"{where} has format {data.get('format')!r}, this release reads format {FORMAT}; "
            "install the release that wrote it, or index the documents again into another "
            "collection"
        )
    distances: dict[models.Distance, Distance] = {
        theirs: ours for ours, theirs in DISTANCES.items()
    }
    return Manifest(
        Tokenizer.from_dict(data["tokenizer"]),
        distances[params.distance],
        params.size,
        data["average_length"],
        params=data["params"],
    )


def as_metadata(manifest: Manifest) -> dict[str, object]:
    """What is recorded with the collection; dimension and distance are in its own configuration."""
    return {
        _KEY: {
            "format": FORMAT,
            "tokenizer": manifest.tokenizer.to_dict(),
            "average_length": manifest.average_length,
            "params": dict(manifest.params),
        }
    }
