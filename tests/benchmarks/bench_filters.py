"""Quality of keyword search on films with filters in the words of its questions.

A question names the title of a film, or words of its text, and what its metadata say, such as
"comedies after 1990 with Tom Hanks about ..."; that film is what it looks for.

``python -m tests.benchmarks.bench_filters [FOLDER]``
"""

import json
import sys
from math import log2
from pathlib import Path
from random import Random
from time import perf_counter

from llama_index.core import Document

from llama_retrieval_ext import KnowledgeBase, Schema
from llama_retrieval_ext.testing import FakeEmbedding

FOLDER = Path("../shared/data/movies")
COUNT = 60


def question(film: dict[str, object], random: Random) -> str:
    """Return words of a film's text, with one or two facts of its metadata."""
    metadata, words = film["metadata"], str(film["text"]).split()
    assert isinstance(metadata, dict)
    start = random.randrange(max(1, len(words) - 3))
    year, genres, actors = (metadata[name] for name in ("year", "genres", "actors"))
    facts = [f"{random.choice(genres)} movies about {' '.join(words[start : start + 3])}"]
    others = [f"from {year}", f"with {random.choice(actors)}", f"after {year - 3}"]
    return ", ".join([*facts, *random.sample(others, 1)]).lower()


def main(folder: Path = FOLDER) -> None:
    """Print nDCG@10 with and without filters, and the time of a search."""
    random = Random(33)
    films = [json.loads(line) for line in (folder / "corpus.jsonl").open(encoding="utf-8")]
    full = [f for f in films if f["text"] and f["metadata"]["genres"] and f["metadata"]["actors"]]
    asked = [(film["_id"], question(film, random)) for film in random.sample(full, COUNT)]
    schema = Schema(facets=["genres", "director", "actors"], numbers=["year", "rating", "votes"])
    model = FakeEmbedding(dim=2)
    with KnowledgeBase.open("embedded::memory:", embed_model=model, schema=schema) as kb:
        documents = [
            Document(id_=f["_id"], text=f["text"], metadata={"title": f["title"], **f["metadata"]})
            for f in films
        ]
        kb.add(documents, show_progress=False)
        for interpret in (False, True):
            kb.search(asked[0][1], "keyword", interpret=interpret)
            start, total, narrowed = perf_counter(), 0.0, 0
            for id_, text in asked:
                result = kb.search(text, "keyword", interpret=interpret)
                narrowed += any("filtered by" in hint for hint in result.hints)
                ranks = [at for at, hit in enumerate(result, 1) if hit.node.ref_doc_id == id_]
                total += 1 / log2(ranks[0] + 1) if ranks else 0.0
            ms = 1000 * (perf_counter() - start) / COUNT
            print(f"{interpret=}: nDCG@10 {total / COUNT:.3f}, {narrowed} narrowed, {ms:.1f} ms")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
