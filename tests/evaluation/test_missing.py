"""Judged documents and nodes that are not there are named by experiments, tuning and comparison."""

from collections.abc import Iterator

import pytest
from llama_index.core import Document

from llama_retrieval_ext import BM25Retriever, KnowledgeBase, Scope, compare
from llama_retrieval_ext.evaluation import Experiment, Judgements, Level
from llama_retrieval_ext.evaluation.missing import missing_targets
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever
from tests.evaluation.conftest import tuned

# The first is found; the next three are there and not found; the last two are not there.
TARGETS = ["leave", "b.md", "/docs/sub/c.md", "sub/c.md", "typo-id", "/docs/typo.md"]
HINT = "not in the knowledge base: 2 of 6 judged documents, which count as missed: "
NAMED = HINT + "'/docs/typo.md', 'typo-id'"


@pytest.fixture
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=FakeEmbedding()) as opened:
        files = [{}, {"file_name": "b.md"}, {"file_path": "/docs/sub/c.md"}]
        texts = ["annual leave", "lunch", "sick note"]
        documents = [
            Document(id_=text.split()[-1], text=text, metadata=metadata)
            for text, metadata in zip(texts, files, strict=True)
        ]
        opened.add(documents, scope=Scope("acme"), show_progress=False)
        yield opened


def judged(count: int = 1, level: Level = Level.DOCUMENT) -> Judgements:
    queries = {f"q{number}": f"annual leave {number}" for number in range(count)}
    return Judgements(queries, {id_: dict.fromkeys(TARGETS, 1) for id_ in queries}, level)


@pytest.mark.slow
def test_each_tool_names_what_no_retriever_can_find(kb: KnowledgeBase) -> None:
    keyword = kb.retriever("keyword")
    experiment = Experiment({"k": keyword}, judged()).run(progress=False, warm_up=False)
    assert experiment.hints == (NAMED,)
    assert f"hint: {HINT}"[:40] in " ".join(str(experiment).split())
    assert f"hint: {HINT}" in experiment._repr_html_()
    assert tuned(kb.retriever("hybrid"), judged(20)).verdict.endswith(NAMED)
    comparison = compare({"k": keyword, "v": kb.retriever("vector")}, judged())
    assert comparison.hints == (NAMED,)
    assert f"hint: {NAMED}" in repr(comparison)


def test_a_document_of_another_tenant_is_not_there(kb: KnowledgeBase) -> None:
    own = kb.retriever("vector", scope=Scope("acme")), kb.retriever("vector", scope=Scope("other"))
    counts = [missing_targets([each], judged(), [])[0][:35] for each in own]
    assert counts == ["not in the knowledge base: 2 of 6 j", "not in the knowledge base: 6 of 6 j"]


def test_nodes_are_looked_up_and_what_nobody_can_tell_is_not_claimed(kb: KnowledgeBase) -> None:
    nodes = kb.nodes()
    bm25 = BM25Retriever(nodes)
    asked = Judgements({"q": "x"}, {"q": {nodes[0].node_id: 1, "n9": 1}}, Level.NODE)
    for retriever in (bm25, kb.retriever("hybrid")):
        assert missing_targets([retriever], asked, []) == (
            "not in the knowledge base: 1 of 2 judged nodes, which count as missed: 'n9'",
        )
        assert missing_targets([retriever], asked, [nodes[0].node_id, "n9"]) == ()
    assert missing_targets([bm25], judged(), []) == (NAMED,)
    assert missing_targets([bm25, FakeRetriever()], asked, []) == ()
    assert missing_targets([bm25], judged(level=Level.PASSAGE), []) == ()
