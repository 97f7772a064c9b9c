"""Whole documents for a query, and the scope that each service requires."""

import asyncio
from collections.abc import Callable

import pytest
from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext import KnowledgeBase, Query, Scope, open_store
from llama_retrieval_ext.capabilities import CapabilityFactory, documents_only
from llama_retrieval_ext.errors import ConfigurationError, ScopeError, ScopeRequiredError
from llama_retrieval_ext.services import (
    KnowledgeService,
    MimicService,
    ReportService,
    SearchService,
)
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.services.conftest import ACME, BETA, DOCUMENTS, PUMP, WEEK, factory


@pytest.mark.slow
def test_search_gives_whole_documents_each_once(kb: KnowledgeBase) -> None:
    service = SearchService.of(factory(kb))
    assert len(kb.get("pump", scope=ACME)) > 2
    best, *others = service.search("valve of the pump", 4, scope=ACME)
    assert (best.doc_id, best.content) == ("pump", f"{PUMP} (acme)")
    assert best.metadata["date"] == "2026-02-01"
    assert best.source
    assert len({each.doc_id for each in (best, *others)}) == 4
    scores = [best.score, *(each.score for each in others)]
    assert scores == sorted(scores, reverse=True)
    assert asyncio.run(service.asearch("valve of the pump", 4, scope=ACME)) == [best, *others]


def test_search_looks_further_where_one_document_fills_the_ranking(kb: KnowledgeBase) -> None:
    service = SearchService(kb.retriever("vector"), kb, scope=BETA)
    found = service.search("valve pump fitter", len(DOCUMENTS), documents_only())
    assert sorted(each.doc_id for each in found) == sorted(DOCUMENTS)
    assert all(each.content.endswith("(beta)") for each in found)


def test_a_document_that_is_deleted_during_a_search_is_missing(kb: KnowledgeBase) -> None:
    class Gone:
        def get(self, source_or_id: str, /, *, scope: Scope | None = None) -> list[object]:
            return [] if source_or_id == "leave" else kb.get(source_or_id, scope=scope)  # type: ignore[return-value]

    service = SearchService(kb.retriever("keyword"), Gone(), scope=ACME)  # type: ignore[arg-type]
    assert "leave" not in [each.doc_id for each in service.search("annual leave")]


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False], ids=["documents", "nodes"])
def test_a_docstore_is_a_store_of_whole_documents(whole: bool) -> None:
    model = FakeEmbedding()
    own = {"tenant_id": "acme"}
    documents = [
        Document(id_="pump", text=PUMP, metadata=own),
        Document(id_="leave", text="Annual leave is 25 days.", metadata=own),
    ]
    splitter = SentenceSplitter(chunk_size=60, chunk_overlap=10)
    nodes = splitter.get_nodes_from_documents(documents)
    for node in nodes:
        node.embedding = model.get_text_embedding(node.get_content())
    docstore = SimpleDocumentStore()
    docstore.add_documents(documents if whole else nodes)
    with open_store("embedded::memory:") as store:
        store.add(nodes)
        made = CapabilityFactory(store, document_store=docstore, embedding=model)
        best, other = SearchService.of(made).search("valve of the pump", 2, scope=ACME)
    assert (best.doc_id, other.doc_id) == ("pump", "leave")
    assert best.content.split() == PUMP.split()


def test_a_search_without_documents_says_where_they_can_be() -> None:
    with open_store("embedded::memory:") as store:
        made = CapabilityFactory(store, embedding=FakeEmbedding())
        with pytest.raises(ConfigurationError, match="a knowledge base or a docstore"):
            SearchService.of(made)


@pytest.mark.slow
@cases("scope", [Scope("acme"), None])
def test_a_whole_document_is_given_to_those_who_may_see_it(scope: Scope | None) -> None:
    model = FakeEmbedding(dim=16)
    with KnowledgeBase.open("embedded::memory:", embed_model=model, require_principals=True) as kb:
        kb.add([Document(id_="pump", text=PUMP)], scope=scope, allowed=["group:hr"])
        service = SearchService(kb.retriever("vector"), kb, scope=scope)
        for name, expected in (("group:hr", ["pump"]), ("group:it", [])):
            found = service.search("pump", scope=Scope("acme" if scope else None, None, [name]))
            assert [each.doc_id for each in found] == expected
            assert all("allowed" not in each.metadata for each in found)


def test_each_service_requires_a_scope_where_the_knowledge_base_does(kb: KnowledgeBase) -> None:
    made = factory(kb)
    knowledge = KnowledgeService.of(made)
    calls: list[Callable[[], object]] = [
        lambda: SearchService.of(made).search("x"),
        lambda: MimicService.of(made).generate_response("x", use_history=False),
        lambda: ReportService.of(made).generate_weekly_report("ann", *WEEK),
        lambda: knowledge.ask("x"),
        lambda: knowledge.insights("x"),
        lambda: knowledge.related("x"),
        lambda: knowledge.timeline("x"),
    ]
    for call in calls:
        with pytest.raises(ScopeRequiredError):
            call()
    with pytest.raises(ScopeError, match="nothing in common"):
        SearchService.of(made, scope=ACME).search(Query("x"), scope=BETA)
