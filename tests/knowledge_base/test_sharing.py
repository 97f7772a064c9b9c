"""Who sees which document, and changes of that without embedding."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from llama_index.core.graph_stores.types import KG_NODES_KEY, EntityNode
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode, TransformComponent

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.errors import ConfigurationError, IngestionError, ScopeRequiredError
from llama_retrieval_ext.graph import PassageLinks
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.knowledge_base import copy_knowledge_base, sharing
from llama_retrieval_ext.knowledge_base.ledger.journal import Journal, Reply
from llama_retrieval_ext.knowledge_base.ledger.prepared import Writable
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.graphs import rows
from tests.knowledge_base.nodes import LONG
from tests.knowledge_base.permissions import Fuzzer, opened

Open = Callable[..., KnowledgeBase]
HR, IT, NOBODY = (Scope(principals=names) for names in (["group:hr"], ["group:it"], []))


class CountingEmbedding(FakeEmbedding):
    """Counts the texts that it embeds."""

    texts: int = 0

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.texts += len(texts)
        return super()._get_text_embeddings(texts)


def seen(kb: KnowledgeBase, scope: Scope | None) -> set[str]:
    """Return the documents that a scope sees, after a check that a search finds the same."""
    listed = {document.document_id for document in kb.documents(scope=scope)}
    assert {hit.node.ref_doc_id for hit in kb.search("leave", top_k=50, scope=scope)} == listed
    return listed


def leave(text: str = "annual leave", **metadata: object) -> Document:
    return Document(id_="leave", text=text, metadata=metadata)


@pytest.mark.slow
def test_random_documents_shares_and_deletions_agree_with_the_oracle(url: str) -> None:
    with opened(url, None) as kb:
        fuzzer = Fuzzer(kb, Random(7))
        fuzzer.run(42, changes=3)
    assert not fuzzer.wrong


@pytest.mark.slow
def test_random_documents_shares_and_deletions_agree_with_the_oracle_in_a_graph() -> None:
    with opened("embedded::memory:", "graph::memory:") as kb:
        fuzzer = Fuzzer(kb, Random(11))
        fuzzer.run(24, changes=6)
    assert not fuzzer.wrong


@pytest.fixture
def kb() -> KnowledgeBase:
    model = CountingEmbedding(dim=16)
    made = KnowledgeBase.open("embedded::memory:", embed_model=model)
    made.add([leave(), Document(id_="lunch", text="lunch and leave")], allowed=["group:hr"])
    made.share("lunch", allowed=None)
    return made


def test_sharing_embeds_nothing_and_counts_from_the_next_query_on(kb: KnowledgeBase) -> None:
    assert isinstance(kb.embed_model, CountingEmbedding)
    before = kb.embed_model.texts
    assert (seen(kb, HR), seen(kb, IT)) == ({"leave", "lunch"}, {"lunch"})
    assert kb.share("leave", allowed=["group:it"]) == 1
    assert (seen(kb, HR), seen(kb, IT), seen(kb, NOBODY)) == (
        {"lunch"},
        {"leave", "lunch"},
        {"lunch"},
    )
    assert kb.share("leave", allowed=None) == 1
    assert seen(kb, NOBODY) == seen(kb, None) == {"leave", "lunch"}
    assert kb.embed_model.texts == before


def test_a_document_that_is_deleted_while_it_is_shared_is_stored_again(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*given: Any) -> object:
        kb.delete("leave")
        return sharing.share_keys(*given)

    monkeypatch.setattr("llama_retrieval_ext.knowledge_base.adding.share_keys", late)
    assert kb.add([leave()], allowed=["group:it"]).added == 1
    assert (seen(kb, HR), seen(kb, IT)) == ({"lunch"}, {"leave", "lunch"})


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["qdrant"], indirect=True)
def test_sharing_does_not_bring_back_what_another_process_has_changed(
    open_kb: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb, other = open_kb(), open_kb()
    kb.add([leave(), Document(id_="lunch", text="lunch and leave")])
    begin = Journal.begin

    def overtaken(journal: Journal, documents: Sequence[Writable]) -> list[Reply]:
        monkeypatch.setattr(Journal, "begin", begin)
        other.add([leave("other leave")])
        return begin(journal, documents)

    monkeypatch.setattr(Journal, "begin", overtaken)
    assert kb.share("leave", allowed=["group:hr"]) == 1
    assert [node.get_content() for node in kb.get("leave")] == ["other leave"]
    assert (seen(kb, HR), seen(kb, IT)) == ({"leave", "lunch"}, {"lunch"})


@pytest.mark.slow
def test_long_documents_are_shared_and_copied_in_groups_of_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    add = EmbeddedVectorStore.add_rows

    def adding(store: EmbeddedVectorStore, rows: Sequence[BaseNode]) -> None:
        sizes.append(len(rows))
        add(store, rows)

    urls = [f"embedded:{tmp_path / name}" for name in ("kb", "copy", "embedded anew")]
    graphs = [f"graph:{tmp_path / name}" for name in ("graph", "graph 2", "graph 3")]
    model, other = FakeEmbedding(dim=16), FakeEmbedding(dim=8, model_name="other")
    with KnowledgeBase.open(urls[0], embed_model=model, graph=graphs[0]) as kb:
        kb.add([Document(id_="leave", text=LONG), Document(id_="lunch", text="lunch and leave")])
        monkeypatch.setattr(sharing, "_GROUP", 2)
        monkeypatch.setattr(EmbeddedVectorStore, "add_rows", adding)
        assert kb.share("leave", allowed=["group:hr"]) == 1
        assert (seen(kb, HR), seen(kb, IT)) == ({"leave", "lunch"}, {"lunch"})
        before, there = kb.documents(), rows(kb.graph)
        texts = [node.get_content() for node in kb.get("leave")]
        vectors = [node.get_embedding() for node in kb.get("leave")]
        assert len(texts) == 4
    for url, graph, new in zip(urls[1:], graphs[1:], (None, other), strict=True):
        options = {"graph": graph, "show_progress": False}
        report = copy_knowledge_base(urls[0], url, embed_model=new, **options)  # type: ignore[arg-type]
        assert (report.copied, report.failures) == (2, {})
        with KnowledgeBase.open(url, embed_model=new or model, graph=graph) as kb:
            assert kb.documents() == before
            assert [node.get_content() for node in kb.get("leave")] == texts
            made = [node.get_embedding() for node in kb.get("leave")]
            expected = vectors if new is None else [*map(new.get_text_embedding, texts)]
            for one, other_one in zip(made, expected, strict=True):
                assert one == pytest.approx(other_one)
            assert rows(kb.graph) == there
    assert max(sizes) == 2


def test_adding_again_keeps_those_who_may_see_a_document_until_others_are_named(
    kb: KnowledgeBase,
) -> None:
    kb.share("leave", allowed=["group:it"])
    for document in (leave(), leave("more leave")):
        kb.add([document])
        assert (seen(kb, HR), seen(kb, IT)) == ({"lunch"}, {"leave", "lunch"})
    report = kb.add([leave("more leave")], allowed=["group:hr"])
    assert (report.updated, report.n_nodes) == (1, 0)
    assert (seen(kb, HR), seen(kb, IT)) == ({"leave", "lunch"}, {"lunch"})


def test_principals_come_from_a_list_a_function_or_the_metadata(kb: KnowledgeBase) -> None:
    for given in (
        {"allowed": ["group:it"]},
        {"allowed": lambda document: document.metadata["acl"]},
    ):
        kb.add([leave("own", acl=["group:it"])], **given)
        assert seen(kb, IT) == {"leave", "lunch"}
    kb.add([leave("own", allowed=["group:hr"])])
    assert (seen(kb, HR), seen(kb, IT)) == ({"leave", "lunch"}, {"lunch"})
    (hit,) = kb.search("own", "keyword", scope=HR)
    assert "allowed" not in hit.to_dict()["metadata"]  # type: ignore[operator]
    assert "allowed" not in kb.metadata_fields()


@cases("allowed", [[], "group:hr", ["a\0b"]])
def test_allowed_without_principals_is_refused_and_opens_no_document(
    kb: KnowledgeBase, allowed: Any
) -> None:
    for change in (
        lambda: kb.add([leave()], allowed=allowed),
        lambda: kb.share("leave", allowed=allowed),
    ):
        with pytest.raises(ConfigurationError, match="allowed"):
            change()
    with pytest.raises(IngestionError, match="allowed"):
        kb.add([leave(allowed=allowed)]).raise_for_failures()
    assert seen(kb, NOBODY) == {"lunch"}


def test_nodes_of_one_document_with_different_principals_are_refused(kb: KnowledgeBase) -> None:
    nodes = [TextNode(id_=name, text=name, metadata={"allowed": [name]}) for name in ("a", "b")]
    parent = TextNode(id_="doc", text="d").as_related_node_info()
    for node in nodes:
        node.relationships = {"1": parent}  # type: ignore[dict-item]
    assert "different principals" in str(kb.add(nodes).failures["doc"])


def test_a_hidden_document_does_not_exist_for_reads_and_deletions(kb: KnowledgeBase) -> None:
    assert kb.get("leave", scope=IT) == kb.get("nothing", scope=IT) == []
    assert kb.count(scope=IT) == len(kb.nodes(scope=IT)) == len(kb.sources(scope=IT)) == 1
    assert kb.delete("leave", scope=IT) == 0
    for name in ("leave", "nothing"):
        with pytest.raises(ConfigurationError, match=f"no document or source '{name}' in this"):
            kb.share(name, allowed=["x"], scope=IT)
    hidden = kb.get("leave")[0].node_id
    explanation = kb.retriever("hybrid", scope=IT).explain("leave")
    assert explanation.why_not(hidden).reason == explanation.why_not("nothing").reason
    assert kb.clear(scope=IT) == 1
    assert seen(kb, None) == {"leave"}


def test_a_scope_with_principals_cannot_add_because_it_may_replace_what_it_does_not_see(
    kb: KnowledgeBase,
) -> None:
    with pytest.raises(ConfigurationError, match="but not add"):
        kb.add([leave("mine")], scope=IT)


def test_a_knowledge_base_that_requires_principals_refuses_reads_without_them() -> None:
    model = FakeEmbedding(dim=16)
    with KnowledgeBase.open("embedded::memory:", embed_model=model, require_principals=True) as kb:
        kb.add([leave()], scope=Scope("acme"), allowed=["group:hr"])
        for read in (kb.documents, kb.count, kb.sources, kb.nodes, kb.metadata_fields):
            for scope in (None, Scope("acme")):
                with pytest.raises(ScopeRequiredError, match="principals"):
                    read(scope=scope)
        for mode in ("vector", "keyword", "hybrid", "basic"):
            with pytest.raises(ScopeRequiredError, match="principals"):
                kb.search("leave", mode, scope=Scope("acme"))
        assert len(kb.search("leave", scope=Scope("acme", principals=["group:hr"]))) == 1
        assert kb.share("leave", allowed=None, scope=Scope("acme")) == 1


@pytest.mark.slow
def test_a_repeated_copy_takes_shares_over(tmp_path: Path) -> None:
    source, target = f"embedded:{tmp_path / 'a'}", f"embedded:{tmp_path / 'b'}"
    model = FakeEmbedding(dim=16)
    with KnowledgeBase.open(source, embed_model=model) as kb:
        kb.add([leave()])
    copy_knowledge_base(source, target, show_progress=False)
    with KnowledgeBase.open(source, embed_model=model) as kb:
        kb.share("leave", allowed=["group:hr"])
    assert copy_knowledge_base(source, target, show_progress=False).copied == 1
    with KnowledgeBase.open(target, embed_model=model, read_only=True) as kb:
        assert (seen(kb, HR), seen(kb, IT)) == ({"leave"}, set())


@pytest.mark.slow
def test_a_share_reaches_a_copy_that_is_open_to_read_when_it_is_refreshed(tmp_path: Path) -> None:
    url, graph = f"embedded:{tmp_path / 'kb'}", f"graph:{tmp_path / 'g'}"
    model = FakeEmbedding(dim=16)
    with KnowledgeBase.open(url, embed_model=model, graph=graph) as kb:
        kb.add([leave(title="Leave")])
        with KnowledgeBase.open(url, embed_model=model, graph=graph, read_only=True) as copy:
            kb.share("leave", allowed=["group:hr"])
            assert copy.refresh()
            assert (seen(copy, HR), seen(copy, IT)) == ({"leave"}, set())
            assert copy.graph is not None
            names = [copy.graph.names(scope=scope) for scope in (HR, IT)]
            assert [len(name) for name in names] == [1, 0]


@pytest.mark.slow
def test_a_share_that_fails_half_way_is_finished_or_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    with KnowledgeBase.open(f"embedded:{tmp_path}", embed_model=FakeEmbedding(dim=16)) as kb:
        kb.add([leave()], allowed=["group:hr"])
        with monkeypatch.context() as context:
            context.setattr(EmbeddedVectorStore, "add_rows", fail)
            with pytest.raises(OSError, match="full"):
                kb.share("leave", allowed=["group:it"])
        kb.add([Document(id_="other", text="leave")])  # settles what is unfinished
        assert "leave" in seen(kb, HR) ^ seen(kb, IT)


class Described(TransformComponent):
    """An extractor that describes one entity by the words of each passage."""

    def __call__(self, nodes: Sequence[BaseNode], **_: object) -> Sequence[BaseNode]:
        for node in nodes:
            words = node.get_content(MetadataMode.NONE)
            crane = EntityNode(name="crane", label=f"label {words}", properties={"words": words})
            node.metadata[KG_NODES_KEY] = [crane]
        return nodes


def test_extracted_values_are_seen_by_those_who_see_their_passage_also_after_shares() -> None:
    links = PassageLinks(phrases=False)
    with (
        EmbeddedGraph(":memory:") as graph,
        KnowledgeBase.open(
            "embedded::memory:",
            embed_model=FakeEmbedding(dim=16),
            graph=graph,
            links=links,
            kg_extractors=[Described()],
        ) as kb,
    ):

        def words(scope: Scope | None) -> set[str]:
            """Return the words of the shown crane, after a check that no others are anywhere."""
            nodes, edges = graph.contents(scope=scope)
            (crane,) = (node for node in nodes if node.id == "crane")
            shown = str((crane, graph.names(scope=scope), edges))
            return {word for word in ("open", "secret") if f"{word} leave" in shown}

        kb.add([Document(id_="a", text="open leave")], show_progress=False)
        kb.add([Document(id_="b", text="secret leave")], allowed=["group:hr"], show_progress=False)
        assert [words(scope) for scope in (None, HR, NOBODY)] == [{"secret"}, {"secret"}, {"open"}]
        kb.share("a", allowed=["group:it"])
        kb.share("a", allowed=None)
        assert [words(scope) for scope in (HR, NOBODY)] == [{"open"}, {"open"}]
        kb.share("b", allowed=["group:hr", "user:ann"])
        assert [words(scope) for scope in (HR, NOBODY)] == [{"secret"}, {"open"}]
        kb.delete("b")
        assert [words(scope) for scope in (None, HR)] == [{"open"}, {"open"}]
