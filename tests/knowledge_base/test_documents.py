"""Random ids of readers, digests, and the dates of documents on each engine."""

import random
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from llama_index.core import Document, SimpleDirectoryReader
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, MediaResource, TextNode

from llama_retrieval_ext import KnowledgeBase, Query, Scope, SearchResult, Top
from llama_retrieval_ext.config import from_yaml, to_yaml, validate_yaml
from llama_retrieval_ext.dates import instant, now
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError, UnstableIdWarning
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.knowledge_base import documents
from llama_retrieval_ext.knowledge_base.kinds import Kind
from llama_retrieval_ext.testing import FakeEmbedding
from tests.knowledge_base.readers.sample_files import write_pdf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "leave.md").write_text("# Leave\n\n25 days.\n\n# Sick leave\n\nCall at nine.\n")
    (folder / "staff.csv").write_text("name,role\nAnn,welder\nBob,clerk\n")
    write_pdf(folder / "law.pdf", "Exits must be marked.", "Drills are held twice a year.")
    return folder


def read(folder: Path) -> list[Document]:
    return SimpleDirectoryReader(str(folder)).load_data()


def section(text: str, file: str = "/far/a.md", **metadata: object) -> Document:
    """As a reader makes it."""
    return Document(id_=str(uuid4()), text=text, metadata={"file_path": file, **metadata})


def texts(kb: KnowledgeBase) -> list[str]:
    return [node.get_content() for source in kb.sources() for node in kb.get(source.source)]


def open_at(place: Path) -> KnowledgeBase:
    return KnowledgeBase.open(f"embedded:{place}", embed_model=FakeEmbedding(dim=16))


@pytest.mark.slow
def test_a_folder_added_twice_is_stored_once_also_after_a_file_changed(
    folder: Path, tmp_path: Path
) -> None:
    documents = read(folder)
    with open_at(tmp_path / "kb") as kb:
        assert kb.add(documents, show_progress=False).added == len(documents)
        n_nodes = kb.count()
        kb.add(read(folder), show_progress=False)
        assert (len(kb.documents()), kb.count()) == (len(documents), n_nodes)
    (folder / "leave.md").write_text("# Leave\n\n30 days.\n\n# Sick leave\n\nCall at nine.\n")
    with open_at(tmp_path / "kb") as kb:  # and by another process
        kb.add(iter(read(folder)), show_progress=False)
        assert (len(kb.documents()), kb.count()) == (len(documents), n_nodes)
        assert not any("25 days" in text for text in texts(kb))
        assert any("30 days" in text for text in texts(kb))
        assert kb.delete(str(folder / "law.pdf")) == 2


def test_documents_of_a_file_that_are_added_one_by_one_do_not_replace_each_other(
    kb: KnowledgeBase,
) -> None:
    for _ in range(2):
        for text in ("Leave: 25 days.", "Sick leave.", "Canteen."):
            kb.add([section(text)], show_progress=False)
    assert sorted(texts(kb)) == ["Canteen.", "Leave: 25 days.", "Sick leave."]


def test_pages_are_recognised_by_their_label_in_any_order(kb: KnowledgeBase) -> None:
    first, second = (section(f"page {n}", page_label=str(n)) for n in (1, 2))
    kb.add([first, second], show_progress=False)
    again = [
        section("page 2, changed", page_label="2", file_size=9),
        section("page 1", page_label="1"),
    ]
    kb.add(again, show_progress=False)
    assert sorted(texts(kb)) == ["page 1", "page 2, changed"]


def test_the_same_file_in_another_scope_is_another_document(kb: KnowledgeBase) -> None:
    for tenant in ("acme", "globex"):
        kb.add([section("Leave")], scope=Scope(tenant), show_progress=False)
    assert len(kb.documents()) == 2
    assert {document.document_id for document in kb.documents()} == {"/far/a.md_part_0"}


@pytest.mark.parametrize("odd", [{"page_label": ["1"]}, {"tenant_id": {"a": 1}}])
def test_documents_with_unusual_metadata_get_stable_ids(
    kb: KnowledgeBase, odd: dict[str, Any]
) -> None:
    for _ in range(2):
        report = kb.add([section("Leave", **odd), section("x", "a\0b", **odd)], show_progress=False)
        assert list(report.failures) == [key for key in report.failures if "\0" in key]
    assert len(kb.documents()) == 1


