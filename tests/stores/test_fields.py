"""Search over fields against an oracle in Python: random schemas, weights and scopes.

The oracle is the sum of textbook BM25 over the fields, and of hybrid search that and the cosine.
Engines differ from it by how they measure the mean length and the rarity of terms, which
`MEANINGS` says of each.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from pathlib import Path
from typing import Final

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import HybridRetriever, KeywordRetriever, Query, Scope
from llama_retrieval_ext.schema import EVERYTHING, TEXT, Schema
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.text import Tokenizer
from tests.quick import trials
from tests.servers.elasticsearch import elasticsearch_url
from tests.stores.engines import filled

__all__ = ["elasticsearch_url"]

WORDS: Final = (
    "the",
    "island",
    "engineer",
    "war",
    "火灾",
    "island's",
    "space",
    "of",
    "C++",
    "2000",
)
FIELDS: Final = ("title", "headings", "actors", "tags", "text")
TENANTS: Final = ("acme", "globex")
TOKENIZER: Final = Tokenizer()


@dataclass(frozen=True)
class Meaning:
    """How an engine measures lengths and rarity.

    Attributes:
        by_field: Whether the rarity of a term is that among the nodes that have the field.
        scoped: Whether it is that in the scope.
        scoped_lengths: Whether the mean length is that of all nodes in the scope, and not of all
            nodes that have the field.
        smoothing: Pseudo-documents in the mean length.
        k1: Saturation.
        close: Relative error of scores: lengths are stored in few bits.
    """

    by_field: bool = False
    scoped: bool = True
    scoped_lengths: bool = False
    smoothing: int = 10
    k1: float = 1.2
    close: float = 1e-4


EMBEDDED: Final = Meaning()
MEANINGS: Final = {
    "embedded": EMBEDDED,
    "qdrant": EMBEDDED,
    "milvus": Meaning(smoothing=0, k1=1.5, scoped_lengths=True),
    "elasticsearch": Meaning(by_field=True, scoped=False, smoothing=0, close=0.03),
}


def _text(chance: random.Random, most: int) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(0, most)))


def _node(chance: random.Random, place: int) -> TextNode:
    metadata: dict[str, object] = {
        "title": _text(chance, 3),
        "heading_path": _text(chance, 3),
        "actors": [_text(chance, 2) for _ in range(chance.randint(0, 3))],
        "tags": _text(chance, 4),
        "other": _text(chance, 3),
        "tenant_id": chance.choice(TENANTS),
    }
    kept = {
        key: value for key, value in metadata.items() if key == "tenant_id" or chance.random() < 0.7
    }
    angle = chance.uniform(0, 2 * math.pi)
    vector = [math.cos(angle), math.sin(angle)]
    return TextNode(id_=f"n{place:03}", text=_text(chance, 20), metadata=kept, embedding=vector)


def _schema(chance: random.Random) -> Schema | None:
    if chance.random() < 0.2:
        return None
    names = chance.sample(FIELDS, chance.randint(1, len(FIELDS)))
    weights = {name: chance.choice((0.5, 1, 1.5, 3)) for name in names}
    if chance.random() < 0.5:
        weights[EVERYTHING] = chance.choice((0, 0.5, 2))
    return Schema(text=weights)


def oracle(
    nodes: Sequence[TextNode],
    query: str,
    schema: Schema,
    weights: Mapping[str, float],
    tenant: str | None,
    meaning: Meaning,
) -> dict[str, float]:
    """Return the scores above 0 of the visible nodes."""
    terms = Counter(TOKENIZER.query_tokens(query))
    stops = Counter(TOKENIZER.query_stop_words(query))
    seen = [node for node in nodes if tenant in (None, node.metadata["tenant_id"])]
    corpus = seen if meaning.scoped else nodes
    documents = {node.node_id: _documents(node, schema) for node in nodes}
    scores: dict[str, float] = {}
    for name, weight in weights.items():
        asked = terms + Counter()
        factors = {term: float(count) for term, count in asked.items()}
        for term in stops:
            factors[term] = factors.get(term, 0.0) + schema.stop_word_weight(name) * stops[term]
        usual = 100 if name in {EVERYTHING, TEXT} else 5
        measured = corpus if meaning.scoped_lengths else nodes
        lengths = [len(documents[node.node_id][name]) for node in measured]
        lengths = lengths if meaning.scoped_lengths else [*filter(None, lengths)]
        total = sum(lengths) + meaning.smoothing * usual
        mean = total / (len(lengths) + meaning.smoothing or 1)
        texts = [documents[node.node_id][name] for node in corpus]
        size = sum(map(bool, texts)) if meaning.by_field else len(texts)
        for node in seen:
            document = Counter(documents[node.node_id][name])
            norm = meaning.k1 * (0.25 + 0.75 * document.total() / (mean or 1))
            for term, factor in factors.items():
                if document[term] and factor:
                    holders = sum(term in text for text in texts)
                    idf = math.log(1 + (size - holders + 0.5) / (holders + 0.5))
                    tf = document[term] * (meaning.k1 + 1) / (document[term] + norm)
                    score = scores.get(node.node_id, 0.0) + weight * factor * idf * tf
                    scores[node.node_id] = score
    return scores


def _documents(node: TextNode, schema: Schema) -> dict[str, list[str]]:
    tokens = {name: TOKENIZER.tokens(text) for name, text in schema.texts(node).items()}
    return {**tokens, EVERYTHING: [token for part in tokens.values() for token in part]}


def _check(
    chance: random.Random, store: object, nodes: Sequence[TextNode], meaning: Meaning
) -> None:
    """Compare the scores of a random query with the oracle's."""
    schema: Schema = store.field_schema  # type: ignore[attr-defined]  # an EngineStore
    query = " ".join(chance.choices(WORDS, k=chance.randint(1, 4)))
    names = chance.sample(list(schema.text), chance.randint(1, len(schema.text)))
    fields = {name: chance.choice((0.5, 1, 4)) for name in names} if chance.random() < 0.5 else None
    tenant = chance.choice((None, *TENANTS))
    scope = None if tenant is None else Scope(tenant)
    case = (query, fields, schema, tenant)
    expected = oracle(nodes, query, schema, schema.weights(fields), tenant, meaning)
    keyword = KeywordRetriever(store, top_k=len(nodes), fields=fields)  # type: ignore[arg-type]
    hits = {hit.node_id: hit.score or 0.0 for hit in keyword.search(query, scope=scope).hits}
    assert hits.keys() == expected.keys(), case
    # An engine may leave out a constant factor.
    factor = sum(expected.values()) / sum(hits.values()) if hits else 1.0
    scaled = {node_id: factor * score for node_id, score in hits.items()}
    assert scaled == pytest.approx(expected, rel=meaning.close), case
    alpha, vector = chance.uniform(0.1, 0.9), [*chance.choice(nodes).get_embedding()]
    hybrid = HybridRetriever(store, top_k=len(nodes), fields=fields, alpha=alpha)  # type: ignore[arg-type]
    question = Query(query, scope=scope, embedding=vector)
    both = {hit.node_id: hit.score or 0.0 for hit in hybrid.search(question).hits}
    seen = [node for node in nodes if tenant in (None, node.metadata["tenant_id"])]
    assert both == pytest.approx(_fused(seen, vector, expected, alpha), abs=meaning.close), case


