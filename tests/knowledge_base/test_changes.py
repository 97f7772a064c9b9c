from collections.abc import Callable, Iterator, Sequence
from uuid import uuid4

import pytest
from llama_index.core.node_parser import HierarchicalNodeParser, SentenceSplitter
from llama_index.core.schema import (
    BaseNode,
    Document,
    IndexNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
    TransformComponent,
)

from llama_retrieval_ext.knowledge_base import groups
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.testing.fakes import FakeEmbedding

Open = Callable[..., KnowledgeBase]
LONG = " ".join(f"Sentence number {number} is about leave." for number in range(200))


def found(kb: KnowledgeBase, query: str = "leave") -> dict[str, str]:
    """Texts by node id, of everything that keyword search finds."""
    hits = kb.retriever("keyword", top_k=1000).retrieve(query)
    return {hit.node_id: hit.node.get_content(MetadataMode.NONE) for hit in hits}


def node_of(ref: str, id_: str, text: str, **fields: object) -> TextNode:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=ref)}
    return TextNode(id_=id_, text=text, relationships=source, **fields)


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
    assert (found(kb), len(model.calls)) == (before, calls)


def test_a_changed_document_replaces_all_of_its_old_nodes(kb: KnowledgeBase) -> None:
    kb.add([Document(id_="d", text=LONG)])
    report = kb.add([Document(id_="d", text="A short text about leave.")])
    assert (report.updated, report.n_nodes, kb.count()) == (1, 1, 1)
    assert list(found(kb).values()) == ["A short text about leave."]


@pytest.mark.parametrize(
    "changed",
    [
        TextNode(id_="n", text="leave!"),
        TextNode(id_="n", text="leave", metadata={"page": 2}),
        TextNode(id_="n", text="leave", metadata={"page": 1}, embedding=[0.5] * 16),
        TextNode(
            id_="n", text="leave", metadata={"page": 1}, excluded_embed_metadata_keys=["page"]
        ),
    ],
    ids=["text", "metadata", "embedding", "what is embedded"],
)
def test_any_change_of_a_document_replaces_it(kb: KnowledgeBase, changed: TextNode) -> None:
    kb.add([TextNode(id_="n", text="leave", metadata={"page": 1})])
    assert kb.add([changed]).updated == 1


def test_other_transformations_change_every_document_and_no_node(open_kb: Open) -> None:
    items = [Document(id_="d", text=LONG), TextNode(id_="n", text="leave")]
    with open_kb() as kb:
        kb.add(items)
    small = open_kb(transformations=[SentenceSplitter(chunk_size=128, chunk_overlap=0)])
    assert (small.add(items).updated, small.add(items).unchanged) == (1, 2)


def test_a_splitter_is_called_again_when_nltk_rejects_its_files_once(open_kb: Open) -> None:
    class Refused(TransformComponent):  # NLTK's first use in an environment that uv has linked
        def __call__(self, nodes: Sequence[BaseNode], **_: object) -> list[BaseNode]:
            calls.append(len(nodes))
            if len(calls) == 1:
                raise PermissionError("refusing multiply-linked file")
            return [*nodes]

    calls: list[int] = []
    report = open_kb(transformations=[Refused()]).add([Document(id_="d", text=LONG)])
    assert (report.added, calls) == (1, [1, 1])


def test_a_chunk_keeps_its_id_when_text_comes_before_it(open_kb: Open) -> None:
    class Lines(TransformComponent):  # where LlamaIndex's splitters cut depends on the version
        def __call__(self, nodes: Sequence[BaseNode], **_: object) -> list[BaseNode]:
            lines = [(node, line) for node in nodes for line in node.get_content().split("\n")]
            return [node_of(node.node_id, str(uuid4()), line) for node, line in lines]

    kb = open_kb(transformations=[Lines()])
    text = LONG.replace(". ", ".\n")
    kb.add([Document(id_="d", text=text)])
    before = found(kb)
    kb.add([Document(id_="d", text=f"Preamble about leave.\n{text}")])
    assert len(before) == 200
    assert len(found(kb)) == 201
    assert before.items() <= found(kb).items()


def test_equal_chunks_of_a_document_are_different_nodes(open_kb: Open) -> None:
    class Thrice(TransformComponent):
        def __call__(self, nodes: Sequence[BaseNode], **_: object) -> list[BaseNode]:
            return [node_of(node.node_id, f"{n}", "leave") for node in nodes for n in range(3)]

    kb = open_kb(transformations=[Thrice()])
    kb.add([Document(id_="d", text="x"), Document(id_="e", text="x")])
    assert kb.count() == len(found(kb)) == 6


def test_relationships_of_nodes_refer_to_their_new_ids(open_kb: Open) -> None:
    kb = open_kb(transformations=[HierarchicalNodeParser.from_defaults(chunk_sizes=[512, 64])])
    kb.add([Document(id_="d", text=LONG)])
    nodes = [hit.node for hit in kb.retriever("keyword", top_k=1000).retrieve("leave")]
    ids = {node.node_id for node in nodes}
    assert {node.ref_doc_id for node in nodes} == {"d"}
    parents = {node.parent_node.node_id for node in nodes if node.parent_node}
    children = {child.node_id for node in nodes for child in node.child_nodes or []}
    neighbours = {near.node_id for node in nodes for near in [node.next_node] if near}
    for referred in (parents, children, neighbours):
        assert referred
        assert referred <= ids


