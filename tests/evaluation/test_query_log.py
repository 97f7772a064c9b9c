"""Tests of `QueryLog`."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from llama_index.core import Document, MockEmbedding

from llama_retrieval_ext import Hit, KnowledgeBase, Query, QueryFusionRetriever, Scope
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.evaluation import Experiment, QueryLog
from llama_retrieval_ext.samples.construction_safety import open_construction_safety
from llama_retrieval_ext.testing import FakeRetriever

ACME, BETA = Scope("acme"), Scope("beta")
ANN = Scope("acme", principals=["user:ann", "staff"])
BOB = Scope("acme", principals=["user:bob", "staff"])
TEXTS = {"leave": "25 days of annual leave", "sick": "sick leave needs a note", "pay": "salary"}


@pytest.fixture
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as opened:
        documents = [Document(id_=id_, text=text) for id_, text in TEXTS.items()]
        for scope in (None, ACME, BETA):
            opened.add(documents, scope=scope, show_progress=False)
        yield opened


@pytest.fixture
def log() -> QueryLog:
    return QueryLog(":memory:")


def hits(*ids: str) -> list[Hit]:
    return [Hit(node=Document(id_=id_, text=id_), score=1.0) for id_ in ids]


def record(log: QueryLog, text: str, *ids: str, scope: Scope | None = None, ms: float = 1) -> str:
    return log.record(Query(text, scope=scope), hits(*ids), ms=ms, degraded=(), hints=())


async def test_every_search_is_recorded_once_while_a_log_is_set(
    kb: KnowledgeBase, log: QueryLog
) -> None:
    assert "query_id" not in kb.search("annual leave", "keyword").details
    kb.log = log
    result = kb.search("anual leave", "keyword", top_k=2)
    kb.retriever("keyword").retrieve("salary")
    await kb.asearch("sick note", "hybrid")
    kb.retriever("advanced").search("a note")
    Experiment([kb.retriever("keyword")], {"salary": "pay"}, measures=["RR"]).run(progress=False)
    kb.log = None
    kb.search("nobody hears this", "keyword")
    first, *others = log.queries()
    assert [query.question for query in others] == ["salary", "sick note", "a note"]
    assert first.query_id == result.details["query_id"] == result.to_dict()["query_id"]
    assert [node_id for node_id, _ in first.hits] == [hit.node_id for hit in result]
    assert first.corrected
    assert list(first.hints) == list(result.hints)


@pytest.mark.slow
def test_searches_over_a_graph_and_of_several_legs_are_recorded_once(log: QueryLog) -> None:
    graph, rules = open_construction_safety()
    with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4), graph=graph) as kb:
        kb.add([Document(text="Blasting was stopped.")], show_progress=False)
        kb.log = log
        legs = [kb.retriever("kg_rule", rules=rules), kb.retriever("keyword")]
        kb.retriever("knowledge", rules=rules).search("noise of blasting")
        result = legs[0].search("hazards of blasting")
        QueryFusionRetriever(legs, num_queries=1).search("blasting")
        kb.log = None
    first, second, third = log.queries()
    assert [query.question for query in (first, third)] == ["noise of blasting", "blasting"]
    assert result.hits
    assert [node_id for node_id, _ in second.hits] == [hit.node_id for hit in result]


def test_a_scope_reads_only_what_it_could_have_asked(log: QueryLog) -> None:
    scopes = {"none": None, "acme": ACME, "beta": BETA, "ann": ANN, "bob": BOB}
    for name, scope in scopes.items():
        record(log, f"question of {name}", "leave", scope=scope)
    read = {
        name: {query.question.split()[-1] for query in log.queries(scope=scope)}
        for name, scope in scopes.items()
    }
    assert read == {
        "none": {"none", "acme", "beta", "ann", "bob"},
        "acme": {"acme", "ann", "bob"},
        "beta": {"beta"},
        "ann": {"ann"},
        "bob": {"bob"},
    }
    log.clicked(log.queries(scope=ANN)[0].query_id, "leave")
    assert [*log.judgements(scope=ANN).queries] == ["question of ann"]
    with pytest.raises(ConfigurationError, match="nothing is relevant"):
        log.judgements(scope=BETA)


def test_a_log_requires_the_scope_that_its_knowledge_base_requires(tmp_path: Path) -> None:
    log = QueryLog(tmp_path / "queries.db")
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=MockEmbedding(4), require_scope=True
    ) as kb:
        kb.log = log
    log.close()
    with pytest.raises(ScopeRequiredError):
        QueryLog(tmp_path / "queries.db").report()


def test_deleting_a_scope_or_a_user_deletes_their_rows(kb: KnowledgeBase, log: QueryLog) -> None:
    kb.log = log
    for scope in (None, ACME, BETA, ANN, BOB):
        kb.search("annual leave", "keyword", scope=scope)
    assert log.delete(scope=Scope(principals=["user:ann"])) == 1
    assert [query.scope for query in log.queries()] == [None, ACME, BETA, BOB]
    kb.clear(scope=ACME)
    assert [query.scope for query in log.queries()] == [None, BETA]


def test_texts_can_be_left_out(kb: KnowledgeBase, tmp_path: Path) -> None:
    log = kb.log = QueryLog(f"sqlite:{tmp_path / 'queries.db'}", texts=False)
    result = kb.search("anual leave of Zephyrine", "keyword")
    log.clicked(result, result[0])
    assert log.queries()[0].corrected
    kb.log = None
    log.close()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Zephyrine" not in written
    assert b"anual" not in written
    with pytest.raises(ConfigurationError):
        QueryLog(tmp_path / "queries.db").judgements()


def test_rows_are_deleted_after_their_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = QueryLog(tmp_path / "queries.db", keep_days=30)
    record(log, "an old question", "leave")
    now = log.queries()[0].at
    monkeypatch.setattr("time.time", lambda: now + 31 * 86_400)
    assert log.queries() == []
    record(log, "a new question", "leave")
    assert "an old question" not in "".join(QueryLog(tmp_path / "queries.db").lines())


def test_a_log_is_read_from_lines_of_any_iterator(log: QueryLog) -> None:
    log.clicked(record(log, "annual leave", "leave", scope=ANN), "leave")
    log.answered(record(log, "salary", "pay"), good=False)
    copy = QueryLog.from_lines(iter([*log.lines()]))
    assert copy.queries() == log.queries()
    with pytest.raises(ConfigurationError, match="line 2"):
        QueryLog.from_lines([*[*log.lines()][:1], '{"hits": []}'])


def test_only_hits_of_a_logged_result_are_clicked(kb: KnowledgeBase, log: QueryLog) -> None:
    result = kb.search("annual leave", "keyword")
    with pytest.raises(ConfigurationError, match="set kb"):
        log.clicked(result, result[0])
    query_id = record(log, "annual leave", "leave")
    with pytest.raises(ConfigurationError, match="did not have the hit 'pay'"):
        log.clicked(query_id, "pay")
    with pytest.raises(ConfigurationError, match="no query 'x'"):
        log.answered("x", good=True)


def test_a_query_is_answered_although_its_log_cannot_be_written(
    kb: KnowledgeBase, log: QueryLog
) -> None:
    kb.log = log
    log.close()
    result = kb.search("annual leave", "keyword")
    assert result.hits
    assert [part.where for part in result.degraded] == ["log"]


def test_the_report_groups_questions_of_similar_words(log: QueryLog) -> None:
    for text in ("parental leave", "Parental leave?", "leave for parents", "salary"):
        record(log, text, ms=10)
    log.clicked(record(log, "annual leave days", "leave", ms=2000), "leave")
    log.answered(record(log, "days of annual leave", "leave", "sick"), good=False)
    report = log.report()
    rows = report.set_index(["problem", "question"])[["forms", "searches", "of"]].to_dict("index")
    assert {key: tuple(row.values()) for key, row in rows.items()} == {
        ("bad answer", "days of annual leave"): (1, 1, 2),
        ("no clicks", "days of annual leave"): (1, 1, 2),
        ("no hits", "Parental leave?"): (3, 3, 3),
        ("no hits", "salary"): (1, 1, 1),
        ("slow", "annual leave days"): (1, 1, 2),
    }


@pytest.mark.slow
def test_judgements_correct_clicks_for_position(log: QueryLog) -> None:
    # People look at rank r with probability 1/r; the relevant document never stands first.
    random = np.random.default_rng(0)
    raw: Counter[str] = Counter()
    for number in range(12):
        for _ in range(60):
            order = [*random.permutation(["a", "b", "c", "d"])]
            order.insert(random.integers(2, 5), "relevant")
            query_id = record(log, f"topic{number}", *order)
            for rank, document in enumerate(order, start=1):
                attraction = 0.5 if document == "relevant" else 0.2
                if random.random() < attraction / rank:
                    log.clicked(query_id, document)
                    raw[document] += rank == 1
    judged = log.judgements()
    rows = [*judged.relevant.values()]
    assert judged.origin == "clicks"
    assert all(row["relevant"] >= 1 for row in rows)
    assert fmean(row["relevant"] for row in rows) > 2.5 * fmean(row["a"] for row in rows)
    assert raw["relevant"] < raw["a"]
    Experiment({"x": FakeRetriever([("a", 1.0)])}, judged, measures=["RR"]).run(progress=False)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "queries.db").write_text("no database")
    with pytest.raises(ConnectionError, match="cannot be opened"):
        QueryLog(tmp_path / "queries.db")
