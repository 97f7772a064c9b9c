"""`why_not`: the reason why a node is not among the hits."""

import asyncio
import json
from collections.abc import Callable

from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext import (
    RRF,
    AutoMergingRetriever,
    BM25Retriever,
    Collapse,
    Dedupe,
    EmbeddedVectorStore,
    HybridRetriever,
    Leg,
    Retriever,
    Top,
    VectorRetriever,
    branches,
)
from llama_retrieval_ext.pipeline.why_not import WhyNotReason
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever, FixedRetriever
from tests.cases import cases
from tests.pipeline.test_explanation import QUERY, SINCE_2021, pipeline, stored
from tests.retrievers.test_auto_merging import family

MODEL = FakeEmbedding()


def test_why_not_names_the_reason_for_each_node() -> None:
    explanation = pipeline(stored()).explain(QUERY, filters=SINCE_2021, scope=ACME)
    why = {node.node_id: explanation.why_not(node.node_id) for node in sample_nodes()}
    assert {node_id: each.reason for node_id, each in why.items() if "acme" in node_id} == {
        "acme-leave": WhyNotReason.RETURNED,
        "acme-sick": WhyNotReason.RETURNED,
        "acme-leave-zh": WhyNotReason.CUT,
        "acme-code": WhyNotReason.CUT,
        "acme-safety-zh": WhyNotReason.CUT,
        "acme-lunch": WhyNotReason.FILTERED,
    }
    cut = why["acme-leave-zh"]
    assert (cut.stage, cut.rank, cut.kept) == ("Top(k=2)", 3, 2)
    assert why["acme-lunch"].unmet == ("year >= 2021 (year is 2020)",)
    # A node of another tenant reads like one that does not exist.
    others = [str(why[id_]).replace(id_, "") for id_ in why if "acme" not in id_]
    assert {*others} == {str(explanation.why_not("no such")).replace("no such", "")}
    again = asyncio.run(explanation.awhy_not("acme-lunch"))
    assert again == why["acme-lunch"]
    assert json.loads(json.dumps(again.to_dict()))["reason"] == "filtered"


def test_why_not_of_a_node_that_no_leg_found_holds_the_depth_of_each_leg() -> None:
    bm25 = BM25Retriever(sample_nodes(), top_k=2)
    vector = VectorRetriever(stored(), embed_model=MODEL, top_k=3)
    explanation = (branches(Leg("words", bm25), Leg("meaning", vector)) >> RRF()).explain(QUERY)
    missing = explanation.why_not("globex-travel")
    assert missing.reason is WhyNotReason.NOT_FOUND
    assert [(depth.leg, depth.count) for depth in missing.depths] == [("words", 2), ("meaning", 3)]
    assert "(globex-travel.md) was not found by any leg: words returned 2 hits" in str(missing)
    below = (branches(words=bm25, meaning=vector) >> RRF() >> Top(1)).explain(QUERY)
    ids = {id_ for stage in below.stages for id_ in stage.ranks} - {below.hits[0].node_id}
    fallen = {below.why_not(id_).stage for id_ in ids}
    assert fallen == {"Top(k=1)"}


SAME = [("a", 0.9, "annual leave days"), ("b", 0.8, "Annual  leave days"), ("c", 0.1, "lunch")]


def merging() -> Retriever:
    docstore = SimpleDocumentStore()
    nodes = family("P", 2)
    docstore.add_documents(nodes)
    found = FixedRetriever([("P0", 0.9), ("P1", 0.8)])
    found.hits = [hit.model_copy(update={"node": nodes[n + 1]}) for n, hit in enumerate(found.hits)]
    return AutoMergingRetriever(found, docstore)


@cases(
    ("retriever", "node_id", "into"),
    [
        (lambda: FakeRetriever(SAME) >> Dedupe(), "b", "a"),
        (lambda: FakeRetriever(SAME) >> Dedupe("nearly") >> Top(1), "b", "a"),
        (merging, "P1", "P"),
    ],
)
def test_why_not_of_a_merged_node_names_the_node_that_replaced_it(
    retriever: Callable[[], Retriever], node_id: str, into: str
) -> None:
    explanation = retriever().explain("leave")
    why = explanation.why_not(node_id)
    assert (why.reason, why.into) == (WhyNotReason.MERGED, into)
    assert node_id in explanation.accounts[0].merged


def test_a_store_that_collapses_documents_names_the_better_hit() -> None:
    pages = [
        TextNode(id_=f"p{n}", text=f"annual leave {'days ' * n}", metadata={"file_path": "a.pdf"})
        for n in range(3)
    ]
    store = EmbeddedVectorStore(":memory:")
    store.add(
        [
            page.model_copy(update={"embedding": MODEL.get_text_embedding(page.text)})
            for page in pages
        ]
    )
    found = HybridRetriever(store, embed_model=MODEL, collapse=Collapse()).explain("annual leave")
    (kept,) = found.hits
    assert {found.why_not(page.node_id).into for page in pages} == {None, kept.node_id}


def test_the_sentence_has_the_title_of_the_document_beside_a_node_s_id() -> None:
    random = "c0a88d70-e22c-4c2f-9d6f-1adb891ceb6e"
    file = {"file_name": "leave.md"}
    nodes = [
        TextNode(id_=random, text="leave", metadata=file),
        TextNode(id_="b", text="leave leave"),
    ]
    explanation = (BM25Retriever(nodes) >> Top(1)).explain("leave")
    cut = next(id_ for id_ in (random, "b") if id_ != explanation[0].node_id)
    assert cut == random
    why = explanation.why_not(random)
    assert why.title == "leave.md"
    assert str(why).startswith(f"{random!r} (leave.md) was left out by Top(k=1)")
    assert str(explanation.why_not("b")).startswith("'b' was returned")