def test_an_index_node_of_a_transformation_refers_to_the_new_id(open_kb: Open) -> None:
    class Pointing(TransformComponent):
        def __call__(self, nodes: Sequence[BaseNode], **_: object) -> list[BaseNode]:
            target = TextNode(id_="target", text="canteen")
            return [target, IndexNode(id_="pointer", text="leave", index_id="target")]

    kb = open_kb(transformations=[Pointing()])
    kb.add([Document(id_="d", text="x")])
    ((target, _),) = found(kb, "canteen").items()
    (hit,) = kb.retriever("keyword").backend.keyword("leave", Search(10)).function()
    assert isinstance(hit.node, IndexNode)
    assert hit.node.index_id == target


def test_without_transformations_a_document_is_one_node(open_kb: Open) -> None:
    kb = open_kb(transformations=[])
    kb.add([Document(id_="d", text=LONG, metadata={"page": 3})])
    (hit,) = kb.retriever("keyword").retrieve("leave")
    assert type(hit.node) is TextNode
    assert (hit.node.text, hit.node.metadata, hit.node.ref_doc_id) == (LONG, {"page": 3}, "d")


def test_the_embedding_of_a_document_is_kept_only_if_it_is_not_split(
    kb: KnowledgeBase, model: FakeEmbedding
) -> None:
    kb.add([Document(id_="d", text="leave", embedding=[0.25] * 16)])
    assert model.calls == []
    kb.add([Document(id_="d", text=LONG, embedding=[0.25] * 16)])
    assert len(model.calls) == kb.count() > 1


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


def test_a_generator_of_documents_is_read_in_batches(kb: KnowledgeBase) -> None:
    held: list[int] = []

    def reader() -> Iterator[Document]:
        for number in range(200):
            held.append(kb.count())
            yield Document(id_=f"d{number}", text="leave")

    report = kb.add(reader())
    assert report.added == kb.count() == 200
    assert held[-1] >= 128  # most of it was stored before the last was read


def test_nodes_of_a_document_may_be_anywhere_in_a_list(kb: KnowledgeBase) -> None:
    nodes = [node_of(f"d{n % 2}", f"n{n}", "leave") for n in range(6)]
    report = kb.add(nodes)
    assert (report.added, report.n_nodes) == (2, 6)
    assert [document.n_nodes for document in kb.documents()] == [3, 3]


def test_scattered_nodes_of_a_document_from_a_generator_are_an_error(kb: KnowledgeBase) -> None:
    nodes = [node_of(f"d{n % 2}", f"n{n}", "leave") for n in range(4)]
    report = kb.add(node for node in nodes)
    assert set(report.failures) == {"d0", "d1"}
    assert "in a row" in str(report.failures["d0"])


def test_a_document_is_replaced_by_nodes_that_belong_to_it(kb: KnowledgeBase) -> None:
    kb.add([Document(id_="d", text=LONG)])
    assert kb.add([node_of("d", "n", "leave")]).updated == 1
    assert found(kb) == {"n": "leave"}


def test_two_documents_with_one_id_in_a_call_are_an_error(kb: KnowledgeBase) -> None:
    report = kb.add([Document(id_="d", text="leave"), Document(id_="d", text="canteen")])
    assert report.added == 1
    assert "twice" in str(report.failures["d"])
    assert list(found(kb).values()) == ["leave"]


def test_the_same_document_twice_in_a_call_is_one(kb: KnowledgeBase) -> None:
    report = kb.add([Document(id_="d", text="leave"), Document(id_="d", text="leave")])
    assert (report.added, report.unchanged, report.failures) == (1, 1, {})


def test_two_documents_with_random_ids_and_one_text_are_both_stored(kb: KnowledgeBase) -> None:
    kb.add([Document(text="leave")])
    kb.add([Document(text="leave")])
    assert len(kb.documents()) == 2


async def test_aadd_and_adelete_add_and_delete(kb: KnowledgeBase) -> None:
    report = await kb.aadd([Document(id_="d", text="leave")], show_progress=False)
    assert report.added == 1
    assert await kb.adelete("d") == 1
    assert kb.count() == 0


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


@pytest.mark.parametrize("total", ["15.0/15.0", "15.0char"])
def test_the_progress_bar_counts_characters_with_and_without_an_end(
    kb: KnowledgeBase,
    total: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def documents() -> Iterator[Document]:
        for number in range(3):
            yield Document(id_=f"d{number}", text="leave")

    monkeypatch.setattr(groups, "_DELAY_S", 0)
    kb.add(list(documents()) if "/" in total else documents())
    assert total in capsys.readouterr().err


def test_show_progress_false_shows_no_progress_bar(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(groups, "_DELAY_S", 0)
    kb.add([Document(text="leave")], show_progress=False)
    assert capsys.readouterr().err == ""
