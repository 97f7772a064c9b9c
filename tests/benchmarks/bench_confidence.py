"""How well confidence tells whether the answer is there.

``python -m tests.benchmarks.bench_confidence [SET...]``

For every question of a set of ``../shared/data`` the confidence of a hybrid search, with the
relevant nodes in the knowledge base and with them filtered out: the probability (AUROC) that the
first is higher than the second for two random questions. `LocalEmbedding`, calibrated on the
knowledge base itself. Beside it what single signals reach.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from scipy.stats import rankdata

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding, Query
from llama_retrieval_ext.retrievers.confidence import LegScores
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever

DATA: Final = Path(__file__).parents[3] / "shared" / "data"
SETS: Final = ("codebase_ctx", "cosqa", "2wikimultihop", "musique_train100", "cmrc2018")
_QUESTIONS: Final = 250


def auroc(there: Sequence[float], gone: Sequence[float]) -> float:
    """The share of pairs of which the first is higher; ties count half."""
    ranks = rankdata([*there, *gone])[: len(there)]
    n = len(there)
    return float((ranks.sum() - n * (n + 1) / 2) / (n * len(gone)))


def measure(name: str) -> dict[str, float]:
    """Return AUROC by signal, and the seconds that calibration took."""
    corpus, questions = (_rows(DATA / name / f"{kind}.jsonl") for kind in ("corpus", "queries"))
    relevant: dict[str, list[str]] = defaultdict(list)
    for line in (DATA / name / "qrels.tsv").read_text().splitlines()[1:]:
        query, node, _ = line.split("\t")
        relevant[query].append(node)
    nodes = [
        TextNode(
            id_=row["_id"],
            text=f"{row['title']}\n{row['text']}".strip(),
            metadata={"n": row["_id"]},
        )
        for row in corpus
    ]
    there: dict[str, list[float]] = defaultdict(list)
    gone: dict[str, list[float]] = defaultdict(list)
    with KnowledgeBase.open("embedded::memory:", embed_model=LocalEmbedding()) as kb:
        kb.add(nodes, show_progress=False)
        start = time.perf_counter()
        kb.calibrate()
        took = time.perf_counter() - start
        retriever = kb.retriever()
        assert isinstance(retriever, HybridRetriever)
        for question in [each for each in questions if each["_id"] in relevant][:_QUESTIONS]:
            without = MetadataFilter(
                key="n", operator=FilterOperator.NIN, value=relevant[question["_id"]]
            )
            query = Query(question["text"])
            filters = MetadataFilters(filters=[without])
            for into, asked in ((there, query), (gone, query.but(filters=filters))):
                for signal, value in _signals(retriever, asked).items():
                    into[signal].append(value)
    return {**{each: auroc(there[each], gone[each]) for each in there}, "seconds": took}


def _signals(retriever: HybridRetriever, query: Query) -> dict[str, float]:
    found: dict[str, float] = {}
    estimate = retriever.confidence

    def record(asked: Query, legs: LegScores) -> float | None:
        for name, ranking in legs.items():
            found[f"top {name}"] = (ranking[0][1] or 0.0) if ranking else 0.0
        return None if estimate is None else estimate(asked, legs)

    retriever.confidence = record
    result = retriever.search(query)
    retriever.confidence = estimate
    return {
        "confidence": result.confidence or 0.0,
        **found,
        "top hybrid": (result[0].score or 0.0) if result else 0.0,
    }


def _rows(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Print a line a set, and the mean."""
    rows = {name: measure(name) for name in sys.argv[1:] or SETS}
    for name, row in rows.items():
        print(f"{name:20}", *(f"{signal} {value:.3f} " for signal, value in row.items()))
    if len(rows) > 1:
        print(f"mean confidence {fmean(row['confidence'] for row in rows.values()):.3f}")


if __name__ == "__main__":
    main()
