"""ModelRerank, by rerankers of the package ``rerankers`` or of its shape, and EmbeddingRerank."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids, score_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import ScoreKind
from llama_retrieval_ext.stages.rerank.models import EmbeddingRerank, ModelRerank
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from tests.cases import cases
from tests.onnx_models import cross_encoder
from tests.searching import Searched

SOURCE = FakeRetriever([("a", 0.9, "text of a"), ("b", 0.8, "text of b"), ("c", 0.7, "text of c")])


@dataclass
class Judgement:
    doc_id: Any
    score: float | None = None
    rank: int | None = None


class ScriptedRanker:
    """Gives these judgements, and records its calls."""

    def __init__(self, *judgements: Judgement) -> None:
        self.judgements = judgements
        self.calls: list[tuple[str, list[str]]] = []

    def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> Iterator[Judgement]:
        self.calls.append((query, docs))
        assert doc_ids == list(range(len(docs)))
        yield from self.judgements


class FailingRanker(ScriptedRanker):
    def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> Iterator[Judgement]:
        yield Judgement(0, 1.0)
        raise ConnectionError("the service is down")


def test_model_rerank_orders_by_the_scores_of_the_model(searched: Searched) -> None:
    ranker = ScriptedRanker(Judgement(0, -1.0), Judgement(1, 2.0), Judgement(2, 0.0))
    pipeline = SOURCE >> ModelRerank(ranker)
    found = searched(pipeline, "q").hits
    assert [(hit.node_id, hit.score) for hit in found] == [("b", 2.0), ("c", 0.0), ("a", -1.0)]
    assert ranker.calls == [("q", ["text of a", "text of b", "text of c"])]


def test_declared_logits_become_probabilities() -> None:
    ranker = ScriptedRanker(Judgement(0, -50.0), Judgement(1, 50.0), Judgement(2, 0.0))
    found = (SOURCE >> ModelRerank(ranker, score_kind="logit")).retrieve("q")
    assert [hit.score for hit in found] == pytest.approx([1.0, 0.5, 0.0])


def test_model_rerank_scores_by_rank_where_the_model_gives_no_scores() -> None:
    ranker = ScriptedRanker(Judgement(2, rank=1), Judgement(0, rank=2), Judgement(1, rank=3))
    found = (SOURCE >> ModelRerank(ranker)).retrieve("q")
    assert [(hit.node_id, hit.score) for hit in found] == [("c", 1.0), ("a", 0.5), ("b", 1 / 3)]


def test_model_rerank_drops_unknown_and_repeated_documents() -> None:
    ranker = ScriptedRanker(
        Judgement(-1, 9.0),
        Judgement(3, 8.0),
        Judgement("0", 7.0),
        Judgement(1, 1.0),
        Judgement(1, 5.0),
    )
    found = (SOURCE >> ModelRerank(ranker)).retrieve("q")
    assert [(hit.node_id, hit.score) for hit in found] == [("b", 1.0)]


def test_a_failing_ranker_leaves_the_order_unchanged() -> None:
    result = (SOURCE >> ModelRerank(FailingRanker())).search("q")
    assert node_ids(result.hits) == ["a", "b", "c"]
    assert result.degraded[0].where == "ModelRerank"


def test_model_rerank_keeps_top_k_hits() -> None:
    ranker = ScriptedRanker(Judgement(0, 1.0), Judgement(1, 2.0))
    assert node_ids((SOURCE >> ModelRerank(ranker, top_k=1)).retrieve("q")) == ["b"]


@cases(
    ("kind", "wrong"),
    [
        (ModelRerank, {"ranker": "cross-encoder"}),
        (ModelRerank, {"ranker": ScriptedRanker(), "top_k": 0}),
        (EmbeddingRerank, {"embed_model": None}),
        (EmbeddingRerank, {"embed_model": FakeEmbedding(), "top_k": 0}),
    ],
)
def test_rerankers_by_models_refuse_arguments_out_of_range(
    kind: type[Any], wrong: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError):
        kind(**wrong)


def test_a_reranker_of_the_package_rerankers_works() -> None:
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


TEXTS = [
    ("travel", 9.0, "book travel two weeks ahead"),
    ("sick", 8.0, "sick leave"),
    ("leave", -1.0, "annual leave"),
]


def test_embedding_rerank_orders_by_cosine(searched: Searched) -> None:
    pipeline = FakeRetriever(TEXTS) >> EmbeddingRerank(FakeEmbedding())
    found = searched(pipeline, "annual leave").hits
    assert node_ids(found) == ["leave", "sick", "travel"]
    assert [hit.score for hit in found] == pytest.approx([1.0, 0.5, 0.0], abs=1e-6)
    assert score_of(found[0]) <= 1.0


def test_embedding_rerank_keeps_top_k_hits() -> None:
    found = (FakeRetriever(TEXTS) >> EmbeddingRerank(FakeEmbedding(), top_k=1)).retrieve("leave")
    assert len(found) == 1


def test_embedding_rerank_ignores_the_embedding_of_the_query() -> None:
    query = Query("annual leave", embedding=[1.0, 0.0])
    found = (FakeRetriever(TEXTS) >> EmbeddingRerank(FakeEmbedding())).retrieve(query)
    assert node_ids(found)[0] == "leave"
    assert query.embedding == [1.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "best"), [("unknown", 0.952574), ("probability", None)])
def test_a_cross_encoder_of_fastembed_gives_probabilities_from_its_logits(
    tmp_path: Path, kind: ScoreKind, best: float | None
) -> None:
    notation = f"fastembed:{cross_encoder(tmp_path / 'model')}"
    source = FakeRetriever([("a", 0.9, "salary is paid"), ("b", 0.8, "annual leave days of leave")])
    result = (source >> ModelRerank(notation, score_kind=kind)).search("annual leave")
    if best is None:  # declared wrongly: the reranker fails, and the order stays
        assert node_ids(result.hits) == ["a", "b"]
        assert "declare score_kind='logit'" in str(result.degraded)
    else:
        assert node_ids(result.hits) == ["b", "a"]
        assert [hit.score for hit in result.hits] == pytest.approx([best, 0.047426], abs=1e-5)


@cases("notation", ["", "fastembed:", "cohere:rerank-3"])
def test_a_notation_that_names_no_cross_encoder_is_refused(notation: str) -> None:
    with pytest.raises(ConfigurationError, match="fastembed:NAME"):
        ModelRerank(notation)
