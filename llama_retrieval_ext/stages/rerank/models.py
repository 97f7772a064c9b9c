"""Rerankers of the package ``rerankers``, objects with the same method, and their chain."""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore

from llama_retrieval_ext.embeddings.fastembed_models import CrossEncoder
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import either_way
from llama_retrieval_ext.execution.plan import Call, Plan
from llama_retrieval_ext.execution.retrieval import embed
from llama_retrieval_ext.formulas.cosine import cosines, matrix
from llama_retrieval_ext.hits import node_copy
from llama_retrieval_ext.parameters import Count, TimeLimit
from llama_retrieval_ext.pipeline.postprocessor import Postprocessed
from llama_retrieval_ext.pipeline.stages import Refine, ranking_of
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import ScoreKind, calibrated, in_order, reranked
from llama_retrieval_ext.results import Hit, origin_of
from llama_retrieval_ext.stages.hit_embeddings import origin_embeddings, text_embeddings
from llama_retrieval_ext.stages.rerank.reranker import Reranker, attempted


class RankedDocument(Protocol):
    """A ranker's result for a document: a score, or else a rank from 1."""

    @property
    def doc_id(self) -> Any: ...  # noqa: ANN401, D102 - a number or a string, as it was given
    @property
    def score(self) -> float | None: ...  # noqa: D102
    @property
    def rank(self) -> int | None: ...  # noqa: D102


@runtime_checkable
class Ranker(Protocol):
    """A model with the method of the package ``rerankers``."""

    def rank(self, query: str, docs: list[str], doc_ids: list[int]) -> Iterable[RankedDocument]:
        """Return the documents with score or rank, in any order; some may be missing."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class ModelRerank(Reranker):
    """Reranker around a cross-encoder: ``"fastembed:BAAI/bge-reranker-base"``, or any object.

    An object has ``rank(query, docs, doc_ids)``, as models of the package ``rerankers``. If it
    gives no scores, a hit's score is the reciprocal of its rank. Documents missing from its result
    are removed. If it fails, the order is unchanged and the answer is marked degraded.

    Args:
        ranker: The reranker; or ``fastembed:NAME`` or ``fastembed:./FOLDER`` (extra ``models``),
            which is loaded, or downloaded, at the first query.
        score_kind: The scale of its scores; for most cross-encoders ``"logit"``, which is the
            default with ``fastembed:``.
        top_k: Number of hits to keep, at least 1; None for all.
        timeout_s: Time limit in seconds; None for the remaining time of the query.

    Raises:
        ConfigurationError: The reranker has no such method, there is no such model, or a number is
            out of range.
        MissingDependencyError: The extra ``models`` is not installed.
    """

    ranker: Ranker | str
    _: KW_ONLY
    score_kind: ScoreKind = "unknown"
    top_k: Count | None = None
    timeout_s: TimeLimit = None

    def __post_init__(self) -> None:
        ranker = _ranker(self.ranker)
        object.__setattr__(self, "ranker", ranker)
        if self.score_kind == "unknown" and isinstance(ranker, CrossEncoder):
            object.__setattr__(self, "score_kind", ranker.score_kind)

    def rerank_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit] | None]:
        """Return the plan for the hits by the model's scores or ranks."""
        texts = [hit.node.get_content(metadata_mode=MetadataMode.LLM) for hit in hits]
        places = list(range(len(hits)))
        # list: some rankers are generators; their work must run inside the call.
        ranker = _ranker(self.ranker)
        ranked: list[RankedDocument] = yield Call(
            lambda: list(ranker.rank(query.query_str, texts, places))
        )
        scores: dict[int, float] = {}
        for document in ranked:
            if document.doc_id in range(len(hits)):
                score = document.score
                scores.setdefault(
                    document.doc_id,
                    1.0 / max(document.rank or 1, 1)
                    if score is None
                    else calibrated(float(score), self.score_kind),
                )
        best = sorted(scores, key=lambda index: (-scores[index], hits[index].node_id))
        picks = [(index, scores[index]) for index in best[: self.top_k]]
        return reranked(hits, picks, by=type(ranker).__name__)


def _ranker(ranker: Ranker | str) -> Ranker:
    """Return the ranker, or the cross-encoder that a notation names."""
    if isinstance(ranker, Ranker):
        return ranker
    provider, _, location = ranker.partition(":") if isinstance(ranker, str) else ("", "", "")
    if provider == "fastembed" and location:
        return CrossEncoder(location)
    raise ConfigurationError(
        "a ranker has a method rank(query, docs, doc_ids), or is fastembed:NAME or "
        f"fastembed:./FOLDER; got {ranker!r}"
    )


