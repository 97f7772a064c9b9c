"""Several threads, and several objects on one directory."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from llama_index.core.schema import Document

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.errors import StoreClosedError
from llama_retrieval_ext.knowledge_base.kinds import Kind
from tests.knowledge_base.engines import LEDGERS

pytestmark = pytest.mark.slow

Open = Callable[..., KnowledgeBase]
LONG = " ".join(f"Sentence number {number} is about leave." for number in range(100))


@LEDGERS
def test_a_notebook_cell_that_opens_it_can_run_again(open_kb: Open) -> None:
    first, second = open_kb(), open_kb()
    document = Document(id_="d", text="annual leave")
    assert first.add([document]).added == 1
    assert second.add([document]).unchanged == 1
    assert second.add([Document(id_="d", text="sick leave")]).updated == 1
    assert first.add([document]).updated == 1
    first.close()
    assert [hit.text for hit in second.retriever("keyword").retrieve("leave")] == ["annual leave"]
    assert second.delete("d") == 1


def test_four_writing_and_four_reading_threads_lose_no_document(open_kb: Open) -> None:
    kbs = [open_kb(), open_kb()]
    # An index of Elasticsearch that is just being made does not answer.
    kbs[0].add([Document(id_="first", text="of all")], scope=Scope("another"))
    done = Event()

    def write(writer: int) -> int:
        kb, scope = kbs[writer % 2], Scope(f"tenant {writer}")
        added = 0
        for version in range(2):
            for number in range(2):
                text = f"version {version} of the leave policy"
                report = kb.add([Document(id_=f"d{number}", text=text)], scope=scope)
                added += report.raise_for_failures().added
        kb.delete("d0", scope=scope)
        return added

    def read(reader: int) -> int:
        kinds: list[Kind] = ["vector", "keyword", "hybrid", "hybrid"]
        retriever = kbs[reader % 2].retriever(kinds[reader], scope=Scope(f"tenant {reader}"))
        answers = 0
        while not done.wait(0.02) or not answers:  # not all the time: writers need some, too
            hits = retriever.retrieve("leave policy")
            assert {hit.metadata["tenant_id"] for hit in hits} <= {f"tenant {reader}"}
            answers += 1
        return answers

    with ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(read, number) for number in range(4)]
        try:
            assert list(pool.map(write, range(4))) == [2] * 4
        finally:
            done.set()
        assert all(reader.result() for reader in readers)
    for tenant in range(4):
        hits = kbs[0].retriever("keyword", scope=Scope(f"tenant {tenant}")).retrieve("leave")
        assert sorted((hit.node.ref_doc_id, hit.text) for hit in hits) == [
            ("d1", "version 1 of the leave policy")
        ]


@LEDGERS
def test_one_document_added_by_many_at_once_is_added_once(open_kb: Open) -> None:
    kbs = [open_kb(), open_kb()]
    document = Document(id_="d", text=LONG)
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda n: kbs[n % 2].add([document]), range(4)))
    assert sorted((report.added, report.unchanged) for report in reports) == [(0, 1)] * 3 + [(1, 0)]
    hits = kbs[0].retriever("keyword", top_k=1000).retrieve("leave")
    assert len(hits) == kbs[0].count() == reports[0].n_nodes + sum(r.n_nodes for r in reports[1:])


@LEDGERS
def test_close_stops_another_thread_that_adds_between_documents(open_kb: Open) -> None:
    kb = open_kb()
    closing = Event()

    def documents() -> Iterator[Document]:
        for number in range(200):
            if number == 100:
                closing.wait()
            yield Document(id_=f"d{number}", text="leave")

    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(kb.add, documents())
        while kb.count() < 64:
            time.sleep(0.01)
        kb.close()
        closing.set()
        with pytest.raises(StoreClosedError):
            adding.result()
    again = open_kb()
    assert len(again.documents()) == again.count() == 64
