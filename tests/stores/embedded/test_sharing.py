"""Who may have a directory open, how often, and until when."""

import errno
import gc
import os
import subprocess
import textwrap
from pathlib import Path

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.errors import (
    ConfigurationError,
    DimensionMismatchError,
    StoreClosedError,
    StoreUnavailableError,
)
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.programs import run_program

NODES = [
    TextNode(id_="a", text="annual leave", embedding=[1.0, 0.0]),
    TextNode(id_="b", text="sick leave", embedding=[0.0, 1.0]),
]


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


def test_opening_twice_with_other_settings_is_refused(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        store.add(NODES)
        with pytest.raises(ConfigurationError, match="distance"):
            EmbeddedVectorStore(tmp_path / "s", distance="dot")
        with pytest.raises(DimensionMismatchError):
            EmbeddedVectorStore(tmp_path / "s", dim=3)
        assert store.count() == 2
    assert elsewhere("EmbeddedVectorStore(sys.argv[1])", tmp_path / "s").returncode == 0


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
    told = elsewhere("print(EmbeddedVectorStore(sys.argv[1]).count())", tmp_path / "s")
    assert told.stdout == "2\n"


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


def test_a_store_in_memory_is_gone_at_exit() -> None:
    told = elsewhere(
        """
        store = EmbeddedVectorStore(":memory:", dim=2)
        print(store.searcher._directory.path)
        """
    )
    assert told.stderr == ""
    assert not Path(told.stdout.strip()).exists()


def test_a_store_that_another_process_has_open_says_so(tmp_path: Path) -> None:
    with EmbeddedVectorStore(tmp_path / "s") as store:
        told = elsewhere("EmbeddedVectorStore(sys.argv[1])", tmp_path / "s")
        last = told.stderr.splitlines()[-1]
        assert f"StoreUnavailableError: another process has {tmp_path / 's'} open" in last
        assert "use a server" in last
        store.add(NODES)
    told = elsewhere("print(EmbeddedVectorStore(sys.argv[1]).count())", tmp_path / "s")
    assert told.stdout == "2\n"


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
    told = elsewhere("print(EmbeddedVectorStore(sys.argv[1]).count())", tmp_path / "s")
    assert told.stdout == "2\n", told.stderr
    with EmbeddedVectorStore(tmp_path / "s") as again:
        again.remove()
    assert not (tmp_path / "s").exists()


AS_NOBODY = "os.setuid(65534) if os.getuid() == 0 else None\n"


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
    told = elsewhere(AS_NOBODY + "EmbeddedVectorStore(sys.argv[1])", target)
    path.chmod(0o755)
    assert "StoreUnavailableError" in told.stderr
    assert "cannot be written to (Permission denied)" in told.stderr
    with EmbeddedVectorStore(path) as store:
        assert store.count() == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_is_told_and_the_parent_keeps_its_store() -> None:
    told = elsewhere(
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
    assert told.stdout == "StoreUnavailableError True\n1 True\n", told.stderr
