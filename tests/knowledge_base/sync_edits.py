"""Random edits of a folder, synced by a process that is killed, and compared with a new build.

    python sync_edits.py URL FOLDER FILES EDITS KILL_EVERY SEED [GRAPH]

Run by `test_kill.py` with few files, and by hand with 2,000; see tests/benchmarks/README.md.
Texts have the same number of words, since engines score keywords by the mean length of the texts
that they met first.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parents[2]))

from llama_retrieval_ext import KnowledgeBase, read_documents
from llama_retrieval_ext.knowledge_base import copy_knowledge_base, storage
from llama_retrieval_ext.knowledge_base.report import SyncReport
from llama_retrieval_ext.testing import FakeEmbedding
from tests.knowledge_base.kills import forked

Mode = Literal["vector", "keyword", "graph"]
SYLLABLES = ["ba", "ke", "lo", "mi", "nu", "ra", "so", "ti"]
WORDS = [a + b + c for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES[:4]]


class Folder:
    """A folder that is edited at random."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.rng = rng
        self._made = 0

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if path.is_file())

    @property
    def folders(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if path.is_dir())

    def text(self, n_words: int) -> str:
        return " ".join(self.rng.choice(WORDS) for _ in range(n_words))

    def add(self) -> None:
        self._made += 1
        place = self.rng.choice([self.root, *self.folders])
        if self.rng.random() < 0.1:
            place = place / self.rng.choice(WORDS)
            place.mkdir(exist_ok=True)
        kind = "csv" if self.rng.random() < 0.1 else "txt"
        self._write(place / f"{self.rng.choice(WORDS)}{self._made}.{kind}")

    def change(self) -> None:
        self._write(self.rng.choice(self.files))

    def move(self) -> None:
        file = self.rng.choice(self.files)
        self._made += 1
        other = f"{self.rng.choice(WORDS)}{self._made}{file.suffix}"
        name = file.name if self.rng.random() < 0.5 else other
        file.rename(self.rng.choice([self.root, *self.folders]) / name)

    def delete(self) -> None:
        self.rng.choice(self.files).unlink()

    def rename_folder(self) -> None:
        self._made += 1
        folder = self.rng.choice(self.folders)
        folder.rename(folder.with_name(f"{self.rng.choice(WORDS)}{self._made}"))

    def edit(self) -> None:
        edits = [self.add, self.change, self.move, self.delete, self.rename_folder]
        if not self.folders:
            edits.pop()
        self.rng.choice(edits)()

    def _write(self, file: Path) -> None:
        if file.suffix == ".txt":
            file.write_text(self.text(12))
        else:  # a row has the name of its column, too
            rows = [self.text(11) for _ in range(self.rng.randint(1, 4))]
            file.write_text("\n".join(["text", *rows]))


def differences(kb: KnowledgeBase, fresh: KnowledgeBase, questions: Sequence[str]) -> list[str]:
    """In what a knowledge base differs from a new one: documents, and answers of each kind."""
    found = []
    if set(kb.documents()) != set(fresh.documents()):
        found.append("documents")
    modes: list[Mode] = ["vector", "keyword", "graph"]
    for mode in modes[: 2 if kb.graph is None else 3]:
        found += [
            f"{mode}: {question}"
            for question in questions
            if not _same(*(_scores(each, mode, question) for each in (kb, fresh)))
        ]
    return found


def _scores(kb: KnowledgeBase, mode: Mode, question: str) -> dict[str, float]:
    hits = kb.retriever(mode, top_k=50).retrieve(question)
    return {hit.node_id: round(hit.score or 0.0, 4) for hit in hits}


def _same(one: dict[str, float], other: dict[str, float]) -> bool:
    """Whether scores are the same, and ids, except where the last have equal scores."""
    near = all(
        abs(a - b) < 2e-3 for a, b in zip(one.values(), other.values(), strict=False)
    ) and len(one) == len(other)
    last = max(min(one.values(), default=0.0), min(other.values(), default=0.0)) + 2e-3
    better = [{id_ for id_, score in each.items() if score > last} for each in (one, other)]
    return near and better[0] <= other.keys() and better[1] <= one.keys()


def opened(url: str, graph: str | None) -> KnowledgeBase:
    storage._PATIENCE_S = 0.0  # whoever wrote before is dead
    return KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=32), graph=graph)


def sync(url: str, graph: str | None, folder: Path) -> None:
    with opened(url, graph) as kb:
        report = kb.sync(folder, max_deletions=1, show_progress=False)
        report.raise_for_failures()


def check(url: str, graph: str | None, folder: Path, questions: Sequence[str]) -> None:
    """It is equal to a new build, and another sync would do nothing."""
    fresh_graph = None if graph is None else f"graph:{folder}-fresh-graph"
    with opened(url, graph) as kb:
        report = kb.sync(folder, dry_run=True)
        assert report == SyncReport(unchanged=report.unchanged), report
        kb.compact()
    made = [f"{url}fresh"]
    if url.startswith("elasticsearch:"):  # its scores of keywords count what is deleted for hours
        made.append(f"{url}copy")
        copy_knowledge_base(url, made[1], show_progress=False)
    with (
        opened(url if len(made) == 1 else made[1], graph) as kb,
        opened(made[0], fresh_graph) as new,
    ):
        new.add(read_documents(folder), show_progress=False).raise_for_failures()
        new.compact()  # takes the mean length of texts anew, as above
        found = differences(kb, new, questions)
        assert not found, found
    if fresh_graph is None:
        for each in made:
            KnowledgeBase.remove(each)


def finish(work: Callable[[], object], what: str) -> float:
    """Run work in a process of its own; return its duration in seconds."""
    started = time.monotonic()
    if os.waitpid(forked(work), 0)[1]:
        sys.exit(what)
    return time.monotonic() - started


def main(url: str, root: Path, numbers: Sequence[int], graph: str | None) -> None:
    files, edits, every, seed = numbers
    rng = random.Random(seed)
    folder = Folder(root, rng)
    for _ in range(files):
        folder.add()
    seconds = finish(partial(sync, url, graph, root), "the first sync failed")
    killed = 0
    for number in range(1, edits + 1):
        folder.edit()
        if number % every:
            continue
        child = forked(partial(sync, url, graph, root))
        time.sleep(rng.uniform(0, min(seconds, 2.0)))
        os.kill(child, signal.SIGKILL)
        killed += os.waitpid(child, 0)[1] == signal.SIGKILL
    finish(partial(sync, url, graph, root), "the last sync failed")
    questions = [" ".join(rng.sample(WORDS, 3)) for _ in range(10)]
    finish(partial(check, url, graph, root, questions), "it is not equal to a new build")
    print(f"{edits} edits of {files} files, {killed} killed, equal")  # noqa: T201 - read by the test


if __name__ == "__main__":
    _, url, root, *numbers = sys.argv[:7]
    graph = sys.argv[7] if len(sys.argv) > 7 else None
    main(url, Path(root), [*map(int, numbers)], graph)
