"""Hints: what was looked for and is not there, the same at every entrance, within the scope."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pytest
from llama_index.core import Document
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext import RRF, BM25Retriever, CapabilityFactory, KnowledgeBase, Scope, Top
from llama_retrieval_ext.config import Registry
from llama_retrieval_ext.evaluation import Experiment
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.hints import Metadata, Passages
from llama_retrieval_ext.execution.plan import Plan, finished
from llama_retrieval_ext.filters import Condition, matches
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.services import SearchService
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from tests.cases import cases

ACME, OTHER = Scope("acme", principals=["user:ann"]), Scope("other", principals=["user:ann"])
NO_KEY = "no passage in this scope has the key 'yaer'; there are 'year', 'author', 'tags', 'title'"


def where(key: str, value: Any, operator: str = "==") -> MetadataFilters:
    one = MetadataFilter(key=key, value=value, operator=FilterOperator(operator))
    return MetadataFilters(filters=[one])


WRONG = where("yaer", 2024)


@pytest.fixture(scope="module")
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as opened:
        metadata = {"year": 2024, "title": "Leave", "tags": ["hr"], "author": {"name": "Ann"}}
        leave = Document(text="Annual leave is 25 days.", metadata=metadata)
        opened.add([leave], scope=Scope("acme"), show_progress=False)
        secret = Document(text="A raise.", metadata={"yeer": 1, "allowed": ["user:bob"]})
        opened.add([secret], scope=Scope("acme"), show_progress=False)
        open_only = Document(text="Lunch.", metadata={"yaer": "x"})
        opened.add([open_only], scope=Scope("other"), show_progress=False)
        yield opened


@cases(
    ("filters", "hints"),
    [
        (WRONG, [NO_KEY]),
        (where("year", "2024"), ["'year' is a number here, and the filter has the string '2024'"]),
        (where("year", ["2024"], "in"), ["'year' is a number here, and the filter has the string"]),
        (where("tags", "hr"), ["'tags' is a list here, and CONTAINS, ANY and ALL look into lists"]),
        (where("title", ["Leave"], "any"), ["'title' is a string here, and ANY is for lists"]),
        (where("title", "Leeve"), ["no passage in this scope has 'Leeve' as 'title'; there is"]),
        (where("title", 5, ">"), ["'title' is a string here, and the filter has the number 5"]),
        (where("yeer", 1), ["no passage in this scope has the key 'yeer'; there are 'year', "]),
        (where("year", 2030, ">"), []),
        (
            where("author.name", "Ann"),
            ["no passage in this scope has the key 'author.name'; 'author' is a dict, into which "],
        ),
    ],
)
def test_a_filter_that_nothing_satisfies_is_explained(
    kb: KnowledgeBase, filters: MetadataFilters, hints: Sequence[str]
) -> None:
    for mode in ("vector", "keyword", "hybrid"):
        found = kb.search("annual leave", mode, filters=filters, scope=ACME)
        assert (found.hits, len(found.hints)) == ([], len(hints)), mode
        assert all(map(str.startswith, found.hints, hints)), (mode, found.hints)
        assert kb.search("annual leave", mode, scope=ACME).hints == ()


@cases("mode", ["vector", "keyword", "hybrid"])
def test_a_filter_without_effect_and_a_blank_query_are_named(kb: KnowledgeBase, mode: Any) -> None:
    filters = where("author.name", "Ann", "!=")
    (hint,) = kb.search("annual leave", mode, filters=filters, scope=ACME).hints
    assert hint.startswith("'author' is a dict, into which filters do not look")
    assert hint.endswith("; the filter on it has no effect")
    misspelt = kb.search("annual leave", mode, filters=where("yaer", 2024, "!="), scope=ACME)
    assert (len(misspelt), misspelt.hints) == (1, (NO_KEY,))
    assert kb.search("annual leave", mode, filters=where("year", 1, "!="), scope=ACME).hints == ()
    assert "the query is blank" in kb.search(" \n", mode, scope=ACME).hints


def test_groups_are_explained_by_the_parts_that_nothing_satisfies(kb: KnowledgeBase) -> None:
    either = [*WRONG.filters, *where("title", 1).filters]
    grouped = MetadataFilters(filters=either, condition=FilterCondition.OR)
    negated = MetadataFilters(filters=WRONG.filters, condition=FilterCondition.NOT)
    both = MetadataFilters(filters=[*where("year", 2024).filters, grouped, negated])
    hints = kb.search("leave", filters=both, scope=ACME).hints
    assert hints == (NO_KEY, "'title' is a string here, and the filter has the number 1")
    assert kb.search("leave", filters=negated, scope=ACME).hints == (NO_KEY,)


def test_an_empty_scope_and_words_that_no_passage_has_are_named(kb: KnowledgeBase) -> None:
    assert kb.search("x", scope=Scope("nobody", principals=[])).hints == (
        "no passage in this scope can be found: there is none",
    )
    assert kb.search("zeppelin", "keyword", scope=ACME).hints == (
        "no passage in this scope has a word of the query",
    )
    assert BM25Retriever([]).search("x").hints == (
        "keyword search had no texts: there are no nodes",
    )
    bm25 = BM25Retriever([TextNode(text="leave", metadata={"year": 1})])
    hints = bm25.search("leave", filters=WRONG).hints
    assert hints == ("no passage has the key 'yaer'; there is 'year'",)


@pytest.mark.slow
def test_every_entrance_shows_the_same_hints(kb: KnowledgeBase) -> None:
    found = kb.search("annual leave", filters=WRONG, scope=ACME)
    assert found.hints == (NO_KEY,)
    assert found.to_dict()["hints"] == [NO_KEY]
    assert f"\n  hint: {NO_KEY}" in repr(found)
    assert "hint: no passage in this scope has the key" in found._repr_html_()
    retriever = kb.retriever(scope=ACME, filters=WRONG)
    returned: Any = [retriever.retrieve("annual leave")]
    returned += [asyncio.run(retriever.aretrieve("annual leave"))]
    assert [(hits, hits.hints, hits.degraded) for hits in returned] == [([], (NO_KEY,), ())] * 2
    explained = kb.retriever().explain("annual leave", filters=WRONG, scope=ACME)
    assert explained.hints == (NO_KEY,)
    assert f"hint: {NO_KEY}" in repr(explained)
    assert "hint: no passage in this scope has the key" in explained._repr_html_()
    legs = (kb.retriever("vector") | kb.retriever("keyword")) >> RRF() >> Top(3)
    assert legs.search("annual leave", filters=WRONG, scope=ACME).hints == (NO_KEY,)
    assert asyncio.run(legs.asearch("leave", filters=WRONG, scope=ACME)).hints == (NO_KEY,)
    (many,) = legs.search_many([Query("leave", filters=WRONG, scope=ACME)])
    assert many.hints == (NO_KEY,)
    *_, streamed = legs.stream(Query("leave", filters=WRONG, scope=ACME))
    assert streamed.hints == (NO_KEY,)
    operator = Registry().bind(kb).get("retriever", "hybrid")()
    records = asyncio.run(
        operator.retrieve(
            "leave", tenant_id="acme", principals=["user:ann"], filters=WRONG, top_k=3
        )
    )
    assert (records, records.hints, records.degraded) == ([], (NO_KEY,), ())


@pytest.mark.slow
def test_services_and_experiments_show_them(kb: KnowledgeBase) -> None:
    factory = CapabilityFactory.of(kb, llm=ScriptedLLM(["no"]))
    documents = SearchService.of(factory).search("leave", filters=WRONG, scope=ACME)
    assert (documents, documents.hints) == ([], (NO_KEY,))
    rag = factory.create_rag_generator()
    answer = rag.generate(Query("leave", filters=WRONG, scope=ACME))
    assert (answer.hints, answer.to_dict()["hints"]) == ((NO_KEY,), [NO_KEY])
    bound = kb.retriever(filters=WRONG, scope=ACME)
    judged = pd.DataFrame([("leave", "a")], columns=["question", "document"])
    experiment = Experiment({"bound": bound}, judged).run(progress=False, warm_up=False)
    assert experiment.per_query["hints"].tolist() == [NO_KEY]


def test_a_failing_leg_is_shown_by_the_records_of_an_operator(kb: KnowledgeBase) -> None:
    def down(prompt: str) -> str:
        raise RuntimeError("LLM down")

    operator = Registry().bind(kb, llm=ScriptedLLM(down)).get("retriever", "multi_query")()
    records = asyncio.run(operator.retrieve("leave", tenant_id="acme", top_k=3))
    assert records
    assert [str(each) for each in records.degraded] == ["MultiQuery: RuntimeError: LLM down"]


FAR = "no words in common; the nearest in meaning is far away"


class Synonyms(FakeEmbedding):
    """Knows that a holiday is a leave."""

    def _embed(self, text: str) -> list[float]:
        return super()._embed(text.replace("holiday", "leave"))


@cases("makes_legs", [False, True])
def test_nonsense_is_told_from_a_question_in_other_words(makes_legs: bool) -> None:
    model = Synonyms()
    with KnowledgeBase.open("embedded::memory:", embed_model=model) as kb:
        texts = ["annual leave", "lunch at noon", "sick note"]
        kb.add([Document(id_=text, text=text) for text in texts], show_progress=False)
        hybrid = kb.retriever(pushdown=False, candidates=2)
        if makes_legs:
            vars(hybrid)["_engine"] = None
        found = {query: hybrid.search(query) for query in ("qqqzzz", "annual", "holiday")}
        assert all(found.values())
        assert {query: result.hints for query, result in found.items()} == {
            "qqqzzz": (FAR,),
            "annual": (),
            "holiday": (),
        }
        calls = len(model.calls)
        assert hybrid.search("qqqzzz").hints == (FAR,)
        assert len(model.calls) == calls + 1  # what is compared with is embedded once
        either = (hybrid | kb.retriever("keyword")) >> RRF()
        assert either.search("qqqzzz").hints == (FAR,)
        assert hybrid.retrieve("qqqzzz")


class Counted:
    """A thousand passages, of which few have a key; counts what is read."""

    def __init__(self) -> None:
        self.rows: list[Metadata] = [{"n": n} for n in range(1000)] + [{"rare": "x"}]
        self.read_rows = 0

    def read(self, condition: Condition | None, limit: int) -> Plan[list[Metadata]]:
        rows = [row for row in self.rows if matches(condition, row)][:limit]
        self.read_rows += len(rows)
        return finished(rows)


@cases(
    ("is_exact", "hint"),
    [
        (True, "'rare' is a string here, and the filter has the number 1"),
        (False, "none of 200 passages looked at has the key 'rare'; there is 'n'"),
    ],
)
def test_what_a_sample_lacks_is_looked_up_or_not_claimed(is_exact: bool, hint: str) -> None:
    counted = Counted()
    passages = Passages(counted.read, is_exact)
    assert run(passages.hints(Query("q", filters=where("rare", 1)))) == [hint]
    assert counted.read_rows <= 201
