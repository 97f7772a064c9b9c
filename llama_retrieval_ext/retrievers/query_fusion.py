"""Several retrievers, fused, under the name and arguments of LlamaIndex's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import IndexNode

from llama_retrieval_ext.checks import check_count, one_top_k
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline.branches import Branches, branches, named_legs
from llama_retrieval_ext.pipeline.fusion import Fusion, Unscored
from llama_retrieval_ext.pipeline.index_nodes import objects_by_id
from llama_retrieval_ext.pipeline.leg_weights import Weights
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever
from llama_retrieval_ext.stages.fusion import RRF, DistributionBased, Max, RelativeScore
from llama_retrieval_ext.stages.rewrite.multi_query import MULTI_QUERY_PROMPT, MultiQuery

_TOP_K: Final = 2  # LlamaIndex's

# LlamaIndex gives hits without a score a score of 0; refusing them would break migrating programs.
_MODES: Final[Mapping[str, Callable[[Weights], Fusion]]] = {
    FUSION_MODES.RECIPROCAL_RANK.value: lambda weights: RRF(weights=weights),
    FUSION_MODES.RELATIVE_SCORE.value: lambda weights: RelativeScore(
        weights, unscored=Unscored.ZERO
    ),
    FUSION_MODES.DIST_BASED_SCORE.value: lambda weights: DistributionBased(
        weights,
        normalise=Normalisation.DISTRIBUTION_BASED_LLAMA_INDEX,
        unscored=Unscored.ZERO,
    ),
    FUSION_MODES.SIMPLE.value: lambda weights: Max(weights, unscored=Unscored.ZERO),
}


class QueryFusionRetriever(FusionRetriever):
    """``MultiQuery(llm) >> (a | b) >> fusion``: several retrievers, perhaps in several wordings.

    Takes LlamaIndex's arguments, so that changing the import is enough, and has its attributes,
    which may be assigned to: ``similarity_top_k``, ``mode``, ``num_queries``, ``query_gen_prompt``.
    Takes more as well: legs by name with their own limits, any fusion, and weights that count in
    every mode. A leg that fails is left out and the answer marked degraded.

    Args:
        retrievers: In order, or by name; a `Leg` brings its own weight, limit and retries.
        llm: Writes the other wordings. Not needed, and not looked for, with ``num_queries=1``.
        query_gen_prompt: With ``{query}`` and ``{num_queries}``; other braces stay as they are.
        mode: How rankings become one: one of LlamaIndex's modes, or a `Fusion`.
        similarity_top_k: How many hits to return when the query does not say; 2 as in LlamaIndex.
        num_queries: The number of queries, the original included.
        use_async: As LlamaIndex takes it; legs run side by side whatever it says, in threads where
            the caller is not async.
        verbose: Whether to log each answer; more stands in ``search(query).trace``.
        callback_manager: LlamaIndex's, for applications that still use one.
        objects: Index nodes with what they stand for.
        object_map: What index nodes stand for, by id.
        retriever_weights: In the order of the retrievers, or by name; None for those of the legs.
        top_k: The name of ``similarity_top_k`` in other retrievers here; give one of them.
        min_success: How many legs must answer, or the query fails; None for what a `Fusion` given
            as ``mode`` says, or else 1.

    Raises:
        ConfigurationError: An argument cannot work, or ``num_queries`` is above 1 without an LLM.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - LlamaIndex's arguments
        self,
        retrievers: Sequence[BaseRetriever | Leg] | Mapping[str, BaseRetriever | Leg],
        llm: LLM | None = None,
        query_gen_prompt: str | None = None,
        mode: FUSION_MODES | str | Fusion = FUSION_MODES.SIMPLE,
        similarity_top_k: int = _TOP_K,
        num_queries: int = 4,
        use_async: bool = True,  # noqa: FBT001, FBT002 - LlamaIndex's
        verbose: bool = False,  # noqa: FBT001, FBT002 - LlamaIndex's
        callback_manager: CallbackManager | None = None,
        objects: Sequence[IndexNode] | None = None,
        object_map: Mapping[str, object] | None = None,
        retriever_weights: Sequence[float] | Mapping[str, float] | None = None,
        *,
        top_k: int | None = None,
        min_success: int | None = None,
        name: str = "fusion",
    ) -> None:
        if isinstance(retrievers, Mapping):
            retrievers = named_legs(retrievers)
        sides = branches(*retrievers)
        fan_out = _wordings(llm, query_gen_prompt, num_queries)
        super().__init__(
            Branches(sides.legs, (), fan_out),
            _fusion(mode, retriever_weights),
            top_k=one_top_k(similarity_top_k, top_k, default=_TOP_K),
            min_success=min_success,
            name=name,
        )
        self.llm = llm
        self.use_async = use_async
        self._mode = mode
        self._retriever_weights = retriever_weights
        self._query_gen_prompt = query_gen_prompt or MULTI_QUERY_PROMPT
        self._num_queries = num_queries
        self.object_map = objects_by_id(objects, object_map)
        self._verbose = verbose
        if callback_manager is not None:
            self.callback_manager = callback_manager

    # LlamaIndex's public attributes, which applications assign to.

    @property
    def mode(self) -> FUSION_MODES | str | Fusion:
        """How rankings become one: one of LlamaIndex's modes, or a `Fusion`."""
        return self._mode

    @mode.setter
    def mode(self, mode: FUSION_MODES | str | Fusion) -> None:
        self._fuse_by(_fusion(mode, self._retriever_weights))
        self._mode = mode

    @property
    def num_queries(self) -> int:
        """The number of queries, the original included."""
        return self._num_queries

    @num_queries.setter
    def num_queries(self, num_queries: int) -> None:
        self._write_by(self._query_gen_prompt, num_queries)

    @property
    def query_gen_prompt(self) -> str:
        """The prompt for other wordings."""
        return self._query_gen_prompt

    @query_gen_prompt.setter
    def query_gen_prompt(self, prompt: str) -> None:
        self._write_by(prompt, self._num_queries)

    def _write_by(self, prompt: str, num_queries: int) -> None:
        fan_out = _wordings(self.llm, prompt, num_queries)
        self.branches = replace(self.branches, fan_out=fan_out)
        self._query_gen_prompt, self._num_queries = prompt, num_queries

    def _current_arguments(self) -> Mapping[str, object]:
        prompt = self._query_gen_prompt
        return {
            "similarity_top_k": self.top_k,
            "top_k": None,
            "mode": self._mode,
            "num_queries": self._num_queries,
            "query_gen_prompt": None if prompt == MULTI_QUERY_PROMPT else prompt,
        }

    def _get_prompts(self) -> PromptDictType:
        return {"query_gen_prompt": PromptTemplate(self.query_gen_prompt)}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        prompt = prompts.get("query_gen_prompt")
        if prompt is not None:
            self.query_gen_prompt = prompt.get_template()


def _wordings(llm: LLM | None, prompt: str | None, num_queries: int) -> MultiQuery | None:
    if check_count(num_queries, "num_queries") == 1:
        return None
    if llm is None:
        raise ConfigurationError(
            f"num_queries={num_queries} needs llm= to write {num_queries - 1} other wordings; "
            "for the query alone pass num_queries=1"
        )
    return MultiQuery(llm, n=num_queries - 1, prompt=prompt or MULTI_QUERY_PROMPT)


def _fusion(
    mode: FUSION_MODES | str | Fusion, weights: Sequence[float] | Mapping[str, float] | None
) -> Fusion:
    if isinstance(mode, Fusion):
        if weights is not None:
            raise ConfigurationError(
                f"give the weights to the fusion: {type(mode).__name__}(weights={weights})"
            )
        return mode
    value = mode.value if isinstance(mode, FUSION_MODES) else mode
    if value not in _MODES:
        raise ConfigurationError(
            f"there is no fusion mode {mode!r}; use one of {', '.join(_MODES)}, or a Fusion"
        )
    return _MODES[value](weights)
