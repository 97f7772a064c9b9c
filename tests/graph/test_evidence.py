"""What passages say, and the same after each change."""

import random

import pytest

from llama_retrieval_ext.graph import evidence as module
from llama_retrieval_ext.graph.elements import GraphNode
from llama_retrieval_ext.graph.evidence import TextEvidence
from llama_retrieval_ext.graph.passage_graph import PassageGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks
from tests.quick import trials

TITLES = ("Anne Lister", "Overview", "Night Train (film)", "Beta Gamma", "安全生产法", "Night")


PIECES = (
    *("Anne Lister", "anne lister", "Night Train", "the night", "overview", "Alpha Beta Gamma"),
    *(
        "beta gamma",
        "alpha beta",
        "安全生产法",
        "《安全生产法》",
        "深基坑支护",
        "基坑支护",
        "It met",
    ),
)


def random_passage(rng: random.Random, id_: str) -> GraphNode:
    own = {"title": rng.choice(TITLES), "ref_doc_id": rng.choice([id_, id_, "common"])}
    return GraphNode(id_, "text_chunk", "", own, " ".join(rng.choices(PIECES, k=4)))


@pytest.mark.slow
def test_links_brought_up_to_date_are_those_derived_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", 2)  # so that limits move with so few passages
    monkeypatch.setattr(module, "_SHARE", 3)
    links = PassageLinks()
    for seed in range(trials(60)):
        rng = random.Random(seed)
        nodes: dict[str, GraphNode] = {}
        evidence = TextEvidence(links)
        for _ in range(8):
            for id_ in rng.sample([f"p{n:02}" for n in range(16)], rng.randint(1, 6)):
                if nodes.pop(id_, None) is None or rng.random() < 0.3:
                    nodes[id_] = random_passage(rng, id_)
            listed = rng.sample(list(nodes.values()), len(nodes))
            updated = PassageGraph(listed, [], links, evidence=evidence)
            fresh = TextEvidence(links)
            anew = PassageGraph(nodes.values(), [], links, evidence=fresh)
            assert said(evidence) == said(fresh)
            assert (updated.ids, updated.terms) == (anew.ids, anew.terms)
            assert (updated.transitions != anew.transitions).nnz == 0
            query = "Who met Anne Lister beside the Night Train? overview 安全生产法"
            assert updated.named_titles(query) == anew.named_titles(query)
            assert updated.named_terms(query) == anew.named_terms(query)


def said(evidence: TextEvidence) -> object:
    """Return all that evidence says."""
    counts = evidence.phrase_counts()
    having = {phrase: evidence.having(phrase) for phrase in counts}
    assert counts == {phrase: len(own) for phrase, own in having.items()}
    return evidence.passages, evidence.bearers, evidence.mentions, having
