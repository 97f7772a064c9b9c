"""Directories: new, old, foreign, half-written."""

import json
from pathlib import Path

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_retrieval_ext.errors import (
    DimensionMismatchError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.text.tokenizer import Tokenizer

NODES = [
    TextNode(id_="a", text="annual leave", embedding=[1.0, 0.0], metadata={"k": "v", "n": 3}),
    TextNode(id_="b", text="sick leave", embedding=[0.0, 1.0], metadata={"a.b": ["x"]}),
]


def open_and_close(path: Path, **settings: object) -> None:
    EmbeddedVectorStore(path, **settings).close()  # type: ignore[arg-type]


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_a_store_is_as_it_was_when_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "made" / "on the way"
    with EmbeddedVectorStore(path) as store:
        store.add(NODES)
        before = store.get_nodes()
        keyword = VectorStoreQuery(query_str="annual leave", mode=VectorStoreQueryMode.TEXT_SEARCH)
        hit = store.query(keyword)
    with EmbeddedVectorStore(path) as store:
        assert store.get_nodes() == before
        assert store.query(keyword) == hit
        assert store.dimension == 2
        assert store.count() == 2


def test_an_empty_store_answers_with_nothing(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        assert store.query(VectorStoreQuery(query_embedding=[1.0])).ids == []
        assert store.get_nodes() == store.get_nodes(["a"]) == []
        assert store.count() == 0
        assert store.client is None
        store.delete("d")
        store.delete_nodes(["a"])


def test_with_a_dimension_the_store_is_complete_at_once(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s", dim=2) as store:
        assert store.client is not None
        with pytest.raises(DimensionMismatchError, match=r"dimension 3, .* takes 2"):
            store.add([TextNode(embedding=[1.0, 0.0, 0.0])])
        store.add(NODES)
    with pytest.raises(DimensionMismatchError, match=r"dimension 2, not 5"):
        EmbeddedVectorStore(tmp_path / "s", dim=5)
    open_and_close(tmp_path / "s", dim=2)


def test_an_empty_store_takes_other_settings(tmp_path: Path) -> None:
    german = Tokenizer(language="german")
    open_and_close(tmp_path / "s", distance="dot")
    with EmbeddedVectorStore(tmp_path / "s", tokenizer=german, distance="euclid") as store:
        assert (store.tokenizer, store.distance) == (german, "euclid")
        store.add(NODES)
        store.clear()
    with EmbeddedVectorStore(tmp_path / "s", tokenizer=Tokenizer(), distance="cosine") as store:
        assert (store.tokenizer, store.distance) == (Tokenizer(), "cosine")


def test_a_directory_with_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreFormatError, match=r"thesis\.txt.*choose an empty directory"):
        EmbeddedVectorStore(tmp_path)
    assert names(tmp_path) == ["thesis.txt"]


def test_a_store_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    open_and_close(tmp_path / "s", dim=2)
    manifest = tmp_path / "s" / "store.json"
    newer = json.dumps({**json.loads(manifest.read_text()), "format": 7})
    manifest.write_text(newer)
    with pytest.raises(StoreFormatError, match=r"has format 7, this release reads 1"):
        EmbeddedVectorStore(tmp_path / "s")
    assert manifest.read_text() == newer


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"format": 1}', '{"format": 1, "tokenizer": {}}', "\x00"]
)
def test_a_broken_manifest_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    open_and_close(tmp_path / "s", dim=2)
    manifest = tmp_path / "s" / "store.json"
    manifest.write_text(content)
    with pytest.raises(StoreFormatError, match=r"store\.json cannot be read"):
        EmbeddedVectorStore(tmp_path / "s")
    assert manifest.read_text() == content


def test_a_file_is_no_store(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    for path in (file, file / "below"):
        with pytest.raises(StoreUnavailableError, match="not a directory"):
            EmbeddedVectorStore(path)


@pytest.mark.parametrize("left", ["shard.new", "shard.old", "shard", "store.json.new"])
def test_what_a_crash_leaves_is_cleared_away(tmp_path: Path, left: str) -> None:
    path = tmp_path / "s"
    open_and_close(path)
    (path / left).mkdir()
    (path / left / "half").write_text("a shard")
    if left == "store.json.new":
        (path / left / "half").unlink()
        (path / left).rmdir()
        (path / left).write_text("{")
    with EmbeddedVectorStore(path) as store:
        store.add(NODES)
        assert store.count() == 2
    assert names(path) == ["freeze", "lock", "shard", "store.json"]


def test_a_crash_before_the_first_manifest_leaves_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "store.json.new").write_text("{")
    with EmbeddedVectorStore(tmp_path) as store:
        assert store.count() == 0


def test_a_crash_between_manifest_and_shard_leaves_an_empty_store(tmp_path: Path) -> None:
    open_and_close(tmp_path / "s", dim=2)
    (tmp_path / "s" / "shard").rename(tmp_path / "gone")
    with EmbeddedVectorStore(tmp_path / "s") as store:
        assert (store.count(), store.dimension) == (0, 2)
        store.add(NODES)
