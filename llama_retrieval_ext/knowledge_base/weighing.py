"""`Weighing`: the share of vector search in hybrid search, measured on passages without labels."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Final

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.embeddings.resolve import vector_share_of
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import scored_ids
from llama_retrieval_ext.retrievers.hybrid import CANDIDATES, default_fusion
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever, VectorRetriever
from llama_retrieval_ext.stores.engine.vector_store import EngineStore
from llama_retrieval_ext.stores.open import open_store
from llama_retrieval_ext.text.tokenizer import Tokenizer

_SENTENCE: Final = re.compile(r"[^.!?\u3002\uff01\uff1f\n]+[.!?\u3002\uff01\uff1f]*")
# A sentence with fewer distinct terms is a heading or a fragment.
_FEWEST_TERMS: Final = 4
_MOST_CHARACTERS: Final = 200
# With fewer questions the best share is chance.
_FEWEST_QUESTIONS: Final = 20
# Loss of nDCG@10 that counts as none: about the standard error with 200 questions.
_TOLERANCE: Final = 0.01
_SHARES: Final = tuple(step / 20 for step in range(21))
_TOP_K: Final = 10

_Rankings = Mapping[str, Sequence[tuple[str, float | None]]]


@dataclass(frozen=True, slots=True)
class Weighing:
    """The result of `KnowledgeBase.weigh`; qualities are nDCG@10, in ``[0, 1]``.

    Attributes:
        vector_share: The recorded share of vector search, in ``[0, 1]``.
        hybrid: Quality of hybrid search with this share.
        vector: Quality of vector search alone.
        keyword: Quality of keyword search alone.
        questions: Number of questions.
        passages: Number of passages that were searched.
    """

    vector_share: float
    hybrid: float
    vector: float
    keyword: float
    questions: int
    passages: int

    def __str__(self) -> str:
        return (
            f"vector search counts {self.vector_share:.0%} in hybrid search: on {self.questions} "
            f"sentences that ask for the rest of their passage, among {self.passages} passages, "
            f"nDCG@10 is {self.hybrid:.3f}, by vectors alone {self.vector:.3f}, by keywords alone "
            f"{self.keyword:.3f}"
        )


def weigh(
    nodes: Sequence[BaseNode],
    embed_model: BaseEmbedding,
    *,
    like: EngineStore,
    count: int,
    seed: int,
) -> Weighing:
    """Return the share of vector search that answers cloze questions best.

    A question is a sentence of a passage, which is searched without that sentence. Unlike a
    question in the words of its passage, it does not flatter keyword search. The best share is
    uncertain, so that of the result lies as near as nDCG@10 allows, which may be .01 less, to half
    way from there to the one that the model declares.

    Args:
        nodes: Passages with embeddings.
        embed_model: The model of the embeddings.
        like: The store, whose tokenizer and fields keyword search has.
        count: Maximum number of questions.
        seed: Seed for the choice of passages and sentences.

    Raises:
        ConfigurationError: Fewer than 20 passages have two sentences.

    Source:
        Inverse cloze task: Lee, Chang and Toutanova, "Latent Retrieval for Weakly Supervised Open
        Domain Question Answering", ACL 2019, https://doi.org/10.18653/v1/P19-1612, section 3,
        there to train a retriever.
    """
    questions = _cloze_questions(nodes, like.tokenizer, count=count, seed=seed)
    if len(questions) < _FEWEST_QUESTIONS:
        raise ConfigurationError(
            f"only {len(questions)} of {len(nodes)} passages have two sentences, and weights need "
            f"{_FEWEST_QUESTIONS}; give searches a weight: search(..., mode='hybrid') by "
            "retriever('hybrid', alpha=...)"
        )
    rankings = _rankings(questions, nodes, embed_model, like)
    declared = vector_share_of(embed_model)
    qualities = {share: _quality(rankings, share) for share in _SHARES}
    best = max(_SHARES, key=lambda share: (qualities[share], -abs(share - declared)))
    half_way = round((best + declared) / 2, 3)
    qualities[half_way] = _quality(rankings, half_way)
    good = [share for share in qualities if qualities[share] >= qualities[best] - _TOLERANCE]
    chosen = min(good, key=lambda share: abs(share - half_way))
    return Weighing(
        vector_share=chosen,
        hybrid=qualities[chosen],
        vector=qualities[1.0],
        keyword=qualities[0.0],
        questions=len(questions),
        passages=len(nodes),
    )


def _cloze_questions(
    nodes: Sequence[BaseNode], tokenizer: Tokenizer, *, count: int, seed: int
) -> list[tuple[BaseNode, str, str]]:
    """Return passages, each with one of its sentences and its text without that sentence."""
    random = Random(seed)  # noqa: S311 - no secret
    questions: list[tuple[BaseNode, str, str]] = []
    for node in random.sample(list(nodes), len(nodes)):
        if len(questions) == count:
            break
        text = node.get_content()
        sentences = [
            match
            for match in _SENTENCE.finditer(text)
            if len(set(tokenizer.tokens(match[0][:_MOST_CHARACTERS]))) >= _FEWEST_TERMS
        ]
        if len(sentences) > 1:
            sentence = random.choice(sentences)
            others = f"{text[: sentence.start()]} {text[sentence.end() :]}"
            questions.append((node, sentence[0].strip()[:_MOST_CHARACTERS], others))
    return questions


def _rankings(
    questions: Sequence[tuple[BaseNode, str, str]],
    nodes: Sequence[BaseNode],
    embed_model: BaseEmbedding,
    like: EngineStore,
) -> dict[str, _Rankings]:
    """Return the rankings of both searches for each question, by the id of its answer."""
    answers = {node.node_id: node.model_copy() for node, _, _ in questions}
    for node, _, others in questions:
        answers[node.node_id].set_content(others)
    texts = [node.get_content(MetadataMode.EMBED) for node in answers.values()]
    embeddings = embed_model.get_text_embedding_batch(texts)
    for node, embedding in zip(answers.values(), embeddings, strict=True):
        node.embedding = embedding
    with open_store("embedded::memory:", tokenizer=like.tokenizer) as store:
        store.use_schema(like.field_schema)
        store.add([answers.get(node.node_id, node) for node in nodes])
        vector = VectorRetriever(store, embed_model=embed_model, top_k=CANDIDATES)
        keyword = KeywordRetriever(store, top_k=CANDIDATES)
        return {
            node.node_id: {
                "vector": scored_ids(vector.search(sentence).hits),
                "keyword": scored_ids(keyword.search(sentence).hits),
            }
            for node, sentence, _ in questions
        }


def _quality(rankings: Mapping[str, _Rankings], share: float) -> float:
    """Return nDCG@10 of hybrid search; each question has one answer."""
    weights = {"vector": share, "keyword": 1 - share}
    gains = []
    for answer, legs in rankings.items():
        fusion, trusted = default_fusion(legs, CANDIDATES, weights)
        best = fusion.fuse_ids(legs, weights=trusted, top_k=_TOP_K)
        ids = [fused.node_id for fused in best]
        gains.append(1 / math.log2(ids.index(answer) + 2) if answer in ids else 0.0)
    return fmean(gains)
