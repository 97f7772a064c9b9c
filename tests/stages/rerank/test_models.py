"""`ModelRerank`: rerankers of the package ``rerankers``, or of its shape."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.stages.rerank.models import ModelRerank
from llama_retrieval_ext.testing.fakes import FakeRetriever

SOURCE = FakeRetriever([("a", 0.9, "text of a"), ("b", 0.8, "text of b"), ("c", 0.7, "text of c")])


@dataclass
class Said:
    doc_id: Any
    score: float | None = None
    rank: int | None = None


class SayingRanker:
    """Says what it is told to of each document, and remembers what it was asked."""

    def __init__(self, *said: Said) -> None:
        self.said = said
        self.asked: list[tuple[str, list[str]]] = []

    def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> Iterator[Said]:
        self.asked.append((query, docs))
        assert doc_ids == list(range(len(docs)))
        yield from self.said


class FailingRanker(SayingRanker):
    def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> Iterator[Said]:
        yield Said(0, 1.0)
        raise ConnectionError("the service is down")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hits_come_by_the_models_scores(*, asynchronous: bool) -> None:
    ranker = SayingRanker(Said(0, -1.0), Said(1, 2.0), Said(2, 0.0))
    pipeline = SOURCE >> ModelRerank(ranker)
    found = asyncio.run(pipeline.aretrieve("q")) if asynchronous else pipeline.retrieve("q")
    assert [(hit.node_id, hit.score) for hit in found] == [("b", 2.0), ("c", 0.0), ("a", -1.0)]
    assert ranker.asked == [("q", ["text of a", "text of b", "text of c"])]


def test_declared_logits_become_probabilities() -> None:
    ranker = SayingRanker(Said(0, -50.0), Said(1, 50.0), Said(2, 0.0))
    found = (SOURCE >> ModelRerank(ranker, score_kind="logit")).retrieve("q")
    assert [hit.score for hit in found] == pytest.approx([1.0, 0.5, 0.0])


def test_without_scores_the_ranks_count() -> None:
    ranker = SayingRanker(Said(2, rank=1), Said(0, rank=2), Said(1, rank=3))
    found = (SOURCE >> ModelRerank(ranker)).retrieve("q")
    assert [(hit.node_id, hit.score) for hit in found] == [("c", 1.0), ("a", 0.5), ("b", 1 / 3)]


def test_documents_that_do_not_exist_or_come_twice_are_refused() -> None:
    ranker = SayingRanker(Said(-1, 9.0), Said(3, 8.0), Said("0", 7.0), Said(1, 1.0), Said(1, 5.0))
    found = (SOURCE >> ModelRerank(ranker)).retrieve("q")
    assert [(hit.node_id, hit.score) for hit in found] == [("b", 1.0)]


def test_a_failing_model_leaves_the_order_as_it_was() -> None:
    result = (SOURCE >> ModelRerank(FailingRanker())).search("q")
    assert node_ids(result.hits) == ["a", "b", "c"]
    assert result.degraded[0].where == "ModelRerank"


def test_only_so_many_are_kept() -> None:
    ranker = SayingRanker(Said(0, 1.0), Said(1, 2.0))
    assert node_ids((SOURCE >> ModelRerank(ranker, top_k=1)).retrieve("q")) == ["b"]


@pytest.mark.parametrize("wrong", [{"ranker": "cross-encoder"}, {"top_k": 0}, {"timeout_s": 0.0}])
def test_bad_arguments_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        ModelRerank(**{"ranker": SayingRanker(), **wrong})


def test_a_reranker_of_the_package_itself_works() -> None:
    rerankers = pytest.importorskip("rerankers", reason="rerankers is not installed")
    results = pytest.importorskip("rerankers.results")
    ranker: Any = pytest.importorskip("rerankers.models.ranker")

    class Lengths(ranker.BaseRanker):  # type: ignore[misc]  # known at run time only
        def __init__(self) -> None:
            pass

        def score(self, query: str, doc: str) -> float:
            return float(len(doc))

        def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> Any:
            found = [
                results.Result(rerankers.Document(text, doc_id=id_), score=self.score(query, text))
                for text, id_ in zip(docs, doc_ids, strict=True)
            ]
            return results.RankedResults(found, query, has_scores=True)

    source = FakeRetriever([("short", 0.9, "a"), ("long", 0.8, "a longer text")])
    assert node_ids((source >> ModelRerank(Lengths())).retrieve("q")) == ["long", "short"]
