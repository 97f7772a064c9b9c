"""`from_persist_dir` returns what `persist` wrote, or says why it cannot."""

import json
from collections.abc import Callable
from pathlib import Path

import bm25s
import pytest
from llama_index.core.schema import Document, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_retrieval_ext import BM25Retriever, Scope
from llama_retrieval_ext.errors import (
    ConfigurationError,
    ScopeRequiredError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers.bm25.persistence import FILE_NAME
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.text import Tokenizer


def test_a_loaded_node_has_its_class_metadata_and_embedding(tmp_path: Path) -> None:
    node = Document(id_="d", text="words", metadata={"list": ["x", 1]}, embedding=[0.5, -0.25])
    BM25Retriever([node]).persist(tmp_path)
    (entry,) = BM25Retriever.from_persist_dir(tmp_path)._index.entries.values()
    assert type(entry.node) is Document
    assert entry.node == node


def test_a_loaded_retriever_can_be_changed_and_persisted_again(tmp_path: Path) -> None:
    BM25Retriever(sample_nodes()[:6]).persist(tmp_path)
    second = BM25Retriever.from_persist_dir(tmp_path)
    second.add(sample_nodes()[6:])
    second.delete(["acme-sick"])
    second.persist(tmp_path)
    third = BM25Retriever.from_persist_dir(str(tmp_path))
    fresh = BM25Retriever(node for node in sample_nodes() if node.node_id != "acme-sick")
    for query in ("annual leave days", "员工年假", "sick"):
        assert third.retrieve(query) == fresh.retrieve(query)


def test_a_retriever_bound_to_a_scope_is_not_loaded_without_a_scope(tmp_path: Path) -> None:
    BM25Retriever(sample_nodes()).for_scope(ACME).persist(tmp_path)
    with pytest.raises(ScopeRequiredError, match="pass scope="):
        BM25Retriever.from_persist_dir(tmp_path)
    hits = BM25Retriever.from_persist_dir(tmp_path, scope=Scope("globex")).retrieve("leave")
    assert {hit.metadata["tenant_id"] for hit in hits} == {"globex"}


def test_the_index_is_in_bm25s_format(tmp_path: Path) -> None:
    retriever = BM25Retriever(sample_nodes())
    retriever.persist(tmp_path)
    engine = bm25s.BM25.load(tmp_path, load_corpus=True, show_progress=False)
    assert engine.corpus is not None
    scores = engine.get_scores(Tokenizer().query_tokens("annual leave"))
    (first, *_) = retriever.retrieve("annual leave")
    assert max(scores) == pytest.approx(first.score)
    assert first.node_id in engine.corpus[int(scores.argmax())]["node"]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _changed(path: Path, **changes: object) -> None:
    header = json.loads((path / FILE_NAME).read_text())
    (path / FILE_NAME).write_text(json.dumps(header | changes))


def _older_tokenizer(path: Path) -> None:
    settings = json.loads((path / FILE_NAME).read_text())["settings"]
    settings["tokenizer"]["version"] -= 1
    _changed(path, settings=settings)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: (path / FILE_NAME).unlink(), id="no settings"),
        pytest.param(lambda path: (path / FILE_NAME).write_text(""), id="empty settings"),
        pytest.param(lambda path: (path / FILE_NAME).write_text("[1]"), id="a list"),
        pytest.param(lambda path: _cut(path / FILE_NAME), id="settings cut off"),
        pytest.param(lambda path: _changed(path, format="another"), id="another format"),
        pytest.param(lambda path: _changed(path, version=1), id="older"),
        pytest.param(lambda path: _changed(path, settings={"top_k": 3}), id="few settings"),
        pytest.param(lambda path: _changed(path, settings=[1]), id="settings in a list"),
        pytest.param(_older_tokenizer, id="older tokenizer"),
        pytest.param(lambda path: (path / "vocab.index.json").unlink(), id="no index"),
        pytest.param(lambda path: _cut(path / "corpus.jsonl"), id="nodes cut off"),
        pytest.param(lambda path: _cut(path / "data.csc.index.npy"), id="scores cut off"),
    ],
)
def test_a_damaged_or_foreign_directory_is_refused(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    BM25Retriever(sample_nodes()).persist(tmp_path)
    damage(tmp_path)
    with pytest.raises(StoreFormatError, match="retriever"):
        BM25Retriever.from_persist_dir(tmp_path)


def test_persisting_keeps_other_files_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "docstore.json").write_text("{}")
    for texts in (["annual leave"], ["sick leave"]):
        BM25Retriever([TextNode(text=text) for text in texts]).persist(tmp_path)
    assert (tmp_path / "docstore.json").read_text() == "{}"
    assert BM25Retriever.from_persist_dir(tmp_path).retrieve("sick")


class _OwnNode(TextNode):
    """A class that only its author can import."""


def test_a_node_class_that_cannot_be_read_back_is_refused_and_the_stored_retriever_stays(
    tmp_path: Path,
) -> None:
    BM25Retriever(sample_nodes()).persist(tmp_path)
    with pytest.raises(ConfigurationError, match="_OwnNode"):
        BM25Retriever([_OwnNode(id_="n")]).persist(tmp_path)
    assert BM25Retriever.from_persist_dir(tmp_path).retrieve("leave")


def test_a_path_that_cannot_be_written_is_reported_and_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    with pytest.raises(StoreUnavailableError, match="cannot write"):
        BM25Retriever(sample_nodes()).persist(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "words"


def test_a_write_that_fails_in_the_middle_is_not_read_as_a_retriever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    BM25Retriever(sample_nodes()).persist(tmp_path)
    monkeypatch.setattr(bm25s.BM25, "save", full)
    with pytest.raises(StoreUnavailableError, match="No space left"):
        BM25Retriever().persist(tmp_path)
    with pytest.raises(StoreFormatError, match="again"):
        BM25Retriever.from_persist_dir(tmp_path)


def test_a_loaded_retriever_has_the_settings_of_the_persisted_one(tmp_path: Path) -> None:
    nodes = [
        TextNode(id_="r", text="running"),
        TextNode(id_="s", text="runs"),
        TextNode(id_="o", text="nothing of the kind"),
    ]
    before = BM25Retriever(
        nodes,
        top_k=2,
        tokenizer=Tokenizer(language="none", stop_words="none", split_identifiers=False),
        filters=MetadataFilters(
            filters=[
                MetadataFilter(key="gone", operator=FilterOperator.IS_EMPTY, value=None),
                MetadataFilters(filters=[MetadataFilter(key="score", value=0.6)]),
            ],
            condition=FilterCondition.OR,
        ),
        normalise=True,
        k1=0.9,
        b=0.4,
        name="words",
    )
    before.persist(tmp_path)
    after = BM25Retriever.from_persist_dir(tmp_path)
    assert node_ids(after.retrieve("running")) == ["r"]
    for query in ("running of", "runs kind", "the"):
        assert after.retrieve(query) == before.retrieve(query)
    after.add([TextNode(id_="x", text="runs", metadata={"gone": "yes"})])
    assert node_ids(after.retrieve("runs")) == ["s"]
    assert (after.top_k, after.normalise, after.name) == (2, True, "words")
    assert (after.filters, after._index.tokenizer) == (before.filters, before._index.tokenizer)
