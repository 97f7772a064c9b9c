"""Learning from labels: ``python -m tests.benchmarks.bench_learning [SET...]``.

`KnowledgeBase.learn` on random questions of a set: 20 of the films, 50 of others; nDCG@10 of hybrid
search on those that did not teach it, before and after, through the knowledge base itself.
"""

import sys
from statistics import fmean

import numpy as np

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding
from llama_retrieval_ext.evaluation import Experiment, Judgements, load_judgements
from tests.benchmarks.bench_fields import EIGHT, films
from tests.benchmarks.bench_graph import DATA, load
from tests.benchmarks.bench_tuning import SETS, SavedEmbedding

_DRAWS = 5
LABELS = {"movies": 20}


def opened(name: str) -> tuple[KnowledgeBase, Judgements]:
    """Return a knowledge base in memory with a set, and what is relevant."""
    if name == "movies":
        kb = KnowledgeBase.open("embedded::memory:", embed_model=LocalEmbedding(), schema=EIGHT)
        kb.add(films(), show_progress=False)
        return kb, load_judgements(DATA / name)
    test = load(name)
    vectors = {query.query_str: query.embedding or [] for _, query in test.queries}
    kb = KnowledgeBase.open("embedded::memory:", embed_model=SavedEmbedding(vectors))
    kb.add(test.nodes, show_progress=False)
    relevant = {id_: {d: int(g) for d, g in row.items()} for id_, row in test.relevant.items()}
    return kb, Judgements({id_: query.query_str for id_, query in test.queries}, relevant)


def quality(kb: KnowledgeBase, judged: Judgements) -> dict[str, float]:
    """Return nDCG@10 of each question."""
    experiment = Experiment({"x": kb.retriever("hybrid")}, judged, measures=["nDCG@10"])
    rows = experiment.run(progress=False, warm_up=False).per_query
    return dict(zip(rows["query_id"], rows["nDCG@10"], strict=True))


def main(names: list[str]) -> None:
    """Print a line a set and draw."""
    for name in names or ["movies", *SETS]:
        kb, judged = opened(name)
        ids, before, gains = [*judged.queries], quality(kb, judged), []
        for draw in range(_DRAWS):
            order = np.random.default_rng(draw).permutation(len(ids))
            taught = {ids[at] for at in order[: LABELS.get(name, 50)]}
            learned = kb.learn(judged.only(taught))
            after = quality(kb, judged.only(set(ids) - taught))
            gains.append(fmean(after.values()) - fmean(before[id_] for id_ in after))
            print(f"{name:18}{fmean(after.values()):.4f} {gains[-1]:+.4f}  {learned}", flush=True)
            kb.unlearn()
        print(f"{name:18}mean {fmean(gains):+.4f}, least {min(gains):+.4f}", flush=True)
        kb.close()


if __name__ == "__main__":
    main(sys.argv[1:])
