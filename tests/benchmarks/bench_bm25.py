"""BM25Retriever at 20,000 documents against bm25s itself and LlamaIndex's retriever."""

import json
import sys
from itertools import cycle, islice
from pathlib import Path

import bm25s
import numpy as np
import Stemmer
from llama_index.core.schema import TextNode
from llama_index.retrievers.bm25 import BM25Retriever as StockRetriever

from llama_retrieval_ext import BM25Retriever
from tests.benchmarks.ratio import compare

DATA = Path(__file__).parents[3] / "shared" / "data" / "2wikimultihop"
N_DOCUMENTS = 20_000


def texts(name: str) -> list[str]:
    """The texts of a BEIR file."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def run() -> None:
    """Top 10 of 20,000 passages."""
    corpus = list(islice(cycle(texts("corpus.jsonl")), N_DOCUMENTS))
    queries = texts("queries.jsonl")[:100]
    nodes = [TextNode(id_=f"n{i}", text=text) for i, text in enumerate(corpus)]
    ours = BM25Retriever(nodes, top_k=10)
    stock = StockRetriever.from_defaults(nodes=nodes, similarity_top_k=10)
    stemmer = Stemmer.Stemmer("english")
    raw = bm25s.BM25()
    raw.index(bm25s.tokenize(corpus, stemmer=stemmer, show_progress=False), show_progress=False)
    ids = np.arange(len(corpus))

    def ask_raw(i: int) -> object:
        tokens = bm25s.tokenize(queries[i % 100], stemmer=stemmer, show_progress=False)
        return raw.retrieve(tokens, corpus=ids, k=10, show_progress=False)

    compare(
        f"BM25 top 10 of {N_DOCUMENTS}",
        {
            "ours": lambda i: ours.retrieve(queries[i % 100]),
            "bm25s, tokenising included": ask_raw,
            "stock": lambda i: stock.retrieve(queries[i % 100]),
        },
        goal="<= 1.5 x bm25s",
    )


if __name__ == "__main__":
    if not DATA.exists():
        sys.exit(f"needs the texts in {DATA}")
    run()
