"""Diversity: hits that are relevant and do not repeat each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TypeAlias

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_retrieval_ext.checks import is_number, of_type
from llama_retrieval_ext.errors import ConfigurationError, ExecutionError
from llama_retrieval_ext.execution.context import call, current_context
from llama_retrieval_ext.execution.embedding import embed
from llama_retrieval_ext.execution.plan import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.formulas.cosine import Vector, cosines, matrix
from llama_retrieval_ext.formulas.mmr import maximal_marginal_relevance
from llama_retrieval_ext.query import Query, check_top_k
from llama_retrieval_ext.reordering import ScoreKind, reranked
from llama_retrieval_ext.results import Hit, Origin, origin_of
from llama_retrieval_ext.stages.rerank.reranker import Reranker, check_timeout

# Node ids to their embeddings; ids that are not known are left out.
EmbeddingLookup: TypeAlias = Callable[[Sequence[str]], Mapping[str, Vector]]
EmbeddingSource: TypeAlias = BasePydanticVectorStore | EmbeddingLookup


def stored_embeddings(
    hits: Sequence[Hit], source: EmbeddingSource | None, model: BaseEmbedding | None = None
) -> Plan[dict[str, Vector]]:
    """The plan for the embeddings that stores have.

    Args:
        hits: Whose embeddings; nodes that carry theirs need not be looked up.
        source: A store or a function; None for the stores that the hits were found in.
        model: The model that the embeddings must be of; None for any.

    Returns:
        By node id; what nobody knows is left out.

    Raises:
        ConfigurationError: The source cannot give nodes by id.
    """
    if not hits:  # to some stores no ids at all mean every node there is
        return {}
    if source is None:
        return (yield from origin_embeddings(hits, model))
    vectors: Mapping[str, Vector] = yield _lookup(source, [hit.node.node_id for hit in hits])
    return {**vectors}


def origin_embeddings(hits: Sequence[Hit], model: BaseEmbedding | None) -> Plan[dict[str, Vector]]:
    """The plan for the embeddings in the stores that hits were found in, one request a store.

    Args:
        hits: Whose embeddings; one without a known store has none.
        model: Stores that are known to have embeddings of another model are left out.
    """
    stores: dict[int, BasePydanticVectorStore] = {}
    ids: dict[int, list[str]] = {}
    for hit in hits:
        origin = origin_of(hit)
        if origin is None or not _fits(origin, model):
            continue
        stores[id(origin.store)] = origin.store
        ids.setdefault(id(origin.store), []).append(hit.node.node_id)
    tasks = [
        Task(f"embeddings in {type(store).__name__}", call(_lookup_if_possible(store, ids[key])))
        for key, store in stores.items()
    ]
    if not tasks:
        return {}
    outcomes: list[Outcome[Mapping[str, Vector]]] = yield Together(tasks)
    return {id_: vector for outcome in outcomes for id_, vector in outcome.result().items()}


def _fits(origin: Origin, model: BaseEmbedding | None) -> bool:
    return model is None or origin.embed_model is None or origin.embed_model is model


def origin_model(hits: Sequence[Hit]) -> BaseEmbedding | None:
    """The embedding model of the stores that hits were found in; None where none is known.

    Raises:
        ConfigurationError: They have different ones, so that their embeddings cannot be compared.
    """
    origins = [origin for hit in hits if (origin := origin_of(hit)) is not None]
    models = {id(each.embed_model): each.embed_model for each in origins}
    known = [model for model in models.values() if model is not None]
    names = {(type(model).__name__, model.model_name) for model in known}
    if len(names) > 1:
        together = " and ".join(f"{kind} {name!r}" for kind, name in sorted(names))
        raise ConfigurationError(
            f"the hits come from stores with embeddings of different models, {together}; these "
            "cannot be compared; pass embed_model= with one of them"
        )
    return next(iter(known), None)


def text_embeddings(hits: Sequence[Hit], model: BaseEmbedding) -> Plan[dict[str, Vector]]:
    """The plan for the embeddings of the texts of hits, in one batch; by node id."""
    texts = [hit.node.get_content(metadata_mode=MetadataMode.EMBED) for hit in hits]
    # BaseEmbedding's own async way embeds on the loop.
    is_async = (
        type(model)._aget_text_embedding is not BaseEmbedding._aget_text_embedding  # noqa: SLF001
        or type(model)._aget_text_embeddings is not BaseEmbedding._aget_text_embeddings  # noqa: SLF001
    )
    vectors: list[list[float]] = yield Call(
        lambda: model.get_text_embedding_batch(texts),
        (lambda: model.aget_text_embedding_batch(texts)) if is_async else None,
    )
    return {hit.node.node_id: vector for hit, vector in zip(hits, vectors, strict=True)}


def _lookup(source: EmbeddingSource, ids: list[str]) -> Call[Mapping[str, Vector]]:
    if not isinstance(source, BasePydanticVectorStore):
        return Call(lambda: source(ids))
    return _lookup_if_possible(source, ids, otherwise=lambda: _no_nodes(source))


def _lookup_if_possible(
    store: BasePydanticVectorStore,
    ids: list[str],
    otherwise: Callable[[], Exception] | None = None,
) -> Call[Mapping[str, Vector]]:
    """The embeddings in a store; of one that cannot give nodes by id none, or an error."""
    if isinstance(store, SimpleVectorStore):  # keeps no nodes, only their embeddings
        kept = store.data.embedding_dict
        return Call(lambda: {node_id: kept[node_id] for node_id in ids if node_id in kept})

    def ask() -> Mapping[str, Vector]:
        try:
            return _embeddings(store.get_nodes(node_ids=ids))
        except NotImplementedError as error:
            if otherwise is None:
                return {}
            raise otherwise() from error

    async def ask_async() -> Mapping[str, Vector]:
        try:
            return _embeddings(await store.aget_nodes(node_ids=ids))
        except NotImplementedError as error:
            if otherwise is None:
                return {}
            raise otherwise() from error

    is_async = type(store).aget_nodes is not BasePydanticVectorStore.aget_nodes
    return Call(ask, ask_async if is_async else None)


def _embeddings(nodes: Sequence[BaseNode]) -> Mapping[str, Vector]:
    return {node.node_id: node.embedding for node in nodes if node.embedding is not None}


def _no_nodes(store: BasePydanticVectorStore) -> ConfigurationError:
    return ConfigurationError(
        f"{type(store).__name__} cannot give nodes by their ids; pass store= a function from node "
        "ids to embeddings, or embed_model= to embed their text"
    )


@dataclass(frozen=True, slots=True, repr=False)
class MMR(Reranker):
    """Maximal marginal relevance over the hits so far, wherever they come from.

    Each pick is the most relevant that least repeats those picked before. Relevance is the cosine
    of a hit with the query, whatever score it came with. When embeddings cannot be had, the order
    stays as it was and the answer is marked degraded.

    Args:
        lambda_mult: 1 is relevance alone, 0 is diversity alone; 0.5 weighs them alike.
        top_k: How many to pick, at least 1; None for all, which takes quadratic time: give it when
            more than some hundred hits come in.
        embed_model: The model of the stored embeddings. Embeds the query, and the text of hits
            whose embedding is not stored. Not needed where queries and hits carry their embeddings,
            or the hits come from retrievers that know their model: those of this package over a
            store, and LlamaIndex's vector retriever.
        store: Where embeddings of hits are looked up that the nodes do not carry: a LlamaIndex
            vector store, or a function from node ids to a mapping of embeddings. Not needed for
            hits of these retrievers, whose embeddings are looked up in their stores, in one request
            each.
        timeout_s: Seconds it may take; None for as long as the query may.

    Raises:
        ConfigurationError: ``lambda_mult``, ``top_k`` or ``timeout_s`` is out of range; while a
            query is answered: there is no way to an embedding.
        DimensionMismatchError: While a query is answered: the embeddings are of different models.

    The score is the marginal relevance, in ``[-1, 1]``: lambda times relevance, less what is
    repeated. Where the first pick has less than the second, as it can with opposed embeddings, it
    is raised to it, so that the picks are best first by score too; the last contribution of a hit
    has the plain value.

    Source:
        `llama_retrieval_ext.formulas.mmr`.

    Examples:
        >>> MMR(0.7, top_k=10)
        MMR(lambda_mult=0.7, top_k=10)

    """

    lambda_mult: float = 0.5
    _: KW_ONLY
    top_k: int | None = None
    embed_model: BaseEmbedding | None = None
    store: EmbeddingSource | None = None
    timeout_s: float | None = None
    score_kind: ScoreKind = field(default=ScoreKind.UNKNOWN, init=False, repr=False)

    def __post_init__(self) -> None:
        if not is_number(self.lambda_mult):
            raise ConfigurationError(f"lambda_mult must be a number, got {self.lambda_mult!r}")
        maximal_marginal_relevance([], [], top_k=1, lambda_mult=self.lambda_mult)  # checks it
        if self.top_k is not None:
            check_top_k(self.top_k)
        if self.embed_model is not None:
            of_type(self.embed_model, BaseEmbedding, "embed_model")
        check_timeout(self.timeout_s)

    def rerank_plan(self, query: Query, hits: Sequence[Hit]) -> Plan[list[Hit] | None]:
        """The plan for the picks."""
        embedding, vectors = yield from self.vectors_plan(query, hits)
        picks: list[tuple[int, float]] = yield Call(lambda: self._picks(embedding, vectors))
        return reranked(hits, picks, by="MMR")

    def vectors_plan(
        self, query: Query, hits: Sequence[Hit]
    ) -> Plan[tuple[list[float], list[Vector]]]:
        """The plan for the embedding of the query, and those of the hits in their order.

        Args:
            query: Which may carry its embedding.
            hits: Whose nodes may carry theirs.

        Raises:
            ConfigurationError: There is no way to an embedding.
        """
        carried = [hit.node.embedding for hit in hits]
        bare = [hit for hit, vector in zip(hits, carried, strict=True) if vector is None]
        known = yield from stored_embeddings(bare, self.store, self.embed_model)
        # An embedding that the query came with is of the model of the stored ones.
        is_stored = bool(known) or len(bare) < len(hits)
        missing = [hit for hit in bare if hit.node.node_id not in known]
        if missing:
            known.update((yield from text_embeddings(missing, self._model(missing[0]))))
        own = query if is_stored else replace(query, embedding=None)
        embedding = yield from self._query_embedding(own, hits)
        vectors = [
            known[hit.node.node_id] if vector is None else vector
            for hit, vector in zip(hits, carried, strict=True)
        ]
        return embedding, vectors

    def _picks(self, question: Vector, vectors: Sequence[Vector]) -> list[tuple[int, float]]:
        rows = matrix(vectors, dim=len(question))
        return maximal_marginal_relevance(
            cosines(rows, question),
            rows,
            top_k=self.top_k or len(rows),
            lambda_mult=self.lambda_mult,
        )

    def _query_embedding(self, query: Query, hits: Sequence[Hit]) -> Plan[list[float]]:
        if query.embedding is not None:
            return query.embedding
        model = self.embed_model or origin_model(hits)
        if model is None:
            raise _unknown(
                "MMR has no embedding of the query; pass embed_model= with the model that the "
                "nodes were embedded with, or queries that carry their embedding"
            )
        return (yield from embed(query, model))

    def _model(self, hit: Hit) -> BaseEmbedding:
        if self.embed_model is None:
            raise _unknown(
                f"MMR has no embedding of node {hit.node.node_id!r}; pass store= where it can be "
                "looked up, or embed_model= to embed its text"
            )
        return self.embed_model


def _unknown(message: str) -> Exception:
    """The user's mistake, unless a leg has failed, which perhaps has what is missing."""
    has_failed = bool(current_context().session.degraded)
    return ExecutionError(message) if has_failed else ConfigurationError(message)
