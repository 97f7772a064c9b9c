"""Boosts, pins and blocks of a knowledge base: against an oracle, by scope, after all stages."""

import asyncio
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext import KnowledgeBase, Query, Ranking, Schema, Scope, Top
from llama_retrieval_ext.errors import ConfigFileError, ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.filter_syntax import as_metadata_filters, parse_filter_texts
from llama_retrieval_ext.filters import AllOf, Not, matches, parse_filters
from llama_retrieval_ext.hits import score_of
from llama_retrieval_ext.knowledge_base.copy import copy_knowledge_base
from llama_retrieval_ext.knowledge_base.kinds import Kind
from llama_retrieval_ext.results import Hit, SearchResult
from llama_retrieval_ext.stages import RRF, Block, Boost, LongContextReorder, Pin
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.engines import SERVERS, place, start
from tests.quick import in_turn, trials

WORDS = ["annual", "leave", "days", "lunch", "sick"]
TENANTS, KBS, USERS = ["t1", "t2"], ["k1", "k2"], ["user:ann", "user:bob"]


def titles(result: SearchResult) -> list[str | None]:
    return [hit.node.ref_doc_id for hit in result]


def filled(kb: KnowledgeBase, draw: random.Random) -> None:
    lengths = iter(draw.sample(range(40), 36))  # no two have the same score
    for tenant in TENANTS:
        for kb_id in KBS:
            documents = [
                Document(
                    id_=f"{tenant}{kb_id}{number}",
                    text=" ".join([*draw.choices(WORDS, k=6), *["x"] * next(lengths)]),
                    metadata={
                        "votes": draw.choice([0, 3, 50, 900]),
                        "lang": draw.choice(["en", "de"]),
                        "day": draw.choice(["2020-05-01", "2026-11-01"]),
                        "tags": draw.sample(WORDS, draw.randint(0, 2)),
                        "allowed": draw.sample(USERS, draw.randint(0, 2)) or ["user:ann"],
                    },
                    excluded_embed_metadata_keys=["votes", "lang", "day", "tags", "allowed"],
                )
                for number in range(9)
            ]
            for document in documents:
                if draw.random() < 0.5:
                    del document.metadata["allowed"]
            kb.add(documents, scope=Scope(tenant, [kb_id]), show_progress=False)


def drawn_rules(draw: random.Random) -> Ranking:
    boosts = [
        Boost(number="votes", weight=draw.choice([0.3, 0.7, -0.5]), scale=100),
        Boost(number="votes", weight=0.4, curve="saturation", scale=20),
        Boost(where="lang=en", weight=draw.choice([0.5, -0.5, -1])),
        Boost(date="day", weight=0.3, half_life=100_000),
    ]
    names = [f"{t}{k}{n}" for t in TENANTS for k in KBS for n in range(9)]
    pins = [
        Pin(draw.choice(names), position=draw.randint(1, 7), query=draw.choice(["", *QUESTIONS]))
        for _ in range(draw.randint(0, 3))
    ]
    blocks = [
        *(Block(draw.choice(names)) for _ in range(2)),
        *(Block(where=where) for where in ("votes>=900", "lang=de")),
    ]
    return Ranking(
        boosts=draw.sample(boosts, draw.randint(0, 2)),
        pins=pins,
        blocks=draw.sample(blocks, draw.randint(0, 3)),
    )


SCHEMA = Schema(text={"text": 1, "tags": 0.5})
QUESTIONS = ["annual leave", "Lunch of the SICK?", "days"]