def test_one_warning_if_documents_cannot_be_recognised(kb: KnowledgeBase) -> None:
    nodes = SentenceSplitter()([section("Leave")])  # of a random document
    with pytest.warns(UnstableIdWarning, match="read_documents") as caught:
        kb.add([*nodes, Document(text="Leave", metadata={"file_name": "a"})], show_progress=False)
    assert len(caught) == 1
    kb.add([Document(text="Sick", metadata={"file_name": "a"})], show_progress=False)  # no error


@pytest.mark.parametrize(
    "bare",
    [
        Document(text="y"),
        Document(text="y", metadata={"url": "https://a.example/"}),
        TextNode(text="y"),
    ],
)
def test_a_random_id_without_a_file_is_warned_of_and_kept(
    kb: KnowledgeBase, bare: BaseNode
) -> None:
    with pytest.warns(UnstableIdWarning, match="of a document is random"):
        kb.add([bare], show_progress=False)
    assert [document.document_id for document in kb.documents()] == [bare.node_id]


def test_chosen_ids_stay_without_a_warning(kb: KnowledgeBase) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kb.add([Document(id_="a", text="x", metadata={"file_path": "f"})], show_progress=False)
    assert "a" in {document.document_id for document in kb.documents()}


def test_everything_but_the_text_of_a_long_document_counts_as_a_change_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents, "LONG", 10)
    others = [{"mimetype": "text/html"}, {"path": "/a"}, {"url": "https://a.example/"}, {}]
    resources = [MediaResource.model_validate({"text": "long " * 9, **each}) for each in others]
    made = [Document(id_="d", text_resource=resource) for resource in resources]
    assert len({documents.digest_of([each]) for each in made}) == len(made)


MODES: list[Kind] = ["vector", "keyword", "hybrid"]
OLD = Document(
    id_="old", text="Leave is 20 days.", metadata={"from": "2020-01-01", "to": "2024-01-01"}
)
NEW = Document(id_="new", text="Leave is 25 days for all, effective 1 January 2024.")
PLAIN = Document(id_="plain", text="Lunch is served at noon.")


def ids(result: SearchResult) -> list[str | None]:
    return [hit.node.ref_doc_id for hit in result]


@pytest.fixture
def dated() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        kb.add([OLD, NEW, PLAIN], valid=("from", "to"), validity="text", show_progress=False)
        yield kb


@pytest.mark.slow
def test_time_is_an_exact_filter_on_each_engine(url: str) -> None:
    draw, day = random.Random(7), datetime(2020, 1, 1, tzinfo=UTC)
    days = [(day + timedelta(hours=12 * n)).isoformat() for n in range(20)]
    rows: dict[str, dict[str, Any]] = {}
    for number in range(60):
        start, end = sorted(draw.sample(days, 2))
        known, until = sorted(draw.sample(days, 2))
        row = {"valid_from": start, "valid_to": end, "known_from": known, "known_to": until}
        rows[f"d{number}"] = {k: v for k, v in row.items() if draw.random() < 0.7}
    documents = [
        Document(id_=id_, text=f"annual leave {id_}", metadata=dict(row))
        for id_, row in rows.items()
    ]
    moments = [(days[7], None), (None, days[9]), ("2020-01-03T12:00:00+02:00", "2020-01-05")]
    with KnowledgeBase.open(url, embed_model=FakeEmbedding()) as kb:
        kb.add(documents, show_progress=False)
        stored = {node.ref_doc_id or "": node.metadata for node in kb.nodes()}
        for mode, (as_of, known_at) in product(MODES, moments):
            result = kb.search("annual leave", mode, top_k=100, as_of=as_of, known_at=known_at)
            assert set(ids(result)) == {
                id_
                for id_, row in stored.items()
                if is_within(row, "valid", as_of) and is_within(row, "known", known_at)
            }


def is_within(row: dict[str, Any], what: str, when: str | None) -> bool:
    at, start, end = (
        instant(date) for date in (when, row.get(f"{what}_from"), row.get(f"{what}_to"))
    )
    return at is None or ((start is None or start <= at) and (end is None or at < end))


@pytest.mark.slow
def test_a_question_without_a_time_prefers_what_holds_now(dated: KnowledgeBase) -> None:
    for mode in MODES:
        result = dated.search("leave is 20 days", mode, top_k=2)
        assert ids(result)[0] == "new"
    result = dated.search("leave is 20 days", "keyword")
    old = next(hit for hit in result if hit.node.ref_doc_id == "old")
    assert old.validity == "no longer valid since 2024-01-01" == old.to_dict()["validity"]
    assert old.contributions[-1].leg == old.validity
    assert sum(part.share for part in old.contributions) == pytest.approx(old.score)
    assert "no longer valid since 2024-01-01" in str(dated.retriever().explain("leave is 20 days"))


