"""MMR: 10 of 5,000 vectors of 384 dimensions."""

import numpy as np

from llama_retrieval_ext.formulas.mmr import maximal_marginal_relevance
from tests.benchmarks.ratio import compare

if __name__ == "__main__":
    rows = np.random.default_rng(0).standard_normal((5_000, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    relevance = rows @ rows[0]
    compare(
        "MMR 10 of 5,000",
        {"ours": lambda _: maximal_marginal_relevance(relevance, rows, top_k=10)},
        rounds=50,
        goal="<= 25 ms",
    )