class Oracle:
    """The rules in plain Python, over all hits of a search without rules."""

    def __init__(self, nodes: list[BaseNode], rules: dict[Scope | None, Ranking]) -> None:
        self.nodes, self.rules = nodes, rules

    def active(self, query: Query) -> list[tuple[Scope | None, Ranking]]:
        scope = query.scope
        return [
            (owner, rules)
            for owner, rules in self.rules.items()
            if owner is None
            or (
                scope is not None
                and owner.tenant_id in (None, scope.tenant_id)
                and (not owner.kb_ids or not scope.kb_ids or {*owner.kb_ids} & {*scope.kb_ids})
            )
        ]

    def unblocked(self, query: Query) -> Query:
        """The query with blocks as filters, which count for term statistics of Milvus Lite."""
        for owner, rules in self.active(query):
            for block in rules.blocks:
                if block.where:
                    where = parse_filters(parse_filter_texts([block.where]))  # type: ignore[arg-type]
                    own = where if owner is None else AllOf((owner.condition, where))
                    query = query.but(filters=as_metadata_filters(Not(own)))
        return query

    def ranking(self, query: Query, hits: list[Hit], top_k: int) -> list[str]:
        active = self.active(query)

        def concerns(scope: Scope | None, node: BaseNode) -> bool:
            return scope is None or matches(scope.condition, node.metadata)

        def is_blocked(node: BaseNode) -> bool:
            return any(
                concerns(scope, node)
                and (
                    block.document == node.ref_doc_id or (block.where and holds(block.where, node))
                )
                for scope, rules in active
                for block in rules.blocks
            )

        scored: dict[str, float] = {}
        for hit in hits:
            if not is_blocked(hit.node):
                score = score_of(hit)
                shares = [
                    abs(score) * boost.weight * boost.value(hit.node.metadata)
                    for scope, rules in active
                    for boost in rules.boosts
                    if concerns(scope, hit.node)
                ]
                scored[hit.node.ref_doc_id or ""] = math.fsum([score, *shares])
        ids = {hit.node.ref_doc_id or "": hit.node_id for hit in hits}
        ranking = sorted(scored, key=lambda name: (-scored[name], ids[name]))
        visible = {
            node.ref_doc_id: node
            for node in self.nodes
            if matches(query.condition, node.metadata) and not is_blocked(node)
        }
        first: dict[str, int] = {}
        pins = [
            (pin, scope)
            for scope, rules in sorted(active, key=lambda each: key_of(each[0]), reverse=True)
            for pin in rules.pins
            if not pin.query or normal(pin.query) == normal(query.query_str)
        ]
        for pin, scope in sorted(pins, key=lambda each: each[0].position):
            if pin.document in visible and concerns(scope, visible[pin.document]):
                first.setdefault(pin.document, pin.position)
        others = [name for name in ranking if name not in first]
        for name, at in first.items():
            others.insert(at - 1, name)
        return others[:top_k]


def key_of(scope: Scope | None) -> str:
    from llama_retrieval_ext.knowledge_base.rankings import scope_key  # noqa: PLC0415 - its order

    return scope_key(scope)


def normal(question: str) -> list[str]:
    return question.casefold().replace("of the ", "").strip("?").split()


def holds(where: str, node: BaseNode) -> bool:
    filters = parse_filter_texts([where])
    assert filters is not None
    return matches(parse_filters(filters), node.metadata)


@pytest.fixture(params=[pytest.param("embedded", marks=pytest.mark.slow), *in_turn(*SERVERS)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    start(request.param, request)
    with place(request.param, tmp_path, request) as found:
        yield found


def test_rules_agree_with_an_oracle_on_each_engine(url: str) -> None:
    draw = random.Random(11)
    with KnowledgeBase.open(url, embed_model=FakeEmbedding(), schema=SCHEMA) as kb:
        filled(kb, draw)
        oracle = Oracle(kb.nodes(), {})
        scopes = [None, Scope("t1"), Scope("t2", ["k1"]), Scope("t1", ["k1", "k2"])]
        for round_ in range(trials(5)):
            for scope in draw.sample(scopes, 2):
                oracle.rules[scope] = kb.set_ranking(drawn_rules(draw), scope=scope)
            rules = {key_of(scope): rules for scope, rules in oracle.rules.items()}
            oracle.rules = {
                scope: rules[key_of(scope)] for scope in sorted(oracle.rules, key=key_of)
            }
            for _ in range(12):
                narrowed = draw.choice([None, *scopes[1:], Scope("t2"), Scope("t1", ["k2"])])
                if narrowed is not None and draw.random() < 0.5:
                    narrowed = Scope(
                        narrowed.tenant_id, narrowed.kb_ids, draw.choice([[], USERS[:1]])
                    )
                filters: MetadataFilters | None = draw.choice(
                    [None, parse_filter_texts(["lang=de"]), parse_filter_texts(["votes>0"])]
                )
                mode: Kind = draw.choice(["keyword", "vector", "hybrid"])
                fields = None if mode == "vector" else draw.choice([None, {"text": 2, "tags": 1}])
                query = Query(
                    draw.choice(QUESTIONS), scope=narrowed, filters=filters, fields=fields
                )
                top_k = draw.choice([1, 3, 10, 30])
                plain = kb.retriever(mode, top_k=100)
                plain.curation = None
                hits = plain.search(oracle.unblocked(query)).hits
                expected = oracle.ranking(query, hits, top_k)
                found = kb.search(query, mode, top_k=top_k)
                # Which of the hits that tie with the last one are returned is open.
                scores = {hit.node.ref_doc_id: score_of(hit) for hit in hits}
                least = min((scores[name] for name in expected if name in scores), default=0.0)
                rankings = [
                    [name for name in names if scores.get(name) != least]
                    for names in (titles(found), expected)
                ]
                case = (round_, query, mode, top_k, oracle.rules)
                assert len(found) == len(expected), case
                assert rankings[0] == rankings[1], case
                for hit in found:
                    if hit.contributions:
                        shares = math.fsum(part.share for part in hit.contributions)
                        assert shares == pytest.approx(score_of(hit))


@pytest.fixture
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as opened:
        texts = ["annual leave", "annual leave days", "annual", "lunch", "leave of absence"]
        documents = [
            Document(
                id_=f"d{number}", text=text, metadata={"votes": number, "file_path": f"/x/{number}"}
            )
            for number, text in enumerate(texts)
        ]
        opened.add(documents, show_progress=False)
        yield opened


def test_blocked_hits_make_room_although_boosts_are_small(kb: KnowledgeBase) -> None:
    metadata = {"file_path": "/x/long"}
    parts = [Document(id_=f"p{n}", text="annual leave", metadata=metadata) for n in range(4)]
    kb.add(parts, show_progress=False)
    boosts, blocks = [Boost(where="votes>1", weight=0.1)], [Block("/x/long"), Block("d0")]
    kb.set_ranking(Ranking(boosts=boosts, blocks=blocks))
    assert titles(kb.search("annual leave", "hybrid", top_k=2))[0] == "d1"
    many = [f"b{n}" for n in range(40)]
    kb.add([Document(id_=name, text="annual leave") for name in many], show_progress=False)
    kb.set_ranking(Ranking(boosts=boosts, blocks=[*blocks, *map(Block, many)]))
    assert titles(kb.search("annual leave", "hybrid", top_k=2))[0] == "d1"


def test_a_pinned_document_beyond_the_hits_shows_its_passage_for_the_question(
    kb: KnowledgeBase,
) -> None:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="long")}
    texts = ["rules", "rules for the absence and the leave of visitors of a house"]
    kb.add(
        [
            TextNode(id_=f"p{at}", text=text, start_char_idx=at, relationships=source)
            for at, text in enumerate(texts)
        ],
        show_progress=False,
    )
    kb.set_ranking(Ranking(pins=[Pin("long")]))
    assert kb.search("annual leave", "keyword", top_k=1)[0].node_id == "p1"


