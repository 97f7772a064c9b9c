from collections.abc import Callable, Sequence
from uuid import uuid4

import pytest
from llama_index.core.node_parser import HierarchicalNodeParser, SentenceSplitter
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    IndexNode,
    TextNode,
    TransformComponent,
)

from llama_retrieval_ext.knowledge_base import passages, splitting
from llama_retrieval_ext.knowledge_base.documents import SourceDocument
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.ledger.prepared import DocumentKey
from llama_retrieval_ext.knowledge_base.splitting import Splitter
from llama_retrieval_ext.stores.engine.backend import Search
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.knowledge_base.nodes import LONG, found, node_of

Open = Callable[..., KnowledgeBase]

LINES = "".join(f"Rule {n}, of {n * 7} words, is old? Yes: it is. " for n in range(200))
MARKDOWN = "".join(
    f"# Part {n}\n\n{LONG}\n\n## Table {n}\n\n| day | leave |\n| --- | --- |\n| {n} | all |\n\n"
    for n in range(4)
)
WHOLE = [
    Document(id_="prose", text=LONG * 4),
    Document(id_="paragraphs", text="\n\n\n".join([LINES, "", LONG, LINES, " Short. "])),
    Document(id_="Chinese", text="年假二十五天、病假另计。" * 2000, metadata={"author": "Li"}),
    Document(id_="Markdown", text=MARKDOWN, metadata={"file_name": "rules.md", "title": "Rules"}),
    Document(id_="same", text="The same again. " * 3000),
    Document(id_="vector", text=LINES, embedding=[0.5], excluded_embed_metadata_keys=["author"]),
    Document(id_="part", text=LINES, relationships={"1": {"node_id": "all", "hash": "x"}}),
    ImageDocument(id_="image", text=LINES, image="aW1hZ2U="),
]


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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_the_embedding_of_a_document_is_kept_only_if_it_is_not_split(
    kb: KnowledgeBase, model: FakeEmbedding
) -> None:
    kb.add([Document(id_="d", text="leave", embedding=[0.25] * 16)])
    assert model.calls == []
    kb.add([Document(id_="d", text=LONG, embedding=[0.25] * 16)])
    assert len(model.calls) == kb.count() > 1


@pytest.mark.slow
@pytest.mark.parametrize("whole", WHOLE, ids=lambda whole: whole.id_)
def test_the_groups_of_a_long_document_are_its_nodes(
    whole: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = SourceDocument(DocumentKey("", "", whole.node_id), (whole,), "digest")
    (expected,) = Splitter(None).nodes_of([document])
    monkeypatch.setattr(passages, "LONG", 3000)
    monkeypatch.setattr(splitting, "GROUP", 4)
    groups = list(Splitter(None).groups_of(document))
    assert {len(group) for group in groups[:-1]} == {4}
    made = [node for group in groups for node in group]
    assert not isinstance(expected, Exception)
    assert [each.to_dict() for each in made] == [each.to_dict() for each in expected]


def test_nodes_of_transformations_of_the_user_are_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    document = SourceDocument(DocumentKey("", "", "d"), (Document(id_="d", text=LONG),), "digest")
    monkeypatch.setattr(splitting, "GROUP", 2)
    splitter = Splitter([SentenceSplitter(chunk_size=100, chunk_overlap=0)])
    groups = list(splitter.groups_of(document))
    assert [node for group in groups for node in group] == [*splitter.nodes_of([document])[0]]  # type: ignore[misc]  # no error
    assert len(groups) > 5
