"""Fusion of several retrievers, with LlamaIndex's name and arguments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import IndexNode

from llama_retrieval_ext.checks import check_count, nearest, one_top_k
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.formulas.normalisation import Normalisation
from llama_retrieval_ext.pipeline.branches import Branches, branches, named_legs
from llama_retrieval_ext.pipeline.fusion import Fusion, Weights
from llama_retrieval_ext.pipeline.index_nodes import objects_by_id
from llama_retrieval_ext.pipeline.pipeline import FusionRetriever
from llama_retrieval_ext.stages.fusion import RRF, Max, WeightedSum
from llama_retrieval_ext.stages.rewrite.multi_query import MULTI_QUERY_PROMPT, MultiQuery

_TOP_K: Final = 2  # LlamaIndex's

# LlamaIndex scores hits without a score as 0; an error would break migrated programs.
_MODES: Final[Mapping[str, Callable[[Weights], Fusion]]] = {
    FUSION_MODES.RECIPROCAL_RANK.value: lambda weights: RRF(weights=weights),
    FUSION_MODES.RELATIVE_SCORE.value: lambda weights: WeightedSum(weights, unscored="zero"),
    FUSION_MODES.DIST_BASED_SCORE.value: lambda weights: WeightedSum(
        weights, normalise=Normalisation.DISTRIBUTION_BASED_LLAMA_INDEX, unscored="zero"
    ),
    FUSION_MODES.SIMPLE.value: lambda weights: Max(weights, unscored="zero"),
}

# Names of other libraries that are not near LlamaIndex's.
_OTHER_MODES: Final = {
    "rrf": FUSION_MODES.RECIPROCAL_RANK.value,
    **dict.fromkeys(("weighted", "weighted_sum"), FUSION_MODES.RELATIVE_SCORE.value),
    "dbsf": FUSION_MODES.DIST_BASED_SCORE.value,
}


class QueryFusionRetriever(FusionRetriever):
    """``MultiQuery(llm) >> (a | b) >> fusion``: several retrievers, optionally several wordings.

    It takes LlamaIndex's arguments, so that only the import changes, and has its assignable
    attributes ``similarity_top_k``, ``mode``, ``num_queries`` and ``query_gen_prompt``. In addition
    it takes legs by name with their own limits, any fusion, and weights in every mode. A leg that
    fails is left out, and the answer is marked degraded.

    Args:
        retrievers: Retrievers in order, or by name; a `Leg` sets its own weight, limit and retries.
        llm: LLM for the other wordings; required unless ``num_queries=1``, because LlamaIndex's
            ``Settings.llm`` is never taken.
        query_gen_prompt: Template with ``{query}`` and ``{num_queries}``; other braces are kept.
        mode: One of LlamaIndex's fusion modes, or a `Fusion`.
        similarity_top_k: Number of hits if the query sets none; 2 as in LlamaIndex.
        num_queries: Number of queries, including the original.
        use_async: Accepted as in LlamaIndex and ignored: legs always run in parallel, in threads if
            the caller is not async.
        verbose: Whether to log each answer; see ``search(query).trace`` for more.
        callback_manager: LlamaIndex's, for applications that still use one.
        objects: Index nodes that carry the objects they refer to.
        object_map: Objects that index nodes refer to, by id.
        retriever_weights: Weights in the order of the retrievers, or by name; None for those of the
            legs.
        top_k: Name of ``similarity_top_k`` in this package; pass only one of them.
        min_success: Number of legs that must succeed, else the query fails; None for the value of a
            `Fusion` passed as ``mode``, or else 1.

    Raises:
        ConfigurationError: An argument is invalid, or ``num_queries`` is above 1 without an LLM.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - LlamaIndex's arguments
        self,
        retrievers: Sequence[BaseRetriever | Leg] | Mapping[str, BaseRetriever | Leg],
        llm: LLM | None = None,
        query_gen_prompt: str | None = None,
        mode: Enum | str | Fusion = FUSION_MODES.SIMPLE,
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

    # LlamaIndex's public attributes, which applications assign.

    @property
    def mode(self) -> Enum | str | Fusion:
        """Fusion mode: one of LlamaIndex's modes, or a `Fusion`."""
        return self._mode

    @mode.setter
    def mode(self, mode: Enum | str | Fusion) -> None:
        self._fuse_by(_fusion(mode, self._retriever_weights))
        self._mode = mode

    @property
    def num_queries(self) -> int:
        """Number of queries, including the original."""
        return self._num_queries

    @num_queries.setter
    def num_queries(self, num_queries: int) -> None:
        self._write_by(self._query_gen_prompt, num_queries)

    @property
    def query_gen_prompt(self) -> str:
        """Prompt for other wordings."""
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
            f"num_queries={num_queries} needs llm= to write {num_queries - 1} other wordings "
            "(LlamaIndex's Settings.llm is never taken); for the query alone pass num_queries=1"
        )
    return MultiQuery(llm, n=num_queries - 1, prompt=prompt or MULTI_QUERY_PROMPT)


def _fusion(
    mode: Enum | str | Fusion, weights: Sequence[float] | Mapping[str, float] | None
) -> Fusion:
    if isinstance(mode, Fusion):
        if weights is not None:
            raise ConfigurationError(
                f"give the weights to the fusion: {type(mode).__name__}(weights={weights})"
            )
        return mode
    value = mode.value if isinstance(mode, Enum) else mode
    if value not in _MODES:
        near = _OTHER_MODES.get(value) or nearest(str(value), _MODES)
        raise ConfigurationError(
            f"there is no fusion mode {value!r}; "
            + (f"write mode={near!r}" if near else f"use one of {', '.join(_MODES)}, or a Fusion")
        )
    return _MODES[value](weights)