def test_what_ended_for_a_tenant_changes_no_search_of_another() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        for tenant, metadata in (("a", {"valid_to": "2020-01-01"}), ("b", {})):
            documents = [Document(id_=f"{tenant}{n}", text="leave") for n in range(4)]
            documents.append(Document(id_=f"{tenant}0", text="annual leave", metadata=metadata))
            kb.add(documents[1:], scope=Scope(tenant), show_progress=False)
        for tenant in "bab":
            result = kb.search("annual leave", "keyword", top_k=1, scope=Scope(tenant))
            assert result.trace is not None
            counts = [part.count for part in result.trace.children]
            assert counts == ([1, 2] if tenant == "a" else [1])


@pytest.mark.slow
@pytest.mark.parametrize("depth", [9, 30])
def test_a_question_has_the_same_answer_after_another_has_met_what_ended(depth: int) -> None:
    shuffled = random.Random(34)
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        words = ["leave", "pay", "desk", "tax", "annual"]
        texts = (" ".join(shuffled.choices(words, k=9)) for _ in range(200))
        ended = Document(text="parking", metadata={"valid_to": "2020-01-01"})
        kb.add([*(Document(text=text) for text in texts), ended], show_progress=False)
        before = [kb.search("annual leave", mode, top_k=depth) for mode in MODES]
        assert kb.search("parking", "keyword")[0].validity
        after = [kb.search("annual leave", mode, top_k=depth) for mode in MODES]
    assert [*map(node_ids, after)] == [*map(node_ids, before)]


def test_as_of_asks_for_another_time_at_each_entrance(dated: KnowledgeBase) -> None:
    query, then = "leave is days", {"old", "plain"}
    retriever = dated.retriever("hybrid")
    assert set(ids(dated.search(query, as_of="2021-05-05"))) == then
    assert set(ids(dated.search(Query(query, as_of="2021-05-05")))) == then
    assert set(ids(retriever.search(query, as_of=datetime(2021, 5, 5, tzinfo=UTC)))) == then
    assert set(ids(dated.retriever("vector", as_of="2021-05-05").search(query))) == then
    assert {node.ref_doc_id for node in dated.nodes(scope=Scope(as_of="2021-05-05"))} == then
    bound = dated.retriever("keyword", as_of="2021-05-05")
    assert "new" in ids(bound.search(query, as_of="now"))  # the query's counts
    with pytest.raises(ConfigurationError, match="must be a date"):
        dated.search(query, as_of="last year")


@pytest.mark.slow
def test_a_time_in_yaml_is_read_back(dated: KnowledgeBase) -> None:
    then = Scope(as_of="2021-05-05")
    pipeline = (dated.retriever("keyword") >> Top(5)).for_scope(then)
    for part in (dated.retriever("hybrid", as_of="2021-05-05"), pipeline):
        text = to_yaml(part, dated)
        assert "type: Scope\n    as_of: '2021-05-05'" in text
        best = ids(from_yaml(text, dated).search("leave is 20 days"))
        assert "old" in best
        assert "new" not in best
    (problem,) = validate_yaml(text.replace("'2021-05-05'", "2021-05-05"), dated)
    assert "put it in quotes" in problem
    for kind in ("hybrid", "basic", "rerank", "recursive"):
        named = f"version: 1\npipeline: {{type: {kind}, as_of: '2021-05-05'}}"
        assert validate_yaml(named, dated) == []
        written = to_yaml(from_yaml(named, dated), dated)
        for timed in (from_yaml(named, dated), from_yaml(written, dated)):
            assert set(ids(timed.search("leave is 20 days"))) == {"old", "plain"}
    known = "version: 1\npipeline: {type: keyword, known_at: '2020-01-01', as_of: any}"
    assert "new" not in ids(from_yaml(known, dated).search("leave"))
    (problem,) = validate_yaml(known.replace("2020-01-01", "last year"), dated)
    assert "line 2" in problem
    assert "known_at must be a date" in problem


