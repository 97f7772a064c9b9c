"""Questions with labels, and retrievers that find or miss the right node."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_retrieval_ext import HybridRetriever
from llama_retrieval_ext.evaluation import Judgements, Level
from llama_retrieval_ext.evaluation.tuning import Tuning, tune
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding, sample_nodes

QUERIES = {f"q{n}": f"question {n}" for n in range(24)}
QUESTIONS = [*QUERIES.values()][:3]
RELEVANT = {id_: {f"n{number}": 1 + number % 2} for number, id_ in enumerate(QUERIES)}
JUDGED = Judgements(QUERIES, RELEVANT, Level.NODE)


class Shifted(BaseRetriever):
    """Gives node n..n+9 for question n, the right one at a rank of its own."""

    def __init__(self, rank: int, *, fails_at: int | None = None) -> None:
        super().__init__()
        self.rank, self.fails_at, self.calls = rank, fails_at, list[str]()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls.append(query_bundle.query_str)
        number = int(query_bundle.query_str.split()[1])
        if number == self.fails_at:
            raise KeyboardInterrupt
        ids = [f"n{number - self.rank + place}" for place in range(1, 11)]
        return [NodeWithScore(node=TextNode(id_=id_), score=-float(p)) for p, id_ in enumerate(ids)]


class Noisy(BaseRetriever):
    """Has the right node first in some questions, and wrong ones of its own otherwise."""

    def __init__(self, name: str, is_right: Callable[[int], bool]) -> None:
        super().__init__()
        self.name, self.is_right, self.calls = name, is_right, 0

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls += 1
        number = int(query_bundle.query_str.split()[1])
        wrong = [f"{self.name} {number} {place}" for place in range(5)]
        ids = [f"n{number}", *wrong] if self.is_right(number) else [*wrong, f"n{number}"]
        return [
            NodeWithScore(node=TextNode(id_=id_), score=1.0 - place / 10)
            for place, id_ in enumerate(ids)
        ]


def tuned(retriever: BaseRetriever, judged: Judgements = JUDGED, **options: str | Path) -> Tuning:
    return tune(retriever, judged, progress=False, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def hybrid() -> Iterator[HybridRetriever]:
    model = FakeEmbedding()
    with EmbeddedVectorStore(":memory:") as store:
        store.add(list(sample_nodes(model)))
        yield HybridRetriever(store, embed_model=model, candidates=5, top_k=4)
