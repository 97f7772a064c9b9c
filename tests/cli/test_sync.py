"""`llama-retrieval sync`: a knowledge base equal to a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, best

pytestmark = pytest.mark.slow


@pytest.fixture
def url(tmp_path: Path, run: Run, handbook: Path) -> str:
    """A knowledge base that is equal to the handbook."""
    url = f"embedded:{tmp_path / 'kb'}"
    finished = run("sync", handbook, "--kb", url)
    assert finished.returncode == 0, finished.stderr
    assert "3 added, 0 changed, 0 moved, 0 deleted, 0 unchanged; 3 nodes" in finished.stdout
    return url


def test_a_dry_run_prints_the_paths_and_the_sync_does_it(
    run: Run, url: str, handbook: Path
) -> None:
    (handbook / "new").mkdir()
    (handbook / "leave.md").rename(handbook / "new" / "leave.md")
    (handbook / "lunch.txt").write_text("The canteen is closed.")
    (handbook / "travel.txt").write_text("Trains are booked by the office.")
    planned = run("sync", handbook, "--kb", url, "--dry-run").stdout.splitlines()
    assert planned[:3] == [
        f"added {handbook / 'travel.txt'}",
        f"changed {handbook / 'lunch.txt'}",
        f"moved {handbook / 'leave.md'} to {handbook / 'new' / 'leave.md'}",
    ]
    assert planned[3].startswith("1 added, 1 changed, 1 moved, 0 deleted, 1 unchanged; nothing")
    assert best(run, "noon", "--kb", url, "--mode", "keyword") == ["lunch.txt"]
    assert run("sync", handbook, "--kb", url).stdout.splitlines()[:3] == planned[:3]
    assert best(run, "noon", "--kb", url, "--mode", "keyword") == []


def test_too_many_deletions_are_an_error_that_says_what_to_do(
    run: Run, url: str, handbook: Path
) -> None:
    (handbook / "lunch.txt").unlink()
    (handbook / "leave.md").unlink()
    refused = run("sync", handbook, "--kb", url)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "2 of 3 sources" in refused.stderr
    assert "--max-deletions 1; to keep all, --no-prune" in refused.stderr
    planned = run("sync", handbook, "--kb", url, "--dry-run")
    assert planned.returncode == 0
    assert f"deleted {handbook / 'lunch.txt'}" in planned.stdout
    assert "A real run would be refused: 2 of 3 sources" in planned.stdout
    assert "--max-deletions" in planned.stdout
    kept = run("sync", handbook, "--kb", url, "--no-prune")
    assert (kept.returncode, "0 deleted" in kept.stdout) == (0, True)
    allowed = run("sync", handbook, "--kb", url, "--max-deletions", "1")
    assert f"deleted {handbook / 'lunch.txt'}" in allowed.stdout


def test_files_left_out_by_error_are_named_and_counted(run: Run, url: str, handbook: Path) -> None:
    (handbook / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    (handbook / "empty.txt").touch()
    assert run("sync", handbook, "--kb", url).returncode == 0
    (handbook / "broken.pdf").write_bytes(b"not a pdf")
    finished = run("sync", handbook, "--kb", url)
    assert finished.returncode == 3
    assert "broken.pdf" in finished.stderr
    assert "3 left out" in finished.stdout


def test_watch_syncs_after_each_change_and_goes_on_after_an_error(
    run: Run, url: str, handbook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchfiles = pytest.importorskip("watchfiles")

    def watch(root: Path, *, watch_filter: Any, **_: Any) -> Iterator[set[str]]:
        assert root == handbook
        assert not watch_filter(1, f"{url.partition(':')[2]}/ledger.sqlite3")
        yield set()  # the watch has begun
        (handbook / "travel.txt").write_text("Trains are booked by the office.")
        yield {"travel.txt"}
        (handbook / "lunch.txt").unlink()
        (handbook / "leave.md").unlink()
        yield {"lunch.txt", "leave.md"}
        yield set()  # it is refused once, not each second
        (handbook / "leave.md").write_text("Leave is 25 days.")
        yield {"leave.md"}

    monkeypatch.setattr(watchfiles, "watch", watch)
    finished = run("sync", handbook, "--kb", url, "--watch", "--max-deletions", "0.3")
    assert finished.returncode == 0
    assert f"added {handbook / 'travel.txt'}" in finished.stdout
    assert finished.stderr.count("2 of 4 sources") == 1
    assert f"changed {handbook / 'leave.md'}" in finished.stdout
    assert f"deleted {handbook / 'lunch.txt'}" in finished.stdout
