"""Store directories: what is refused, what a crash leaves, and who has one open."""

import errno
import gc
import os
import subprocess
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    StoreClosedError,
    StoreFormatError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.text.tokenizer import Tokenizer
from tests.programs import run_program

NODES = [
    TextNode(id_="a", text="annual leave", embedding=[1.0, 0.0], metadata={"k": "v", "n": 3}),
    TextNode(id_="b", text="sick leave", embedding=[0.0, 1.0], metadata={"a.b": ["x"]}),
]


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_a_store_opened_with_a_dimension_has_its_shard_and_its_folders(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "new" / "s", dim=2) as store:
        assert store.client is not None
        with pytest.raises(DimensionMismatchError, match=r"dimension 3, .* takes 2"):
            store.add([TextNode(embedding=[1.0, 0.0, 0.0])])
        store.add(NODES)
    with pytest.raises(DimensionMismatchError, match=r"dimension 2, not 5"):
        EmbeddedVectorStore(tmp_path / "new" / "s", dim=5)
    open_and_close(tmp_path / "new" / "s", dim=2)


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


@pytest.mark.parametrize("left", ["shard.new", "shard.old", "shard", "store.json.new"])
def test_leftovers_of_a_crash_are_removed_when_the_store_is_opened(
    tmp_path: Path, left: str
) -> None:
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
    assert {*names(path)} - {"reserve"} == {"freeze", "lock", "shard", "store.json"}


def test_before_a_deletion_a_full_disk_gets_the_reserve_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(NODES)
        reserve = tmp_path / "s" / "reserve"
        reserve.touch()  # there is none in memory
        monkeypatch.setattr(
            "shutil.disk_usage", lambda _: SimpleNamespace(free=0 if reserve.exists() else 2**23)
        )
        store.check_room([])  # as before a knowledge base writes its journal
        assert not reserve.exists()


def test_a_crash_before_the_first_manifest_leaves_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "store.json.new").write_text("{")
    with EmbeddedVectorStore(tmp_path) as store:
        assert store.count() == 0


def open_and_close(path: Path, **settings: object) -> None:
    EmbeddedVectorStore(path, **settings).close()  # type: ignore[arg-type]


def elsewhere(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """What a process of its own makes of some code; the store class is imported there."""
    importing = "from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore"
    return run_program(f"import os, sys\n{importing}\n{textwrap.dedent(code)}", *arguments)


def test_opening_twice_gives_the_same_store_twice(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "s")
    first = EmbeddedVectorStore(tmp_path / "s")
    second = EmbeddedVectorStore(str(tmp_path / "link"))
    first.add(NODES[:1])
    assert second.count() == 1
    first.close()
    second.add(NODES[1:])
    assert second.count() == 2
    with pytest.raises(StoreClosedError):
        first.count()
    second.close()
    with EmbeddedVectorStore(tmp_path / "s") as third:
        assert third.count() == 2


@pytest.mark.slow
def test_opening_twice_with_other_settings_is_refused(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(NODES)
        with pytest.raises(ConfigurationError, match="distance"):
            EmbeddedVectorStore(tmp_path / "s", distance="dot")
        with pytest.raises(DimensionMismatchError):
            EmbeddedVectorStore(tmp_path / "s", dim=3)
        assert store.count() == 2
    assert elsewhere("EmbeddedVectorStore(sys.argv[1])", tmp_path / "s").returncode == 0


@pytest.mark.slow
def test_a_store_that_nobody_holds_any_more_is_closed(tmp_path: Path) -> None:
    store = EmbeddedVectorStore(tmp_path / "s")
    store.add(NODES)
    again = EmbeddedVectorStore(tmp_path / "s")
    del store
    gc.collect()
    assert again.count() == 2
    assert "another process" in elsewhere("EmbeddedVectorStore(sys.argv[1])", tmp_path / "s").stderr
    del again
    gc.collect()
    done = elsewhere("print(EmbeddedVectorStore(sys.argv[1]).count())", tmp_path / "s")
    assert done.stdout == "2\n"


def test_a_store_in_memory_is_gone_when_closed_and_shared_with_nobody() -> None:
    first, second = EmbeddedVectorStore(":memory:"), EmbeddedVectorStore(":memory:")
    first.add(NODES)
    assert second.count() == 0
    place = first.searcher._directory.path
    assert place.is_dir()
    first.close()
    assert not place.exists()
    place = second.searcher._directory.path
    del second
    gc.collect()
    assert not place.exists()


@pytest.mark.slow
def test_a_store_in_memory_is_gone_at_exit() -> None:
    done = elsewhere(
        """
        store = EmbeddedVectorStore(":memory:", dim=2)
        print(store.searcher._directory.path)
        """
    )
    assert done.stderr == ""
    assert not Path(done.stdout.strip()).exists()


@pytest.mark.slow
def test_a_store_that_another_process_has_open_is_refused(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        done = elsewhere("EmbeddedVectorStore(sys.argv[1])", tmp_path / "s")
        last = done.stderr.splitlines()[-1]
        assert f"StoreUnavailableError: another process has {tmp_path / 's'} open" in last
        assert "use a server" in last
        store.add(NODES)
    done = elsewhere("print(EmbeddedVectorStore(sys.argv[1]).count())", tmp_path / "s")
    assert done.stdout == "2\n"


@pytest.mark.slow
def test_a_store_that_cannot_be_removed_is_closed_and_others_may_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedVectorStore(tmp_path / "s")
    store.add(NODES)

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, "broken disk")

    with monkeypatch.context() as patched:
        patched.setattr("llama_retrieval_ext.stores.embedded.directory.write_config", failing)
        with pytest.raises(StoreUnavailableError, match="broken disk"):
            store.remove()
    with pytest.raises(StoreClosedError):
        store.count()
    store.close()
    done = elsewhere("print(EmbeddedVectorStore(sys.argv[1]).count())", tmp_path / "s")
    assert done.stdout == "2\n", done.stderr
    with EmbeddedVectorStore(tmp_path / "s") as again:
        again.remove()
    assert not (tmp_path / "s").exists()


AS_NOBODY = "os.setuid(65534) if os.getuid() == 0 else None\n"


@pytest.mark.slow
@pytest.mark.parametrize("what", ["existing", "new"])
def test_a_read_only_directory_is_refused_and_nothing_is_lost(tmp_path: Path, what: str) -> None:
    path = tmp_path / "s"
    with EmbeddedVectorStore(path) as store:
        store.add(NODES)
    for folder in (*tmp_path.parents, tmp_path):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    path.chmod(0o555)
    target = path if what == "existing" else path / "new"
    done = elsewhere(AS_NOBODY + "EmbeddedVectorStore(sys.argv[1])", target)
    path.chmod(0o755)
    assert "StoreUnavailableError" in done.stderr
    assert "cannot be written to (Permission denied)" in done.stderr
    with EmbeddedVectorStore(path) as store:
        assert store.count() == 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_store_is_refused_in_a_forked_child_and_works_in_the_parent() -> None:
    done = elsewhere(
        """
        from llama_index.core.schema import TextNode
        store = EmbeddedVectorStore(":memory:")
        store.add([TextNode(embedding=[1.0])])
        child = os.fork()
        if not child:
            try:
                store.count()
            except Exception as error:
                print(type(error).__name__, "forked" in str(error), flush=True)
            store.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(store.count(), store.searcher._directory.path.is_dir())
        """
    )
    assert done.stdout == "StoreUnavailableError True\n1 True\n", done.stderr