@runtime_checkable
class RerankMethod(Protocol):
    """Any other object that reranks nodes."""

    def rerank(self, query: Query, nodes: list[NodeWithScore], /) -> Any:  # noqa: ANN401 - hits, or a coroutine of them
        """Return some of the nodes, best first."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class ObjectRerank(Reranker):
    """Reranker around any object with ``rerank(query, nodes)``, blocking or async.

    It gets the `Query` and copies of the hits, and returns hits, best first.
    """

    reranker: RerankMethod

    def rerank_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[NodeWithScore]]:
        """Return the plan for the ranking of the object."""
        copies = [hit.model_copy(update={"node": node_copy(hit.node)}) for hit in hits]
        blocking, asynchronous = either_way(self.reranker.rerank, query, copies)
        answer = yield Call(blocking, asynchronous)
        return ranking_of(answer, f"{type(self.reranker).__name__}.rerank")


@dataclass(frozen=True, slots=True, repr=False)
class EmbeddingRerank(Reranker):
    """Reranker by the cosine of text and query embeddings, both from this model.

    It makes scores of different retrievers comparable. Texts are embedded again, in one batch,
    because stored embeddings may be of another model. If a hit comes from a retriever of this
    package with the same model, its stored embedding is used instead. If the model fails, the
    order is unchanged and the answer is marked degraded.

    Args:
        embed_model: The embedding model.
        top_k: Number of hits to keep, at least 1; None for all.
        timeout_s: Time limit in seconds; None for the remaining time of the query.

    Raises:
        ConfigurationError: There is no model, or a number is out of range.

    Scores are cosines, in ``[-1, 1]``; ties are sorted by node id.
    """

    embed_model: BaseEmbedding
    _: KW_ONLY
    top_k: Count | None = None
    timeout_s: TimeLimit = None
    score_kind: ScoreKind = field(default="unknown", init=False, repr=False)

    def rerank_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit] | None]:
        """Return the plan for the hits by cosine."""
        # An embedding given with the query is from the retriever's model.
        question = yield from embed(replace(query, embedding=None), self.embed_model)
        origins = [(hit, origin_of(hit)) for hit in hits]
        same = [hit for hit, origin in origins if origin and origin.embed_model is self.embed_model]
        vectors = yield from origin_embeddings(same, self.embed_model)
        missing = [hit for hit in hits if hit.node.node_id not in vectors]
        if missing:
            vectors.update((yield from text_embeddings(missing, self.embed_model)))
        texts = [vectors[hit.node.node_id] for hit in hits]
        scores: list[float] = yield Call(
            lambda: cosines(matrix(texts, dim=len(question)), question).tolist()
        )
        best = sorted(range(len(hits)), key=lambda index: (-scores[index], hits[index].node_id))
        picks = [(index, scores[index]) for index in best[: self.top_k]]
        return reranked(hits, picks, by="EmbeddingRerank", ceiling=1.0)


AnyReranker: TypeAlias = Refine | BaseNodePostprocessor | Ranker | RerankMethod


def as_reranker(part: AnyReranker) -> Refine:
    """Return a stage unchanged, or wrap a postprocessor, a model or another reranker."""
    if isinstance(part, Refine):
        return part
    if isinstance(part, BaseNodePostprocessor):
        return Postprocessed(part)
    if isinstance(part, Ranker) and not isinstance(part, type):
        return ModelRerank(part)
    if isinstance(part, RerankMethod) and not isinstance(part, type):
        return ObjectRerank(part)
    raise ConfigurationError(
        "a reranker is a stage such as RuleRerank(), a LlamaIndex postprocessor, or an object with "
        f"rank(query, docs, doc_ids) or rerank(query, nodes); got {part!r}"
    )


@dataclass(frozen=True, slots=True, init=False, repr=False)
class RerankChain(Refine):
    """Ranking of the first reranker that works; the input ranking if none does.

    If a reranker fails, times out or returns nothing, the answer is marked degraded and the next
    one is tried. A stage that only removes hits, such as `Threshold`, may return nothing. Each
    reranker gets an equal part of the query's remaining time: half if one more follows, a third if
    two follow.

    Args:
        rerankers: The rerankers, in the order they are tried; at least one. Stages, LlamaIndex
            postprocessors, models of the package ``rerankers``, or objects with
            ``rerank(query, nodes)``.
        timeout_s: Time limit in seconds for each; None for the time of the query.

    Raises:
        ConfigurationError: There is no reranker, one is invalid, or ``timeout_s`` is out of range.

    The order of a reranker is kept. If its scores contradict that order, for example because it
    only reorders, a score is raised to those of lower hits. Hits that it adds are removed.

    Examples:
        >>> from llama_retrieval_ext.stages.rerank.rules import RuleRerank
        >>> RerankChain(RuleRerank(), timeout_s=2.0)
        RerankChain(RuleRerank(), timeout_s=2.0)

    """

    rerankers: tuple[Refine, ...]
    timeout_s: TimeLimit

    def __init__(self, *rerankers: AnyReranker, timeout_s: TimeLimit = None) -> None:
        if not rerankers:
            raise ConfigurationError("RerankChain() needs at least one reranker")
        object.__setattr__(self, "rerankers", tuple(map(as_reranker, rerankers)))
        object.__setattr__(self, "timeout_s", timeout_s)

    def refine_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit]]:
        """Return the plan for the ranking of the first reranker that works."""
        ids = {hit.node.node_id for hit in hits}
        for index, stage in enumerate(self.rerankers if hits else ()):
            share = 1.0 / (len(self.rerankers) - index)
            ranking = yield from attempted(
                stage, query, hits, timeout_s=self.timeout_s, share=share
            )
            if ranking is not None:
                return in_order([hit for hit in ranking if hit.node.node_id in ids])
        return list(hits)