def test_a_document_says_what_its_dates_came_from_and_since_when_it_is_known(
    dated: KnowledgeBase,
) -> None:
    (node,) = dated.get("new")
    assert node.metadata["validity_text"] == "effective 1 January 2024"
    assert instant(node.metadata["known_from"]) is not None
    assert "known_from" not in dated.get("plain")[0].metadata
    again = dated.add([OLD, NEW], valid=("from", "to"), validity="text", show_progress=False)
    assert again.unchanged == 2
    assert "new" not in ids(dated.search("leave", "keyword", known_at="2020-01-01"))
    assert "new" in ids(dated.search("leave", "keyword", known_at=now()))


def test_dates_are_of_the_users_zone_and_wrong_ones_fail_their_document() -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        law = Document(id_="law", text="本法自2021年9月1日起施行。")
        bad = Document(id_="bad", text="leave", metadata={"valid_from": "1 May 2026"})
        report = kb.add([law, bad], validity="text", time_zone="Asia/Shanghai", show_progress=False)
        assert [*report.failures] == ["bad"]
        assert kb.get("law")[0].metadata["valid_from"] == "2021-09-01T00:00:00+08:00"
        assert len(kb.search("施行", "keyword", as_of="2021-08-31T16:00:00Z")) == 1
        assert len(kb.search("施行", "keyword", as_of="2021-08-31T15:59:59Z")) == 0
        with pytest.raises(ConfigurationError, match="two metadata keys"):
            kb.add([law], valid="from", show_progress=False)


def test_a_time_alone_is_no_scope_and_does_not_write() -> None:
    url, model = "embedded::memory:", FakeEmbedding()
    with KnowledgeBase.open(url, embed_model=model, require_scope=True) as kb:
        with pytest.raises(ScopeRequiredError):
            kb.search("leave", as_of="now")
        with pytest.raises(ScopeRequiredError):
            kb.nodes(scope=Scope(as_of="now"))
        with pytest.raises(ConfigurationError, match="only reads"):
            kb.add([PLAIN], scope=Scope("acme", as_of="now"), show_progress=False)


def test_facets_count_what_holds(dated: KnowledgeBase) -> None:
    assert dated.facets(["from"]).total == 3
    assert dated.facets(["from"], as_of="2021-05-05").total == 2
    assert dated.facets(["from"], scope=Scope(as_of="2019-01-01")).total == 1


@pytest.mark.slow
def test_history_keeps_what_was_known_before(url: str) -> None:
    model = FakeEmbedding()
    with KnowledgeBase.open(url, embed_model=model, history=True) as kb:
        kb.add([Document(id_="leave", text="Leave is 20 days."), PLAIN], show_progress=False)
        first = now()
        kb.add([Document(id_="leave", text="Leave is 25 days.")], show_progress=False)
        second = now()
        assert kb.delete("leave") == 1
        kb.add([Document(id_="leave", text="Leave is 30 days.")], show_progress=False)
        for mode in MODES:
            texts = {
                when: {hit.text for hit in kb.search("leave days", mode, known_at=when)}
                for when in (None, first, second, "2020-01-01")
            }
            assert {when: {t for t in found if "Leave" in t} for when, found in texts.items()} == {
                None: {"Leave is 30 days."},
                first: {"Leave is 20 days."},
                second: {"Leave is 25 days."},
                "2020-01-01": set(),
            }
        assert [document.document_id for document in kb.documents()] == ["leave", "plain"]
        assert [node.get_content() for node in kb.get("leave")] == ["Leave is 30 days."]
        assert kb.facets(["known_from"]).total == 2
        assert kb.check().is_whole
        kb.share("leave", allowed=["group:hr"])
        bob = Scope(principals=["user:bob"])
        assert not kb.search("leave", "keyword", scope=bob, known_at=first).hits
    with KnowledgeBase.open(url, embed_model=model) as kb:  # it is recorded
        kb.add([Document(id_="leave", text="Leave is 35 days.")], show_progress=False)
        (hit,) = kb.search("leave days", "keyword", known_at=second)
        assert hit.text == "Leave is 25 days."


def test_a_sync_with_history_keeps_what_a_file_said(tmp_path: Path) -> None:
    (tmp_path / "leave.md").write_text("Leave is 20 days.")
    (tmp_path / "other.md").write_text("Lunch is at noon.")
    url, model = "embedded::memory:", FakeEmbedding()
    with KnowledgeBase.open(url, embed_model=model, history=True) as kb:
        kb.sync(tmp_path, show_progress=False)
        before = now()
        (tmp_path / "leave.md").unlink()
        kb.sync(tmp_path, max_deletions=1, show_progress=False)
        assert ids(kb.search("leave", "keyword")) == []
        assert len(kb.search("leave", "keyword", known_at=before)) == 1
