"""Seconds and embedding calls of `KnowledgeBase.sync`: a first sync, nothing to do, a moved folder.

Run: ``python -m tests.benchmarks.bench_sync [FILES] [URL]``. Random edits with kills are in
``tests/knowledge_base/sync_edits.py``.
"""

import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding


def main(n_files: int, url: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, model = Path(place) / "docs", FakeEmbedding(dim=64)
        for number in range(n_files):
            file = folder / f"folder{number // 1000}" / f"{number}.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"# Rule {number}\n\nRule {number} says what to do with leave.")
        with KnowledgeBase.open(url or f"embedded:{place}/kb", embed_model=model) as kb:
            report("first", kb, folder)
            for name in ("unchanged", "unchanged", "unchanged"):
                report(name, kb, folder)
            (folder / "folder0").rename(folder / "elsewhere")
            report("moved folder", kb, folder)
            report("checksum", kb, folder, checksum=True)


def report(what: str, kb: KnowledgeBase, folder: Path, *, checksum: bool = False) -> None:
    model = kb.embed_model
    assert isinstance(model, FakeEmbedding)
    model.calls.clear()
    started, cpu = perf_counter(), process_time()
    done = kb.sync(folder, checksum=checksum, show_progress=False)
    print(
        f"{what}: {perf_counter() - started:.2f} s, {process_time() - cpu:.2f} s of processor, "
        f"{len(model.calls)} texts embedded; {done}"
    )


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(int(given.get(1, 10_000)), given.get(2, ""))