class Reversed:
    """A reranker that would push any hit away."""

    def rerank(self, query: str, documents: list[str]) -> list[float]:
        return [float(number) for number in range(len(documents))]


MODES: list[Kind] = [
    "vector",
    "keyword",
    "hybrid",
    "bm25",
    "basic",
    "advanced",
    "semantic",
    "fusion",
]


@pytest.mark.slow
@cases("mode", MODES)
def test_rules_hold_in_every_mode_after_all_stages(kb: KnowledgeBase, mode: Kind) -> None:
    kb.set_ranking(Ranking(pins=[Pin("d3"), Pin("/x/4", position=2)], blocks=[Block("d0")]))
    for result in (
        kb.search("annual leave", mode, top_k=3),
        asyncio.run(kb.asearch("annual leave", mode, top_k=3)),
    ):
        assert titles(result)[:2] == ["d3", "d4"]
        assert "d0" not in titles(result)
        assert len(result) <= 3
        assert result[0].contributions[-1].leg == "pin"


def test_rules_survive_the_stages_of_a_pipeline(kb: KnowledgeBase) -> None:
    kb.set_ranking(Ranking(pins=[Pin("d3", position=2)], boosts=[Boost(number="votes", weight=9)]))
    legs = (kb.retriever("vector") | kb.retriever("keyword")) >> RRF()
    for pipeline in (legs, legs >> Top(3), kb.retriever("keyword") >> Top(2)):
        result = pipeline.search("anual leave")
        assert titles(result)[1] == "d3"
        assert titles(result)[0] != "d0"  # by votes
        assert str(result.corrected) == "searched for 'annual' instead of 'anual'"
        assert len(result.hints) == 1
    assert len((legs >> Top(3)).search("annual leave")) == 3
    narrowed = (kb.retriever("vector", filters=parse_filter_texts(["votes<3"])) | legs) >> RRF()
    assert "d3" in titles(narrowed.search("annual leave"))  # of one leg
    filtered = kb.retriever("keyword", filters=parse_filter_texts(["votes<3"])) >> Top(3)
    assert "d3" not in titles(filtered.search("annual leave"))
    assert titles((kb.retriever() >> LongContextReorder()).search("annual leave"))


