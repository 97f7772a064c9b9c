"""Tests of `KnowledgeBase.learn`."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import KnowledgeBase, Ranking, Schema, Scope
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.evaluation.judgements import Judgements, Level
from llama_retrieval_ext.knowledge_base.learned import Learned
from llama_retrieval_ext.stages import Boost
from llama_retrieval_ext.testing.fakes import FakeEmbedding

pytestmark = pytest.mark.slow

DIM = 16
TOPICS = range(22)
# Each topic has four passages with the same words, of which one has the most votes.
POPULAR = Judgements(
    {f"q{t}": f"topic{t} river" for t in TOPICS},
    {f"q{t}": {f"{t}-3": 1} for t in TOPICS},
    Level.NODE,
)
SCHEMA = Schema(text={"title": 2, "text": 1}, numbers=["votes"])


def passages() -> list[TextNode]:
    random = np.random.default_rng(0)
    return [
        TextNode(
            id_=f"{topic}-{number}",
            text=f"topic{topic} river bank " + "water " * int(random.integers(0, 4)),
            metadata={"title": f"river {topic % 7}", "votes": 10 ** (1 + number)},
        )
        for topic in TOPICS
        for number in range(4)
    ]


def opened(url: str = "embedded::memory:", scope: Scope | None = None) -> KnowledgeBase:
    kb = KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=DIM), schema=SCHEMA)
    kb.add(passages(), scope=scope, show_progress=False)
    return kb


def rankings(
    kb: KnowledgeBase, mode: str = "keyword", scope: Scope | None = None
) -> list[list[str]]:
    questions = [*POPULAR.queries.values()]
    return [[h.node_id for h in kb.search(q, mode, top_k=4, scope=scope)] for q in questions]  # type: ignore[arg-type]


def first(found: Sequence[Sequence[str]]) -> float:
    return float(np.mean([f"{t}-3" == ids[0] for t, ids in zip(TOPICS, found, strict=True)]))


def test_what_is_learned_holds_when_opened_again_and_is_undone_by_one_call(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with opened(url) as kb:
        before = rankings(kb), kb.schema, kb.ranking()
        learned = kb.learn(POPULAR)
        assert learned.fields
        assert "Weights: learned" in str(learned)
        taught = rankings(kb)
        assert first(before[0]) < 0.5
        assert first(taught) > 0.9
        assert [boost.number for boost in kb.ranking().boosts] == ["votes"]
    with KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=DIM), schema=SCHEMA) as kb:
        assert rankings(kb) == taught
        assert kb.learned is not None
        assert Learned.from_yaml(kb.learned.to_yaml(tmp_path / "learned.yaml")) == kb.learned
        text = (tmp_path / "learned.yaml").read_text()
        assert "votes" in text
        assert kb.unlearn()
        assert kb.use_learned(text) == kb.learned
        assert rankings(kb) == taught
        with pytest.raises(ConfigurationError, match="no YAML of learned"):
            kb.use_learned("weights: 3")
        with pytest.raises(ConfigurationError, match="learned for the fields"):
            kb.use_learned(text.replace("declared_fields:\n", "declared_fields:\n  other: 1\n"))
        assert kb.unlearn()
        assert not kb.unlearn()
        assert (rankings(kb), kb.schema, kb.ranking()) == before


def test_labels_by_chance_teach_nothing() -> None:
    random = np.random.default_rng(3)
    chance = {
        id_: {f"{int(random.integers(22))}-{int(random.integers(4))}": 1} for id_ in POPULAR.queries
    }
    with opened() as kb:
        before = rankings(kb, "hybrid")
        learned = kb.learn(Judgements(POPULAR.queries, chance, Level.NODE))
        assert "Weights: kept" in str(learned)
        assert kb.learned is None
        assert rankings(kb, "hybrid") == before


def test_few_questions_teach_nothing() -> None:
    with opened() as kb:
        assert "too few" in str(kb.learn(POPULAR.only([f"q{n}" for n in range(19)])))
        assert kb.learned is None


def test_declared_boosts_are_the_prior_and_come_back() -> None:
    declared = Ranking(boosts=[Boost(number="votes", weight=0.01, scale=1e4)], synonyms=["a = b"])
    with opened() as kb:
        kb.set_ranking(declared)
        kb.learn(POPULAR)
        (boost,) = kb.ranking().boosts
        assert boost.weight > 0.1
        assert boost.scale == 1e4
        assert kb.ranking().synonyms == declared.synonyms
        kb.unlearn()
        assert kb.ranking() == declared


def test_another_declared_schema_replaces_learned_weights(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path / 'kb'}"
    with opened(url) as kb:
        assert kb.learn(POPULAR).fields == kb.schema.text
    other = Schema(text={"title": 1, "text": 1})
    with KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=DIM), schema=other) as kb:
        assert kb.schema == other


def test_a_scope_teaches_its_own_boosts_and_no_adapter() -> None:
    acme, beta = Scope("acme"), Scope("beta")
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(dim=DIM), schema=SCHEMA, require_scope=True
    ) as kb:
        for scope in (acme, beta):
            kb.add(passages()[: 4 * 20], scope=scope, show_progress=False)
        with pytest.raises(ScopeRequiredError):
            kb.learn(POPULAR)
        learned = kb.learn(POPULAR.only([f"q{n}" for n in range(20)]), scope=acme)
        assert learned.fields
        assert not learned.adapter
        assert kb.ranking(scope=acme).boosts
        assert not kb.ranking(scope=beta).boosts
        assert kb.unlearn()
        assert not kb.ranking(scope=acme).boosts


class Turned(FakeEmbedding):
    """Questions have other words than texts, and vectors that are turned away from theirs."""

    def _get_query_embedding(self, query: str) -> list[float]:
        vector = np.array(super()._get_query_embedding(query.replace("ask", "say")))
        turned: list[float] = (vector + 2 * np.roll(vector, 1)).tolist()
        return turned


def test_the_adapter_turns_questions_to_what_answers_them() -> None:
    random = np.random.default_rng(1)
    pairs = random.choice([*"bcdfghjklmnpqrstvwxz"], (70, 2, 2))
    texts = {f"n{n}": " ".join(f"say{a}{b}" for a, b in words) for n, words in enumerate(pairs)}
    questions = {id_: text.replace("say", "ask") for id_, text in texts.items()}
    left_out = [*texts][50:]
    judged = Judgements(questions, {id_: {id_: 1} for id_ in [*texts][:50]}, Level.NODE)
    with KnowledgeBase.open("embedded::memory:", embed_model=Turned(dim=DIM)) as kb:
        kb.add([TextNode(id_=id_, text=text) for id_, text in texts.items()], show_progress=False)

        def recall() -> float:
            results = {id_: kb.search(questions[id_], "vector", top_k=5) for id_ in left_out}
            return fmean(id_ in {hit.node_id for hit in hits} for id_, hits in results.items())

        before = recall()
        assert kb.learn(judged).adapter
        assert recall() > before + 0.1
        kb.unlearn()
        assert recall() == before


def test_judgements_that_cannot_be_read_leave_what_was_learned() -> None:
    with opened() as kb:
        kb.learn(POPULAR)
        taught = rankings(kb)
        with pytest.raises(ConfigurationError):
            kb.learn("nosuch.csv")
        assert rankings(kb) == taught
