"""Elasticsearch: retrievers against the raw client, on 10,000 nodes of 384 dimensions.

Run: ``python -m tests.benchmarks.bench_elasticsearch``
"""

import os
import uuid

import numpy as np
from elasticsearch import Elasticsearch
from llama_index.core.schema import TextNode

from llama_retrieval_ext.basic.hybrid import HybridRetriever
from llama_retrieval_ext.basic.keyword import KeywordRetriever
from llama_retrieval_ext.basic.vector import VectorRetriever
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.stores.elasticsearch.backend import ElasticsearchBackend
from llama_retrieval_ext.stores.elasticsearch.opening import open_elasticsearch
from tests.benchmarks.ratio import compare
from tests.servers.elasticsearch import URL_VARIABLE, start

NODES = 10_000
DIM = 384
TOP_K = 10
ROUNDS = 200


def nodes(rng: np.random.Generator) -> list[TextNode]:
    words = [f"word{n}" for n in range(2000)]
    return [
        TextNode(
            id_=f"n{number}",
            text=" ".join(rng.choice(words, 80)),
            embedding=vector.tolist(),
            metadata={"tenant_id": f"t{number % 10}"},
        )
        for number, vector in enumerate(rng.normal(size=(NODES, DIM)))
    ]


def run(url: str) -> None:
    """Fill an index, and compare."""
    rng = np.random.default_rng(0)
    name = f"lre-{uuid.uuid4().hex}"
    raw = Elasticsearch(url)
    with open_elasticsearch(
        f"{url.replace('http', 'elasticsearch')}/{name}",
        store_params={"number_of_replicas": 0},
    ) as store:
        store.add(nodes(rng))
        store.client.options(request_timeout=120).indices.forcemerge(index=name, max_num_segments=1)
        backend = ElasticsearchBackend(store)
        queries = [
            Query(f"word{n} word{n + 1} word{n + 2}", embedding=vector.tolist())
            for n, vector in enumerate(rng.normal(size=(ROUNDS, DIM)))
        ]
        scope = Scope("t3")
        vector = VectorRetriever(backend, top_k=TOP_K)
        keyword = KeywordRetriever(backend, top_k=TOP_K)
        hybrid = HybridRetriever(backend, top_k=TOP_K)
        scoped = vector.for_scope(scope)
        many = VectorRetriever(backend, top_k=100)
        many_words = KeywordRetriever(backend, top_k=100)

        def client(n: int) -> object:
            knn = {
                "field": "vector",
                "query_vector": queries[n].embedding,
                "k": TOP_K,
                "num_candidates": 100,
            }
            return raw.search(index=name, knn=knn, size=TOP_K, source={"includes": ["node"]})

        def filtered_client(n: int) -> object:
            knn = {
                "field": "vector",
                "query_vector": queries[n].embedding,
                "k": TOP_K,
                "num_candidates": 100,
                "filter": {"term": {"terms": '"tenant_id"st3'}},
            }
            return raw.search(index=name, knn=knn, size=TOP_K, source={"includes": ["node"]})

        compare(
            "vector, top 10 of 10k",
            {"ours": lambda n: vector.retrieve(queries[n]), "raw client": client},
            rounds=ROUNDS,
            goal="<= 1.15",
        )
        compare(
            "vector, a tenth of 10k",
            {"ours": lambda n: scoped.retrieve(queries[n]), "raw client": filtered_client},
            rounds=ROUNDS,
        )
        compare(
            "hybrid in one round trip, 100 candidates a leg",
            {
                "ours": lambda n: hybrid.retrieve(queries[n]),
                "vector leg": lambda n: many.retrieve(queries[n]),
                "keyword leg": lambda n: many_words.retrieve(queries[n]),
            },
            rounds=ROUNDS,
            goal="<= 1.15 of the slower",
        )
        compare("keyword", {"ours": lambda n: keyword.retrieve(queries[n])}, rounds=ROUNDS)
        store.clear()
    raw.close()


if __name__ == "__main__":
    given = os.environ.get(URL_VARIABLE)
    if given:
        run(given)
    else:
        server = start()
        try:
            run(server.url)
        finally:
            server.stop()