def test_each_rule_is_explained(kb: KnowledgeBase) -> None:
    rules = [Boost(number="votes", weight=0.5), Boost(where="votes=1", weight=-0.5)]
    blocks = [Block(where="votes=2"), Block("d4")]
    kb.set_ranking(Ranking(boosts=rules, pins=[Pin("d3", position=2)], blocks=blocks))
    explained = kb.retriever("hybrid").explain("annual leave")
    shown = str(explained)
    assert "ranking rules" in shown
    assert "boost votes #" in shown
    assert "boost votes=1 #" in shown
    assert "pin #2" in shown
    assert "not (votes == 2)" in shown
    blocked = {node.ref_doc_id: node.node_id for node in kb.nodes()}
    assert "was left out by hybrid" in str(explained.why_not(blocked["d4"]))
    assert explained.to_dict()["hits"]


@pytest.mark.slow
def test_many_blocks_with_filters_are_one_condition_of_a_query(kb: KnowledgeBase) -> None:
    wheres = [*(f"votes={number}" for number in range(100, 298)), "votes=1", "votes=2"]
    kb.set_ranking(Ranking(blocks=[Block(where=where) for where in wheres]))
    assert {hit.metadata["votes"] for hit in kb.search("annual leave")}.isdisjoint({1, 2})
    with pytest.raises(ConfigurationError, match="at most 200 blocks with a filter"):
        Ranking(blocks=[Block(where=where) for where in [*wheres, "votes=3"]])


@pytest.mark.slow
def test_rules_are_recorded_hot_and_those_of_a_scope(tmp_path: Path) -> None:
    url, model = f"embedded:{tmp_path / 'kb'}", FakeEmbedding()
    file = tmp_path / "ranking.yaml"
    file.write_text("pins:\n  - document: b\n", encoding="utf-8")
    acme, zen = Scope("acme"), Scope("zen")
    words = {"a": "apple", "b": "banana", "c": "cherry"}
    with KnowledgeBase.open(url, embed_model=model) as kb:
        for scope in (acme, zen):
            kb.add(
                [Document(id_=id_, text=f"leave {word}") for id_, word in words.items()],
                scope=scope,
            )
        with KnowledgeBase.open(url, embed_model=model) as other:
            retriever = other.retriever("keyword", scope=acme)
            before = titles(retriever.search("leave apple"))
            assert before[0] == "a"
            kb.set_ranking(file, scope=acme)
            assert titles(retriever.search("leave apple")) == ["b", "a", "c"]
            assert titles(other.search("leave apple", "keyword", scope=zen)) == before
            assert titles(other.search("leave apple", "keyword"))[0] == "a"  # of all tenants
            assert other.ranking(scope=acme) == Ranking(pins=[Pin("b")])
            assert other.ranking() == Ranking()
            kb.share("b", allowed=["user:ann"], scope=acme)
            bob = Scope("acme", principals=["user:bob"])
            assert titles(other.search("leave apple", "keyword", scope=bob)) == ["a", "c"]
    with KnowledgeBase.open(url, embed_model=model) as kb:
        assert titles(kb.search("leave apple", "keyword", scope=acme))[0] == "b"
        kb.set_ranking(None, scope=acme)
        assert titles(kb.search("leave apple", "keyword", scope=acme))[0] == "a"
        many = Ranking(pins=[Pin(f"document {number}") for number in range(3000)])
        kb.set_ranking(many, scope=acme)  # longer than a record
        assert kb.ranking(scope=acme) == many


def test_a_pin_for_all_is_of_any_tenant_that_the_query_sees() -> None:
    acme, zen = Scope("acme"), Scope("zen")
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        for scope, allowed in ((acme, ["user:ann"]), (zen, None)):
            kb.add([Document(id_="a", text="apple")], scope=scope, show_progress=False)
            kb.add([Document(id_="b", text="banana")], scope=scope, allowed=allowed)
        kb.set_ranking(Ranking(pins=[Pin("b")]))
        assert titles(kb.search("apple", "keyword", top_k=1)) == ["b"]
        assert titles(kb.search("apple", "keyword", scope=zen)) == ["b", "a"]
        bob, ann = (Scope("acme", principals=[user]) for user in ("user:bob", "user:ann"))
        assert titles(kb.search("apple", "keyword", scope=bob)) == ["a"]
        assert titles(kb.search("apple", "keyword", scope=ann)) == ["b", "a"]
        assert titles(kb.search("apple", "keyword", scope=Scope("new"))) == []


