"""Hybrid search of questions in scripts that the embedding model does not know."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import RRF, HybridRetriever, KnowledgeBase, Retriever
from llama_retrieval_ext.config import Registry, from_yaml, to_yaml
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.pipeline.fusion import weights_for
from llama_retrieval_ext.stores.engine.pushdown import NativeFusion
from llama_retrieval_ext.testing.fakes import EVERYTHING, FakeBackend, FakeEmbedding
from tests.cases import cases

CHINESE, MIXED, ENGLISH = "年假有几天", "年假 HR", "annual leave"
EQUAL = {"vector": 1.0, "keyword": 1.0}


class EnglishEmbedding(FakeEmbedding):
    """A model that declares to know English."""

    languages: ClassVar[tuple[str, ...]] = ("en",)


MODEL = EnglishEmbedding()
ONE_REQUEST = replace(EVERYTHING, one_round_trip=True)
TWO_REQUESTS = replace(EVERYTHING, one_round_trip=False)
FUSES = replace(EVERYTHING, fusions=(NativeFusion(kind=RRF),))
FUSES_EQUAL = replace(EVERYTHING, fusions=(NativeFusion(kind=RRF, equal_weights=True),))


def weights_of(retriever: Any, question: str) -> Mapping[str, float]:
    return weights_for(question, retriever.weights, retriever.leg_languages)


def nodes() -> list[TextNode]:
    texts = {"leave": "年假有 25 天 annual leave", "lunch": "午饭 lunch at noon"}
    return [
        TextNode(id_=id_, text=text, embedding=MODEL.get_text_embedding(text))
        for id_, text in texts.items()
    ]


def hybrid(features: Any = ONE_REQUEST, **options: Any) -> HybridRetriever:
    return HybridRetriever(FakeBackend(nodes(), features=features), embed_model=MODEL, **options)


@cases(
    ("question", "weights"),
    [
        (ENGLISH, EQUAL),
        ("25 + 1 = ?", EQUAL),
        (CHINESE, {"vector": 0.1, "keyword": 0.9}),
        (MIXED, {"vector": 0.3, "keyword": 0.7}),  # half of the letters
    ],
)
def test_vectors_count_less_by_the_share_of_letters_that_the_model_does_not_know(
    question: str, weights: dict[str, float]
) -> None:
    assert weights_of(hybrid(), question) == pytest.approx(weights)


@cases(
    ("features", "options"),
    [
        (ONE_REQUEST, {}),
        (TWO_REQUESTS, {}),
        (FUSES, {"pushdown": True, "fusion": RRF()}),
        (FUSES_EQUAL, {"pushdown": True, "fusion": RRF()}),
    ],
)
def test_every_path_searches_chinese_with_a_tenth_for_the_vectors(
    features: Any, options: Any
) -> None:
    default = hybrid(features, **options).search(CHINESE)
    same = hybrid(ONE_REQUEST, fusion=options.get("fusion"), alpha=0.1).search(CHINESE)
    assert [hit.node_id for hit in default] == [hit.node_id for hit in same]
    assert [hit.score for hit in default] == pytest.approx([hit.score for hit in same])


@cases("options", [{"alpha": 0.5}, {"fusion": RRF(weights=[1, 1])}])
def test_given_weights_hold_in_every_script(options: Any) -> None:
    retriever = hybrid(**options)
    assert weights_of(retriever, CHINESE) == retriever.weights


def test_languages_passed_by_the_caller_hold_with_and_without_passed_weights() -> None:
    retriever = hybrid(alpha=0.7, languages=["en"])
    assert weights_of(retriever, CHINESE)["vector"] == 0.1
    assert weights_of(hybrid(languages=["en", "zh"]), CHINESE) == EQUAL


def test_the_explanation_says_that_the_weights_differ() -> None:
    text = str(hybrid().explain(CHINESE))
    assert "vector 0.1, keyword 0.9: 100% of the letters" in text
    assert "weights:" not in str(hybrid().explain(ENGLISH))
    contributions = [
        contribution for hit in hybrid().search(CHINESE) for contribution in hit.contributions
    ]
    assert {(contribution.leg, contribution.weight) for contribution in contributions} == {
        ("vector", 0.1),
        ("keyword", 0.9),
    }


@cases("language", ["english", "xx", ""])
def test_an_unknown_language_is_an_error_that_lists_the_known(language: str) -> None:
    with pytest.raises(ConfigurationError, match=r"codes such as .* known: .* zh"):
        hybrid(languages=[language])


@pytest.fixture(scope="module")
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=MODEL) as opened:
        opened.add(nodes(), show_progress=False)
        yield opened


def vector_weight(retriever: object, question: str = CHINESE) -> float:
    """The share of vectors in the innermost fusion."""
    while not hasattr(retriever, "leg_languages"):
        assert isinstance(retriever, Retriever)
        (retriever,) = retriever.children
    weights = weights_of(retriever, question)
    return weights["vector" if "vector" in weights else "dense"] / sum(weights.values())


@cases("name", ["hybrid", "rerank", "advanced", "auto", "fusion", "llama_hybrid"])
def test_the_default_weights_of_every_name_follow_the_script(kb: KnowledgeBase, name: str) -> None:
    registry = Registry().bind(kb)
    for retriever in (kb.retriever(name), registry.get_retriever(name)):  # type: ignore[call-overload]
        assert vector_weight(retriever) == pytest.approx(0.1)
        assert vector_weight(retriever, ENGLISH) >= 0.5


@pytest.mark.slow
@cases(
    ("name", "given", "weight"),
    [
        ("hybrid", {"dense_weight": 0.5, "sparse_weight": 0.5}, 0.5),
        ("hybrid", {"alpha": 0.7}, 0.7),
        ("advanced", {"vector_weight": 0.6, "keyword_weight": 0.2}, 0.75),
        ("fusion", {"mode": "weighted", "dense_weight": 0.7}, 0.7),
        ("llama_hybrid", {"dense_weight": 0.7}, 0.7),
    ],
)
def test_weights_given_by_name_hold_in_every_script(
    kb: KnowledgeBase, name: Any, given: dict[str, Any], weight: float
) -> None:
    registry = Registry().bind(kb)
    data = {"version": 1, "pipeline": {"type": name, **given}}
    for made in (
        kb.retriever(name, **given),
        registry.get_retriever(name, **given),
        from_yaml(str(data), registry),
    ):
        assert vector_weight(made) == pytest.approx(weight)


def test_yaml_keeps_weights_that_follow_the_script(kb: KnowledgeBase) -> None:
    registry = Registry().bind(kb)
    default = from_yaml("version: 1\npipeline: {type: hybrid}", registry)
    assert vector_weight(default, ENGLISH) == pytest.approx(0.7)
    again = from_yaml(to_yaml(default, live=registry.live), registry)
    assert repr(again) == repr(default)
    assert vector_weight(again) == vector_weight(default) == pytest.approx(0.1)


def test_a_knowledge_base_takes_the_languages_of_its_model() -> None:
    options: Any = {"embed_model": FakeEmbedding(), "languages": ["en"]}
    with KnowledgeBase.open("embedded::memory:", **options) as kb:
        kb.add(nodes(), show_progress=False)
        found = kb.search(CHINESE)
        assert {contribution.weight for hit in found for contribution in hit.contributions} == {
            0.1,
            0.9,
        }
        assert vector_weight(kb.retriever("auto")) == pytest.approx(0.1)
    with pytest.raises(ConfigurationError, match="languages are codes"):
        KnowledgeBase.open("embedded::memory:", embed_model=MODEL, languages=["Chinese"])
