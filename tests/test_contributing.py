"""The breakpoints that CONTRIBUTING.md names are passed, in its order."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType

import pytest
from llama_index.core.schema import Document

import llama_retrieval_ext
from llama_retrieval_ext import RRF, KnowledgeBase, branches
from llama_retrieval_ext.graph.elements import Edge
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.retrievers import KGRetriever
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from tests.cases import cases

PACKAGE = Path(llama_retrieval_ext.__file__).parent
PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Step by step")[2].partition("\n## ")[0]
ROW = re.compile(r"\| \[`(.+?)`\]\(llama_retrieval_ext/(.+?)\)")


@contextmanager
def knowledge_base() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as kb:
        kb.add([Document(text="annual leave", id_="leave")], show_progress=False)
        yield kb


@contextmanager
def fusion() -> Iterator[Callable[[], object]]:
    pipeline = branches(FakeRetriever([("a", 0.9)]), FakeRetriever([("b", 0.5)])) >> RRF()
    yield lambda: pipeline.retrieve("annual leave")


@contextmanager
def search() -> Iterator[Callable[[], object]]:
    with knowledge_base() as kb:
        kb.search("annual leave")  # which imports what it needs
        yield lambda: kb.search("annual leave")


@contextmanager
def addition() -> Iterator[Callable[[], object]]:
    with knowledge_base() as kb:
        documents = [Document(text="notice period", id_="notice")]
        yield lambda: kb.add(documents, show_progress=False)


@contextmanager
def rule() -> Iterator[Callable[[], object]]:
    graph = EmbeddedGraph(":memory:")
    hazard, measure = ("digging", "HAS_HAZARD", "collapse"), ("collapse", "MITIGATED_BY", "bracing")
    graph.upsert([], [Edge(*hazard), Edge(*measure)])
    retriever = KGRetriever(graph)
    yield lambda: retriever.retrieve("What does digging require?")
    graph.close()


@pytest.mark.slow
@cases(("number", "way"), [*enumerate((fusion, search, addition, rule), start=1)])
def test_the_breakpoints_of_a_way_are_passed_in_order(
    number: int, way: Callable[[], AbstractContextManager[Callable[[], object]]]
) -> None:
    expected = ROW.findall(SECTION.split("\n**")[number])
    passed: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            path = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            passed.setdefault((code.co_qualname, path))

    with way() as call:
        sys.setprofile(note)
        try:
            assert call()
        finally:
            sys.setprofile(None)
    assert [named for named in passed if named in expected] == expected
