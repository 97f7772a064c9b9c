"""Settings of a seeded `GraphRetriever`: the damping of its walk."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, TextNode

from llama_retrieval_ext.evaluation.tunable import LegRankings, LegRecorder, Setting, remade
from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.execution.plan import Plan, finished
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.graph import GraphRetriever

_DAMPINGS: Final = (0.3, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)
_SEED: Final = "seed"


class _Replay(Retriever):
    """Retriever that returns saved hits; the walk needs only their ids and scores."""

    def __init__(self) -> None:
        super().__init__(top_k=None, name=_SEED)
        self.hits: Sequence[Hit] = ()

    def plan(self, query: Query) -> Plan[list[Hit]]:
        return finished(list(self.hits[: query.top_k]))


@dataclass(slots=True)
class SeededGraph:
    """A `GraphRetriever` with a seed; the settings of the seed are tuned separately, before."""

    parameters: ClassVar = ("damping",)

    retriever: GraphRetriever
    seed: BaseRetriever
    legs: dict[str, LegRecorder] = field(init=False)
    nodes: dict[str, BaseNode] = field(init=False, default_factory=dict)
    _walks: dict[float | None, tuple[_Replay, GraphRetriever]] = field(
        init=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self.legs = {_SEED: LegRecorder(Leg(_SEED, self.seed, top_k=self.depth))}

    @property
    def default(self) -> Setting:
        """The current setting."""
        return Setting(((_SEED, 1.0),), None, self.depth, damping=self.retriever.damping)

    @property
    def depth(self) -> int:
        """Number of hits used from the seed."""
        return max(self.retriever.candidates, self.retriever.top_k or 1)

    def settings_of(self, _: str, current: Setting) -> list[Setting]:
        """Return the settings that differ from the current one in damping."""
        settings = [replace(current, damping=damping) for damping in _DAMPINGS]
        return [setting for setting in settings if setting != current]

    def ranking(self, setting: Setting, question: str, rankings: LegRankings) -> list[str]:
        """Return the first node ids of the walk with a damping, best first."""
        if setting.damping not in self._walks:
            replay = _Replay()
            self._walks[setting.damping] = replay, self._built(replay, setting)
        replay, walk = self._walks[setting.damping]
        hits = rankings.get(_SEED, ())
        replay.hits = [Hit(node=TextNode(id_=id_), score=score) for id_, score in hits]
        nodes = {hit.node.node_id: hit.node for hit in walk.retrieve(question)}
        self.nodes |= nodes
        return list(nodes)

    def rebuilt(self, setting: Setting) -> BaseRetriever:
        """Return the retriever with another damping; it shares store, graph and seed."""
        return self._built(self.seed, setting)

    def _built(self, seed: BaseRetriever, setting: Setting) -> GraphRetriever:
        original = self.retriever
        return remade(
            original,
            store=original.backend,
            graph=original.graphs,
            embed_model=original.embed_model,
            seed=seed,
            damping=setting.damping,
        )
