"""What `persist` writes, `load` gives back; what cannot be read is said to be so."""

import json
import math
import os
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import FilterCondition, MetadataFilter, MetadataFilters

from llama_retrieval_ext.errors import (
    ConfigurationError,
    ScopeRequiredError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.results import node_ids
from llama_retrieval_ext.retrievers.bm25 import BM25Retriever
from llama_retrieval_ext.retrievers.bm25.persistence import FILE_NAME, FORMAT_VERSION
from llama_retrieval_ext.testing.corpus import ACME, sample_nodes
from llama_retrieval_ext.text.tokenizer import Tokenizer

NODES: list[BaseNode] = [
    TextNode(
        id_="text",
        text="words 火灾 \U0001f525 \u2028 \n\r and a lone surrogate \ud800",
        metadata={"list": ["x", 1, 2.5], "none": None, "yes": True, "deep": {"er": {"est": 1}}},
        excluded_embed_metadata_keys=["list"],
        excluded_llm_metadata_keys=["none"],
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d", metadata={"a": 1})},
        embedding=[0.5, -0.25],
        start_char_idx=3,
        end_char_idx=9,
        text_template="{content} {metadata_str}",
        metadata_separator="; ",
        mimetype="text/markdown",
    ),
    Node(id_="node", text_resource=MediaResource(text="words", mimetype="text/plain")),
    Node(id_="media", image_resource=MediaResource(data=b"GIF89a", path=Path("x.gif"))),
    Document(id_="document", text="words", metadata={"title": "T"}),
    ImageNode(id_="image", text="words", image="aGk=", image_mimetype="image/png"),
    ImageDocument(id_="image-document", text="words", image="aGk="),
    IndexNode(id_="index", text="words", index_id="other"),
    IndexNode(id_="index-of-node", text="words", index_id="o", obj=TextNode(id_="o", text="t")),
    TextNode(id_="empty", text=""),
]


def test_nodes_come_back_of_their_class_and_with_all_they_have(tmp_path: Path) -> None:
    BM25Retriever(NODES).persist(tmp_path)
    loaded = BM25Retriever.load(tmp_path)._index.snapshot.nodes
    assert list(loaded) == sorted(node.node_id for node in NODES)
    for node in NODES:
        assert type(loaded[node.node_id]) is type(node)
        assert loaded[node.node_id] == node
        assert loaded[node.node_id].hash == node.hash


def test_a_loaded_retriever_can_be_changed_and_persisted_again(tmp_path: Path) -> None:
    BM25Retriever(sample_nodes()[:6]).persist(tmp_path)
    second = BM25Retriever.load(tmp_path)
    second.add(sample_nodes()[6:])
    second.delete(["acme-sick"])
    second.persist(tmp_path)
    third = BM25Retriever.from_persist_dir(str(tmp_path))
    fresh = BM25Retriever(node for node in sample_nodes() if node.node_id != "acme-sick")
    for query in ("annual leave days", "员工年假", "sick"):
        assert third.retrieve(query) == fresh.retrieve(query)


def test_an_empty_retriever_comes_back_empty(tmp_path: Path) -> None:
    BM25Retriever().persist(tmp_path / "new" / "directory")
    loaded = BM25Retriever.load(tmp_path / "new" / "directory")
    assert loaded.retrieve("words") == []


def test_nested_filters_and_a_tokenizer_of_ones_own_come_back(tmp_path: Path) -> None:
    either = MetadataFilters(
        filters=[
            MetadataFilter(key="year", value=2024),
            MetadataFilters(filters=[MetadataFilter(key="score", value=0.6)]),
        ],
        condition=FilterCondition.OR,
    )
    tokenizer = Tokenizer(stop_words=("foo",), cjk="bigrams")
    before = BM25Retriever(sample_nodes(), filters=either, tokenizer=tokenizer)
    before.persist(tmp_path)
    after = BM25Retriever.load(tmp_path)
    assert after.filters == either
    assert after._index.tokenizer == tokenizer
    assert node_ids(after.retrieve("leave")) == node_ids(before.retrieve("leave")) != []


def test_one_bound_to_a_scope_is_not_loaded_without_one(tmp_path: Path) -> None:
    BM25Retriever(sample_nodes()).for_scope(ACME).persist(tmp_path)
    with pytest.raises(ScopeRequiredError, match="pass scope="):
        BM25Retriever.load(tmp_path)
    hits = BM25Retriever.load(tmp_path, scope=Scope("globex")).retrieve("leave")
    assert {hit.metadata["tenant_id"] for hit in hits} == {"globex"}


def _nothing(path: Path) -> None:
    path.rmdir()


def _a_file(path: Path) -> None:
    path.rmdir()
    path.write_text("words")


def _other_files(path: Path) -> None:
    (path / "retriever.json").write_text("{}")


def _empty(path: Path) -> None:
    (path / FILE_NAME).write_bytes(b"")


def _no_archive(path: Path) -> None:
    (path / FILE_NAME).write_text("words")


def _truncated(path: Path) -> None:
    BM25Retriever(sample_nodes()).persist(path)
    whole = (path / FILE_NAME).read_bytes()
    (path / FILE_NAME).write_bytes(whole[: len(whole) // 2])


def _flipped(path: Path) -> None:
    BM25Retriever(sample_nodes()).persist(path)
    whole = bytearray((path / FILE_NAME).read_bytes())
    whole[len(whole) // 2] ^= 255
    (path / FILE_NAME).write_bytes(whole)


def _another_array(path: Path) -> None:
    with (path / FILE_NAME).open("wb") as file:
        np.savez(file, numbers=np.arange(3))


def _one_array(path: Path) -> None:
    with (path / FILE_NAME).open("wb") as file:
        np.save(file, np.arange(3))


def _changed(path: Path, **changes: object) -> None:
    BM25Retriever(sample_nodes()).persist(path)
    with np.load(path / FILE_NAME) as file:
        parts = dict(file)
    header = json.loads(parts["header"].tobytes())
    parts["header"] = np.frombuffer(json.dumps(header | changes).encode(), np.uint8)
    with (path / FILE_NAME).open("wb") as out:
        np.savez(out, **parts)


def _another_format(path: Path) -> None:
    _changed(path, format="something else")


def _settings_missing(path: Path) -> None:
    _changed(path, settings={"top_k": 3})


def _settings_odd(path: Path) -> None:
    _changed(path, settings=[1])


def _postings_too_short(path: Path) -> None:
    BM25Retriever(sample_nodes()).persist(path)
    with np.load(path / FILE_NAME) as file:
        parts = dict(file)
    with (path / FILE_NAME).open("wb") as out:
        np.savez(out, **parts | {"counts": parts["counts"][1:]})


@pytest.mark.parametrize(
    "spoil",
    [
        _nothing,
        _a_file,
        _other_files,
        _empty,
        _no_archive,
        _truncated,
        _flipped,
        _another_array,
        _one_array,
        _another_format,
        _settings_missing,
        _settings_odd,
        _postings_too_short,
    ],
)
def test_what_is_no_retriever_is_refused(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    place = tmp_path / "retriever"
    place.mkdir()
    spoil(place)
    with pytest.raises(StoreFormatError, match="retriever"):
        BM25Retriever.load(place)


def test_a_newer_format_is_refused_by_its_number(tmp_path: Path) -> None:
    _changed(tmp_path, version=FORMAT_VERSION + 1)
    with pytest.raises(StoreFormatError, match=f"format version {FORMAT_VERSION + 1}"):
        BM25Retriever.load(tmp_path)


class _OwnNode(TextNode):
    """A class that only its author can import."""


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (_OwnNode(id_="n"), "_OwnNode"),
        (TextNode(id_="n", metadata={"day": date(2024, 1, 31)}), "date"),
        (IndexNode(id_="n", index_id="i", obj=object()), "index_id"),
    ],
)
def test_a_node_that_would_not_come_back_is_refused_and_nothing_lost(
    tmp_path: Path, node: BaseNode, says: str
) -> None:
    BM25Retriever(sample_nodes()).persist(tmp_path)
    with pytest.raises(ConfigurationError, match=says):
        BM25Retriever([node]).persist(tmp_path)
    assert BM25Retriever.load(tmp_path).retrieve("leave")


def test_a_place_that_cannot_be_written_is_reported_and_nothing_lost(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    with pytest.raises(StoreUnavailableError, match="as it was"):
        BM25Retriever(sample_nodes()).persist(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "words"


def test_a_file_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StoreUnavailableError, match="cannot read"):
        BM25Retriever.load(tmp_path)


def test_a_writing_that_fails_in_the_middle_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    BM25Retriever(sample_nodes()).persist(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailableError, match="No space left"):
        BM25Retriever().persist(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert BM25Retriever.load(tmp_path).retrieve("leave")


def test_numbers_in_metadata_that_json_has_not_survive(tmp_path: Path) -> None:
    BM25Retriever([TextNode(id_="n", text="w", metadata={"x": math.inf})]).persist(tmp_path)
    (hit,) = BM25Retriever.load(tmp_path).retrieve("w")
    assert hit.metadata == {"x": math.inf}
