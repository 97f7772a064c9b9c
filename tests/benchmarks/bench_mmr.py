"""MMR: 10 of 5,000 vectors of 384 dimensions, as an array, and as hits that carry lists."""

import numpy as np
from llama_index.core.schema import TextNode

from llama_retrieval_ext import MMR, Hit, Query
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.formulas.mmr import maximal_marginal_relevance
from tests.benchmarks.ratio import compare

if __name__ == "__main__":
    rows = np.random.default_rng(0).standard_normal((5_000, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    relevance = rows @ rows[0]
    hits = [
        Hit(node=TextNode(id_=f"n{place}", embedding=row), score=1.0)
        for place, row in enumerate(rows.tolist())
    ]
    query, stage = Query("query", embedding=rows[0].tolist()), MMR(top_k=10)
    compare(
        "MMR 10 of 5,000",
        {
            "formula": lambda _: maximal_marginal_relevance(relevance, rows, top_k=10),
            "stage": lambda _: run(stage.refine_plan(query, hits)),
        },
        rounds=50,
        goal="<= 25 ms",
    )
