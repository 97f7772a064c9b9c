"""Confidence: calibration of a knowledge base on itself, per scope, and what uses the estimate."""

import asyncio
import json
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext import KnowledgeBase, Query, Scope, Threshold, Top
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.execution.context import RetrievalDegradedEvent
from llama_retrieval_ext.knowledge_base.ledger.local_ledger import LocalLedger
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.instrumentation import recorded

# Made-up words, most of which are in few nodes.
_SYLLABLES = ("ba", "dim", "fol", "gan", "hek", "jun", "lam", "nor", "pit", "quo", "ras", "tev")
_WORDS = ["".join(each) for each in product(_SYLLABLES, _SYLLABLES, ("ko", "su", "mi"))]


def nodes(count: int, *, seed: int, prefix: str = "n") -> list[TextNode]:
    random = Random(seed)
    made = []
    for number in range(count):
        sentences = (" ".join(random.choices(_WORDS, k=12)) for _ in range(3))
        text = ". ".join(sentences)
        made.append(TextNode(id_=f"{prefix}{number}", text=text, metadata={"row": number}))
    return made


@pytest.fixture
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        kb.add(nodes(80, seed=0), show_progress=False)
        yield kb


@pytest.mark.slow
def test_confidence_falls_where_the_answer_is_filtered_out(kb: KnowledgeBase) -> None:
    assert kb.search("badimko folganko").confidence is None
    calibration = kb.calibrate(questions=80)
    assert (calibration.nodes, calibration.questions) == (80, 160)
    there, gone = [], []
    for node in nodes(30, seed=0):
        question = " ".join(node.text.split()[1:6])
        without = MetadataFilter(key="row", operator=FilterOperator.NE, value=node.metadata["row"])
        there.append(kb.search(question).confidence or 0)
        gone.append(kb.search(question, filters=MetadataFilters(filters=[without])).confidence or 0)
    assert all(0 <= each <= 1 for each in there + gone)
    assert fmean(there) > fmean(gone) + 0.2
    nothing = MetadataFilter(key="row", operator=FilterOperator.EQ, value=-1)
    nowhere = kb.search("badimko", filters=MetadataFilters(filters=[nothing]))
    assert (nowhere.hits, nowhere.confidence) == ([], 0.0)


def test_the_estimate_is_the_same_on_every_way_to_an_answer(kb: KnowledgeBase) -> None:
    kb.calibrate(questions=40)
    retriever = kb.retriever(top_k=5)
    question = " ".join(nodes(1, seed=0)[0].text.split()[:5])
    sure = retriever.search(question).confidence
    assert sure is not None
    assert (retriever >> Top(2)).search(question).confidence == sure
    assert asyncio.run(retriever.asearch(question)).confidence == sure
    assert retriever.explain(question).confidence == sure
    results = retriever.search_many([question, "badimko"])
    assert results[0].confidence == sure != results[1].confidence
    assert f"confidence {sure:.2f}" in repr(results[0])
    assert json.loads(json.dumps(results[0].to_dict()))["confidence"] == sure
    assert kb.search(question, "keyword").confidence is None


def test_threshold_keeps_or_drops_the_whole_answer(kb: KnowledgeBase) -> None:
    retriever = kb.retriever(top_k=5)
    question = " ".join(nodes(1, seed=0)[0].text.split()[:5])
    with pytest.raises(ConfigurationError, match="calibrate"):
        (retriever >> Threshold(confidence=0.5)).retrieve(question)
    kb.calibrate(questions=40)
    sure = retriever.search(question).confidence
    assert sure is not None
    assert len((retriever >> Threshold(confidence=sure)).retrieve(question)) == 5
    assert (retriever >> Threshold(confidence=min(1, sure + 0.01))).search(question).hits == []


def test_a_failed_leg_leaves_an_estimate_from_the_other(kb: KnowledgeBase) -> None:
    kb.calibrate(questions=40)
    retriever = kb.retriever(top_k=5)
    retriever.embed_model = _Broken()
    with recorded() as seen:
        result = retriever.search("badimko folganko")
    assert any(isinstance(event, RetrievalDegradedEvent) for event in seen.events)
    assert result.degraded
    assert result.confidence is not None


class _Broken(FakeEmbedding):
    def _get_query_embedding(self, query: str) -> list[float]:
        raise ConnectionError("the embedding service is down")

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def test_calibration_stays_within_its_scope(tmp_path: Path) -> None:
    acme, globex = Scope("acme"), Scope("globex")
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=FakeEmbedding(), require_scope=True) as kb:
        kb.add(nodes(40, seed=0, prefix="a"), scope=acme, show_progress=False)
        kb.add(nodes(40, seed=1, prefix="g"), scope=globex, show_progress=False)
        with pytest.raises(ScopeRequiredError):
            kb.calibrate()
        alone = kb.calibrate(scope=acme, questions=40)
        assert alone.nodes == 40
        assert kb.search("badimko folganko", scope=globex).confidence is None
        narrower = Scope("acme", ["handbook"])
        assert kb.search("badimko folganko", scope=narrower).confidence is None
        sure = kb.search("badimko folganko", scope=acme).confidence
        assert sure is not None
        kb.calibrate(scope=globex, questions=40)
        assert kb.search("badimko folganko", scope=acme).confidence == sure
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:  # it is stored
        assert kb.search(Query("badimko folganko", scope=acme)).confidence == sure


def test_retrievers_are_made_without_reading_the_ledger(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as down:
        # On a server it is a request, which would block an event loop, or fail.
        down.setattr(LocalLedger, "config", lambda _: pytest.fail("the ledger was read"))
        retriever = kb.retriever("hybrid")
    kb.calibrate(questions=80)
    assert retriever.search("badimko folganko").confidence is not None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no flock")
@pytest.mark.slow
def test_a_refreshed_copy_has_the_calibrations_of_its_source(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as writer:
        writer.add(nodes(40, seed=0), show_progress=False)
        with KnowledgeBase.open(url, embed_model=FakeEmbedding(), read_only=True) as reader:
            retriever = reader.retriever("hybrid")
            assert retriever.search("badimko").confidence is None
            writer.calibrate(questions=20)
            assert retriever.search("badimko").confidence is None
            reader.refresh()
            confidence = writer.search("badimko").confidence
            assert confidence is not None
            assert retriever.search("badimko").confidence == confidence


def test_calibration_with_too_few_sentences_is_refused(kb: KnowledgeBase) -> None:
    with pytest.raises(ConfigurationError, match="questions must be a whole number of at least 20"):
        kb.calibrate(questions=5)
    kb.clear()
    kb.add([TextNode(text="Contents"), TextNode(text="Index")], show_progress=False)
    with pytest.raises(ConfigurationError, match="only 0 of 2 nodes"):
        kb.calibrate()
