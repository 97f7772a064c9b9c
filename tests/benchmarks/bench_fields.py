"""Search over fields: ``python -m tests.benchmarks.bench_fields [NODES]``.

nDCG@10 on the films of ``../shared/data/movies``, with `LocalEmbedding`: without a schema, and with
eight weighed fields. Then what eight fields cost against one, over so many nodes (10,000): adding,
keyword search and hybrid search, in processor time.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from time import process_time

from llama_index.core.schema import BaseNode, MetadataMode, TextNode

from llama_retrieval_ext import HybridRetriever, KeywordRetriever, LocalEmbedding, Schema
from llama_retrieval_ext.evaluation import Experiment, load_judgements
from llama_retrieval_ext.stores import EmbeddedVectorStore
from tests.benchmarks.bench_graph import DATA

ONE = Schema(text={"*": 1})
EIGHT = Schema(
    text={
        "title": 3,
        "director": 1.5,
        "actors": 1.5,
        "characters": 1,
        "tags": 1,
        "genres": 0.5,
        "text": 0.5,
    }
)
SCHEMAS = {"one": ONE, "default": Schema(), "eight": EIGHT}


def films() -> Iterator[TextNode]:
    """Yield the films, with the title in the metadata."""
    with (DATA / "movies/corpus.jsonl").open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            metadata = {"title": row["title"], **row["metadata"]}
            yield TextNode(id_=row["_id"], text=row["text"], metadata=metadata)


def embedded(nodes: Iterable[BaseNode], model: LocalEmbedding) -> list[BaseNode]:
    """Return the nodes with their vectors."""
    nodes = list(nodes)
    vectors = model.get_text_embedding_batch(
        [node.get_content(MetadataMode.EMBED) for node in nodes]
    )
    return [
        node.model_copy(update={"embedding": vector})
        for node, vector in zip(nodes, vectors, strict=True)
    ]


def times(search: Callable[[str], object], queries: Sequence[str]) -> float:
    """Return the median processor time of a query, in milliseconds."""
    taken = []
    for query in queries:
        start = process_time()
        search(query)
        taken.append(process_time() - start)
    return 1000 * median(taken)


def main(count: int) -> None:
    """Print a line a schema."""
    model, judged = LocalEmbedding(), load_judgements(DATA / "movies")
    nodes, texts = embedded(films(), model), [*judged.queries.values()]
    more = [
        node.model_copy(update={"id_": f"{node.node_id}-{place}"})
        for place in range(1 + count // len(nodes))
        for node in nodes
    ][:count]
    for name, schema in SCHEMAS.items():
        with EmbeddedVectorStore(":memory:", schema=schema) as store:
            store.add(nodes)
            retrievers = {
                "keyword": KeywordRetriever(store),
                "hybrid": HybridRetriever(store, embed_model=model),
            }
            rows = Experiment(retrievers, judged, measures=["nDCG@10"]).run(progress=False).results
        with EmbeddedVectorStore(":memory:", schema=schema) as store:
            start = process_time()
            store.add(more)
            adding = 1e6 * (process_time() - start) / count
            keyword, hybrid = KeywordRetriever(store), HybridRetriever(store, embed_model=model)
            keyword.retrieve("warm"), hybrid.retrieve("warm")
            by_words, by_both = times(keyword.retrieve, texts), times(hybrid.retrieve, texts)
        quality = dict(zip(rows["retriever"], rows["nDCG@10"], strict=True))
        print(
            f"{name:8} keyword {quality['keyword']:.4f} hybrid {quality['hybrid']:.4f}; "
            f"adding {adding:.0f} µs, keyword {by_words:.2f} ms, hybrid {by_both:.2f} ms"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
