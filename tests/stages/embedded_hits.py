"""Hits whose nodes carry embeddings."""

from collections.abc import Mapping, Sequence

from llama_index.core.schema import TextNode

from llama_retrieval_ext import Hit, Query

# "a_dup" says nearly what "a" says; "c" is less relevant than either, and new.
VECTORS = {
    "a": [0.90, 0.43, 0.0],
    "a_dup": [0.895, 0.44, 0.0],
    "b": [0.80, -0.60, 0.0],
    "c": [0.70, 0.0, 0.71],
}
QUERY = Query("anything", embedding=[1.0, 0.0, 0.0])


def hits(vectors: Mapping[str, Sequence[float] | None] = VECTORS) -> list[Hit]:
    return [
        Hit(
            node=TextNode(id_=id_, text=id_, embedding=vector and list(vector)),
            score=1.0 - place / 10,
            source="vector",
        )
        for place, (id_, vector) in enumerate(vectors.items())
    ]
