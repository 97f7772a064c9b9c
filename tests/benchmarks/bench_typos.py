"""Typing errors in questions: ``python -m tests.benchmarks.bench_typos [SET...]``.

nDCG@10 on the sets of ``../shared/data`` with `LocalEmbedding`, by keywords and by both: of the
questions, without and with correction; of the same with one edit in a word of five letters or more
of each, without and with correction, as the mean of eight draws and their standard deviation; and
the processor time of a question with an error, likewise.
"""

import json
import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Final

from llama_index.core.schema import TextNode

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding
from llama_retrieval_ext.evaluation import Judgements, load_judgements
from llama_retrieval_ext.evaluation.measures import measure_queries
from llama_retrieval_ext.knowledge_base.kinds import Kind
from tests.benchmarks.bench_graph import DATA

SETS: Final = ("codebase_ctx", "movies", "cosqa")
_WORD: Final = re.compile(r"\b[A-Za-z]{5,}\b")
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_DRAWS: Final = 8
_MODES: Final[tuple[Kind, ...]] = ("keyword", "hybrid")


def nodes_of(folder: Path) -> Iterator[TextNode]:
    """Yield the documents of a set, each as one node, with the title in the metadata."""
    with (folder / "corpus.jsonl").open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            title = {"title": row["title"]} if row.get("title") else {}
            metadata = {**title, **row.get("metadata", {})}
            yield TextNode(id_=row["_id"], text=row["text"], metadata=metadata)


def with_error(question: str, draw: int) -> str:
    """Return a question with one edit in one of its words, the same for the same draw."""
    chance = random.Random(f"{question}{draw or ''}")
    words = [*_WORD.finditer(question)]
    if not words:
        return question
    word = chance.choice(words)
    letters = [*word[0]]
    at, letter = chance.randrange(len(letters)), chance.choice(_LETTERS)
    match chance.choice(("missing", "more", "wrong", "swapped")):
        case "missing":
            del letters[at]
        case "more":
            letters.insert(at, letter)
        case "wrong":
            letters[at] = letter
        case _:
            at = min(at, len(letters) - 2)
            letters[at : at + 2] = reversed(letters[at : at + 2])
    return question[: word.start()] + "".join(letters) + question[word.end() :]


def _measure(kb: KnowledgeBase, name: str, judged: Judgements) -> None:
    clean = judged.queries
    draws = [{id_: with_error(text, draw) for id_, text in clean.items()} for draw in range(_DRAWS)]
    for mode in _MODES:
        shown, taken = [], []
        for texts, correct in (([clean], False), ([clean], True), (draws, False), (draws, True)):
            values = []
            start = time.process_time()
            for questions in texts:
                run: dict[str, dict[str, float]] = {}
                for id_, text in questions.items():
                    hits = kb.search(text, mode, correct=correct)
                    run[id_] = {hit.node_id: 1 / rank for rank, hit in enumerate(hits, start=1)}
                ndcg = measure_queries(["nDCG@10"], judged.relevant, run)["nDCG@10"]
                values.append(fmean(ndcg.values()))
            taken.append(1000 * (time.process_time() - start) / len(clean) / len(texts))
            spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
            shown.append(f"{fmean(values):.4f}{spread}")
        print(
            f"{name:13} {mode:8} {' / '.join(shown)}; {taken[2]:.2f}, {taken[3]:.2f} ms", flush=True
        )


def main(names: list[str]) -> None:
    """Print a line a set and mode."""
    for name in names:
        with KnowledgeBase.open("embedded::memory:", embed_model=LocalEmbedding()) as kb:
            kb.add(nodes_of(DATA / name), show_progress=False)
            while any("not corrected yet" in hint for hint in kb.search("warm").hints):
                time.sleep(1)  # the words are being read
            _measure(kb, name, load_judgements(DATA / name))


if __name__ == "__main__":
    main(sys.argv[1:] or [*SETS])
