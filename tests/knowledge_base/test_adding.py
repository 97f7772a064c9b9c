from collections.abc import Callable

import pytest
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document, MetadataMode, TextNode

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.engines import EMBEDDED
from tests.knowledge_base.nodes import LONG, found, node_of

Open = Callable[..., KnowledgeBase]


def test_a_long_document_is_split_and_a_node_is_not(kb: KnowledgeBase) -> None:
    report = kb.add([Document(id_="d", text=LONG)])
    assert (report.added, report.n_nodes) == (1, kb.count())
    assert kb.count() > 2
    assert kb.add([TextNode(id_="n", text=LONG)]).n_nodes == 1


def test_adding_the_same_again_does_nothing(kb: KnowledgeBase, model: FakeEmbedding) -> None:
    items = [Document(id_="d", text=LONG), TextNode(id_="n", text="leave", embedding=[0.5] * 16)]
    kb.add(items)
    before, calls = found(kb), len(model.calls)
    report = kb.add(items)
    assert (report.added, report.updated, report.unchanged, report.n_nodes) == (0, 0, 2, 0)
    assert kb.add([]).unchanged == 0
    assert (found(kb), len(model.calls)) == (before, calls)


def test_a_changed_document_replaces_all_of_its_old_nodes(kb: KnowledgeBase) -> None:
    kb.add([Document(id_="d", text=LONG)])
    report = kb.add([Document(id_="d", text="A short text about leave.")])
    assert (report.updated, report.n_nodes, kb.count()) == (1, 1, 1)
    assert list(found(kb).values()) == ["A short text about leave."]


@cases(
    "changed",
    [
        TextNode(id_="n", text="leave", metadata={"page": 2}),
        TextNode(id_="n", text="leave", metadata={"page": 1}, embedding=[0.5] * 16),
        TextNode(
            id_="n", text="leave", metadata={"page": 1}, excluded_embed_metadata_keys=["page"]
        ),
    ],
)
def test_any_change_of_a_document_replaces_it(kb: KnowledgeBase, changed: TextNode) -> None:
    kb.add([TextNode(id_="n", text="leave", metadata={"page": 1})])
    assert kb.add([changed]).updated == 1


@pytest.mark.slow
@EMBEDDED
def test_other_transformations_change_every_document_and_no_node(open_kb: Open) -> None:
    items = [Document(id_="d", text=LONG), TextNode(id_="n", text="leave")]
    with open_kb() as kb:
        kb.add(items)
    small = open_kb(transformations=[SentenceSplitter(chunk_size=128, chunk_overlap=0)])
    assert (small.add(items).updated, small.add(items).unchanged) == (1, 2)


@EMBEDDED
def test_without_transformations_a_document_is_one_node(open_kb: Open) -> None:
    kb = open_kb(transformations=[])
    kb.add([Document(id_="d", text=LONG, metadata={"page": 3})])
    (hit,) = kb.retriever("keyword").retrieve("leave")
    assert type(hit.node) is TextNode
    assert (hit.node.text, hit.node.metadata, hit.node.ref_doc_id) == (LONG, {"page": 3}, "d")


def test_nodes_with_an_embedding_keep_it_and_others_are_embedded(
    kb: KnowledgeBase, model: FakeEmbedding
) -> None:
    mine = model.get_text_embedding("canteen")
    model.calls.clear()
    kb.add([TextNode(id_="mine", text="leave", embedding=mine), TextNode(id_="made", text="leave")])
    assert model.calls == ["leave"]
    (best,) = kb.retriever("vector", top_k=1).retrieve("canteen")
    assert best.node_id == "mine"


def test_nodes_are_embedded_with_the_text_that_llamaindex_embeds(
    kb: KnowledgeBase, model: FakeEmbedding
) -> None:
    node = TextNode(
        id_="n", text="leave", metadata={"a": 1, "b": 2}, excluded_embed_metadata_keys=["b"]
    )
    kb.add([node])
    assert model.calls == [node.get_content(MetadataMode.EMBED)]


@EMBEDDED
def test_nodes_are_embedded_in_batches(open_kb: Open) -> None:
    class Counting(FakeEmbedding):
        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            sizes.append(len(texts))
            return super()._get_text_embeddings(texts)

    sizes: list[int] = []
    kb = open_kb(embed_model=Counting(dim=16, embed_batch_size=50))
    kb.add([TextNode(id_=f"n{n}", text="leave") for n in range(100)])
    assert sizes == [50, 50]


def test_adding_does_not_change_the_documents_of_the_caller(kb: KnowledgeBase) -> None:
    document = Document(id_="d", text=LONG, metadata={"page": 1})
    node = TextNode(id_="n", text="leave", metadata={"page": 1})
    before = document.model_dump(), node.model_dump()
    kb.add([document, node])
    assert (document.model_dump(), node.model_dump()) == before


def test_a_document_is_replaced_by_nodes_that_belong_to_it(kb: KnowledgeBase) -> None:
    kb.add([Document(id_="d", text=LONG)])
    assert kb.add([node_of("d", "n", "leave")]).updated == 1
    assert found(kb) == {"n": "leave"}


def test_two_documents_with_one_id_in_a_call_are_an_error(kb: KnowledgeBase) -> None:
    items = [Document(id_="d", text=text) for text in ("leave", "leave", "canteen")]
    report = kb.add(items)
    assert (report.added, report.unchanged) == (1, 1)
    assert "twice" in str(report.failures["d"])
    assert list(found(kb).values()) == ["leave"]


async def test_async_twins_add_share_and_delete(kb: KnowledgeBase) -> None:
    report = await kb.aadd([Document(id_="d", text="leave")], show_progress=False)
    assert report.added == 1
    assert await kb.ashare("d", allowed=["group:hr"]) == 1
    assert kb.documents()[0].allowed == ("group:hr",)
    assert await kb.adelete("d") == 1
    assert kb.count() == 0


@EMBEDDED
def test_a_transformation_that_embeds_is_not_followed_by_another_embedding(
    open_kb: Open, model: FakeEmbedding
) -> None:
    kb = open_kb(transformations=[SentenceSplitter(), model])
    kb.add([Document(id_="d", text="leave"), Document(id_="e", text="canteen")])
    assert sorted(model.calls) == ["canteen", "leave"]


def test_the_order_of_a_set_in_metadata_is_no_change(kb: KnowledgeBase) -> None:
    # Small integers with the same remainder keep the order in which they came into a set.
    there, back = ({"tags": {"of": set(some)}} for some in ([8, 16, 24], [24, 16, 8]))
    assert str(there) != str(back)
    kb.add([Document(id_="d", text="annual leave", metadata=there)])
    report = kb.add([Document(id_="d", text="annual leave", metadata=back)])
    assert (report.unchanged, report.updated) == (1, 0)