def _fused(
    seen: Sequence[TextNode], vector: Sequence[float], keyword: Mapping[str, float], alpha: float
) -> dict[str, float]:
    """Return cosines from their least to their largest, and keyword scores by their largest."""
    cosines = {node.node_id: sum(map(mul, vector, node.get_embedding())) for node in seen}
    least, most = min(cosines.values(), default=0.0), max(cosines.values(), default=0.0)
    largest = max(keyword.values(), default=1.0)
    return {
        node_id: alpha * ((cosine - least) / (most - least) if most > least else float(cosine > 0))
        + (1 - alpha) * keyword.get(node_id, 0.0) / largest
        for node_id, cosine in cosines.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(trials(8)))
def test_scores_are_the_weighted_sum_of_bm25_over_the_fields(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [_node(chance, place) for place in range(chance.randint(1, 40))]
    with EmbeddedVectorStore(":memory:", schema=_schema(chance)) as store:
        store.add(nodes)
        for _ in range(20):
            _check(chance, store, nodes, EMBEDDED)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [name for name in MEANINGS if name != "embedded"])
def test_each_engine_answers_as_its_oracle(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for seed in range(trials(3)):
        chance = random.Random(seed)
        nodes = [_node(chance, place) for place in range(chance.randint(1, 40))]
        settings = {"store_params": {"number_of_replicas": 0}} if engine == "elasticsearch" else {}
        schema = _schema(chance)
        with filled(
            engine, nodes, request=request, folder=tmp_path, schema=schema, **settings
        ) as backend:
            for _ in range(20):
                _check(chance, backend.store, nodes, MEANINGS[engine])
