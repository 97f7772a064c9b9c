"""Several processes that write to one knowledge base on a server at the same time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.programs import Program
from tests.quick import in_turn

pytestmark = pytest.mark.slow

Open = Callable[..., KnowledgeBase]
N_ADDS, N_NODES = 3, 5
# Waits for a line on its input, so that all begin at the same time; prints how long it took.
PROGRAM = """
import sys
import time
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding

url, names, version, n_nodes = sys.argv[1], sys.argv[2].split(","), sys.argv[3], int(sys.argv[4])

def nodes(ref):
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=ref)}
    return [
        TextNode(id_=f"{ref}-{n}", text=f"leave {version} {n}", relationships=source)
        for n in range(n_nodes)
    ]

with KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=16)) as kb:
    print("open", flush=True)
    sys.stdin.readline()
    started = time.monotonic()
    for name in names:
        kb.add(nodes(name), show_progress=False).raise_for_failures()
    print(time.monotonic() - started)
"""


def run_writers(url: str, names: list[list[str]], versions: list[str]) -> list[float]:
    """Run one process for each list of documents, all at once; return their seconds."""
    with ExitStack() as stack:
        writers = [
            stack.enter_context(Program(PROGRAM, url, ",".join(own), version, N_NODES))
            for own, version in zip(names, versions, strict=True)
        ]
        for writer in writers:
            if not writer.stdout.readline():
                raise AssertionError(writer.communicate()[1])
        with ThreadPoolExecutor(len(writers)) as pool:
            outputs = list(pool.map(lambda writer: writer.communicate("\n"), writers))
        for writer, (_, error) in zip(writers, outputs, strict=True):
            assert writer.returncode == 0, error
    return [float(seconds) for seconds, _ in outputs]


def open_with_documents(open_kb: Open) -> KnowledgeBase:
    """Open it, with a document in it: a new index of Elasticsearch takes a while."""
    kb = open_kb(embed_model=FakeEmbedding(dim=16))
    kb.add([Document(id_="first", text="of all")], show_progress=False)
    return kb


@pytest.mark.parametrize("engine", in_turn("milvus-server", "elasticsearch"), indirect=True)
def test_processes_that_add_different_documents_neither_fail_nor_queue(
    open_kb: Open, url: str
) -> None:
    kb = open_with_documents(open_kb)
    alone = [f"alone-{n}" for n in range(3 * N_ADDS)]
    (alone_s,) = run_writers(url, [alone], ["1"])
    names = [[f"{writer}-{n}" for n in range(N_ADDS)] for writer in "abc"]
    together_s = max(run_writers(url, names, ["1"] * 3))
    expected = {*alone, *(name for own in names for name in own)}
    stored = {document.document_id: document.n_nodes for document in kb.documents()}
    assert stored == {"first": 1, **dict.fromkeys(expected, N_NODES)}
    hits = kb.retriever("keyword", top_k=1000).retrieve("leave")
    assert len(hits) == len(expected) * N_NODES
    print(f"{alone_s:.2f} s alone, {together_s:.2f} s together")  # noqa: T201 - shown with -s
    assert together_s < 2 * alone_s + 20


@pytest.mark.parametrize("engine", in_turn("qdrant-server", "elasticsearch"), indirect=True)
def test_concurrent_writes_of_one_document_leave_one_whole_version(open_kb: Open, url: str) -> None:
    kb = open_with_documents(open_kb)
    run_writers(url, [["same", "other"] * 4, ["other", "same"] * 4], ["1", "2"])
    for name in ("same", "other"):
        texts = [node.get_content() for node in kb.get(name)]
        assert texts in [[f"leave {version} {n}" for n in range(N_NODES)] for version in "12"]
    assert kb.count() == 1 + 2 * N_NODES


@pytest.mark.parametrize("engine", ["elasticsearch"], indirect=True)
def test_the_first_documents_of_several_processes_are_all_stored(open_kb: Open, url: str) -> None:
    names = [[f"{writer}-{n}" for n in range(2)] for writer in "ab"]
    run_writers(url, names, ["1"] * 2)
    with open_kb(embed_model=FakeEmbedding(dim=16)) as kb:
        assert {document.document_id for document in kb.documents()} == {*names[0], *names[1]}