def test_a_copy_has_the_rules_of_each_scope(tmp_path: Path) -> None:
    source, target = f"embedded:{tmp_path / 'a'}", f"embedded:{tmp_path / 'b'}"
    of_acme, of_all = Ranking(pins=[Pin("a")]), Ranking(blocks=[Block("b")])
    with KnowledgeBase.open(source, embed_model=FakeEmbedding()) as kb:
        kb.set_ranking(of_acme, scope=Scope("acme"))
        kb.set_ranking(of_all)
    copy_knowledge_base(source, target, show_progress=False)
    with KnowledgeBase.open(target, embed_model=FakeEmbedding()) as kb:
        assert (kb.ranking(scope=Scope("acme")), kb.ranking()) == (of_acme, of_all)


def test_rules_that_cannot_be_recorded_are_refused(kb: KnowledgeBase, tmp_path: Path) -> None:
    of_ann = Scope("acme", principals=["user:ann"])
    with pytest.raises(ConfigurationError, match="principals"):
        kb.set_ranking(Ranking(), scope=of_ann)
    with pytest.raises(ConfigurationError, match="principals"):
        kb.ranking(scope=of_ann)
    with pytest.raises(ConfigFileError, match="cannot be read"):
        kb.set_ranking(tmp_path / "none.yaml")
    url, model = "embedded::memory:", FakeEmbedding()
    with (
        KnowledgeBase.open(url, embed_model=model, require_scope=True) as strict,
        pytest.raises(ScopeRequiredError),
    ):
        strict.set_ranking(Ranking())


@pytest.mark.slow
def test_a_pinned_document_shows_its_best_hit(kb: KnowledgeBase) -> None:
    long = " ".join(f"Paragraph {n} is about work." for n in range(400))
    kb.add([Document(id_="long", text=f"{long} The zeppelin flies. {long}")], show_progress=False)
    kb.set_ranking(Ranking(pins=[Pin("long")]))
    (first, *_) = kb.search("zeppelin", "keyword")
    assert "zeppelin" in first.text
    (other, *_) = kb.search("annual", "keyword", top_k=1)
    assert (other.node.ref_doc_id, other.start) == ("long", 0)


def test_rules_need_no_more_than_the_hits(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:  # Any: whatever it is called with
        raise AssertionError

    kb.search("annual leave")  # reads the rules
    monkeypatch.setattr(type(kb._ledger), "rankings", never)
    assert kb.search("annual leave")


def test_synonyms_are_searched_with_half_of_the_weight_on_each_engine(url: str) -> None:
    model, acme = FakeEmbedding(), Scope("acme")
    texts = {
        "word": "the laptop of one",
        "synonym": "the notebook of one",
        "phrase": "the continuous integration",
        "chinese": "笔记本电脑规定",
        "other": "the lunch of one",
    }
    with KnowledgeBase.open(url, embed_model=model) as kb:
        for scope in (acme, Scope("zen")):
            documents = [Document(id_=id_, text=text) for id_, text in texts.items()]
            kb.add(documents, scope=scope, show_progress=False)
        plain = {
            hit.node.ref_doc_id: score_of(hit)
            for hit in kb.search("notebook", "keyword", scope=acme)
        }
        before = {
            hit.node.ref_doc_id: score_of(hit) for hit in kb.search("laptop", "keyword", scope=acme)
        }
        rules = ["laptop = notebook = 笔记本", "CI -> continuous integration"]
        kb.set_ranking(Ranking(synonyms=rules), scope=acme)
        result = kb.search("Laptops", "keyword", scope=acme)
        scores = {hit.node.ref_doc_id: score_of(hit) for hit in result}
        assert scores["word"] == pytest.approx(before["word"], rel=1e-3)
        assert scores["synonym"] == pytest.approx(plain["synonym"] / 2, rel=1e-3)
        assert {"word", "synonym", "chinese"} == {*scores}
        marked = {hit.node.ref_doc_id: [mark.text for mark in hit.highlights] for hit in result}
        assert (marked["synonym"], marked["chinese"]) == (["notebook"], ["笔记本"])
        assert "<mark>notebook</mark>" in result._repr_html_()
        assert titles(kb.search("the CI", "keyword", scope=acme)) == ["phrase"]
        assert titles(kb.search("integration", "keyword", scope=acme)) == ["phrase"]
        assert titles(kb.search("笔记本", "keyword", scope=acme))[0] == "chinese"
        assert titles(kb.search("CI", "keyword", scope=Scope("zen"))) == []
        hybrid = kb.retriever("hybrid", scope=acme).explain("laptop")
        by_words = {
            hit.node.ref_doc_id
            for hit in hybrid
            for part in hit.contributions
            if part.leg == "keyword" and part.rank
        }
        assert by_words == {"word", "synonym", "chinese"}
        assert "synonyms notebook, 笔记本 (weight 0.5)" in str(hybrid)
