"""Weights of hybrid search, measured on passages without labels."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from llama_index.core import Document
from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_retrieval_ext import RRF, HybridRetriever, KnowledgeBase, Scope
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.knowledge_base import copy_knowledge_base
from llama_retrieval_ext.testing import FakeEmbedding

SUBJECTS = [first + last for first in ("bal", "kor", "mun", "sel", "tav") for last in "aeiou"]
ACME = Scope(tenant_id="acme")


class Meaning(FakeEmbedding):
    """A model that knows the subject of a text, its first word, and declares little trust in it."""

    vector_share: ClassVar[float] = 0.1

    def _embed(self, text: str) -> list[float]:
        return super()._embed(text.split(maxsplit=1)[0])


class Misleading(Meaning):
    """A model that takes a question to be about the next subject, and declares to be right."""

    vector_share: ClassVar[float] = 0.9

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed(successor(query.split(maxsplit=1)[0]))


def successor(subject: str) -> str:
    return SUBJECTS[(SUBJECTS.index(subject) + 1) % len(SUBJECTS)]


def documents(*, misleading_words: bool) -> list[Document]:
    """Passages of two sentences about one subject, the second perhaps in the words of the next."""
    sentence = "{0} {1}k {1}l {1}m."
    return [
        Document(
            id_=subject,
            text=f"{sentence.format(subject, subject)} "
            f"{sentence.format(subject, successor(subject) if misleading_words else subject)}",
        )
        for subject in SUBJECTS
    ]


def opened(model: BaseEmbedding, url: str = "embedded::memory:") -> KnowledgeBase:
    return KnowledgeBase.open(url, embed_model=model)


def weights(kb: KnowledgeBase, **arguments: Any) -> dict[str, float]:
    retriever = kb.retriever("hybrid", **arguments)
    assert isinstance(retriever, HybridRetriever)
    return retriever.weights


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "better", "other"),
    [(Meaning(), "vector", "keyword"), (Misleading(), "keyword", "vector")],
    ids=["meaning", "words"],
)
def test_the_search_that_finds_the_rest_of_passages_gets_more_weight_than_the_model_declares(
    model: Meaning, better: str, other: str
) -> None:
    with opened(model) as kb:
        kb.add(documents(misleading_words=better == "vector"))
        before = weights(kb)
        measured = kb.weigh()
        assert measured.questions == measured.passages == len(SUBJECTS)
        assert getattr(measured, better) > getattr(measured, other)
        assert measured.hybrid >= getattr(measured, better) - 0.01
        after = weights(kb)
        assert after[better] / sum(after.values()) > before[better] / sum(before.values())
        assert f"{measured.questions} sentences" in str(measured)


@pytest.mark.slow
def test_a_recorded_weight_holds_wherever_the_knowledge_base_is_opened_unless_a_call_gives_one(
    tmp_path: Path,
) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with opened(Misleading(), url) as kb:
        kb.add(documents(misleading_words=False))
        share = kb.weigh().vector_share
    with opened(Misleading(), url) as kb:
        assert kb.info().vector_share == share
        assert weights(kb) == {"vector": share, "keyword": 1 - share}
        assert weights(kb, alpha=0.5) == {"vector": 0.5, "keyword": 0.5}
        assert weights(kb, dense_weight=1, sparse_weight=1) == {"vector": 0.5, "keyword": 0.5}
        assert weights(kb, fusion=RRF()) == {"vector": 1.0, "keyword": 1.0}


def test_too_few_passages_with_two_sentences_record_nothing() -> None:
    with opened(Misleading()) as kb:
        kb.add(documents(misleading_words=False)[:19])
        with pytest.raises(ConfigurationError, match="only 19 of 19 passages have two sentences"):
            kb.weigh()
        assert kb.info().vector_share is None


@pytest.mark.slow
def test_only_the_passages_of_a_scope_are_measured() -> None:
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=Misleading(), require_scope=True
    ) as kb:
        kb.add(documents(misleading_words=False), scope=ACME)
        with pytest.raises(ScopeRequiredError):
            kb.weigh()
        with pytest.raises(ConfigurationError, match="only 0 of 0 passages"):
            kb.weigh(scope=Scope(tenant_id="other"))
        assert kb.weigh(scope=ACME).passages == len(SUBJECTS)


@pytest.mark.slow
def test_a_copy_to_read_is_not_weighed(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with opened(Misleading(), url) as kb:
        kb.add(documents(misleading_words=False))
    with (
        KnowledgeBase.open(url, embed_model=Misleading(), read_only=True) as copy,
        pytest.raises(ConfigurationError, match="opened to read only"),
    ):
        copy.weigh()


@pytest.mark.parametrize("model", [None, FakeEmbedding()], ids=["same model", "another model"])
@pytest.mark.slow
def test_a_copy_has_the_share_only_if_it_has_the_model(
    model: FakeEmbedding | None, tmp_path: Path
) -> None:
    url, target = f"embedded:{tmp_path / 'kb'}", f"embedded:{tmp_path / 'copy'}"
    with opened(Misleading(), url) as kb:
        kb.add(documents(misleading_words=False))
        share = kb.weigh().vector_share
    copy_knowledge_base(url, target, embed_model=model)
    with opened(model or Misleading(), target) as copy:
        assert copy.info().vector_share == (share if model is None else None)
