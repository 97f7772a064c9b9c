"""`ProcessRequirements`: the conclusions about one process, by subject."""

from collections.abc import Iterable
from dataclasses import dataclass

from llama_retrieval_ext.graph.rules.inference import Conclusion


@dataclass(frozen=True, slots=True)
class ProcessRequirements:
    """Requirements of a process, by the names of the nodes.

    They come from conclusions of rules, by the names of the rules' variables: ``equipment``,
    ``hazard``, ``measure`` and ``quality_point``.

    Attributes:
        process: The name of the process.
        equipment: Equipment that the process uses.
        hazards: Each hazard with the measures against it; no measure is a finding.
        quality_points: Points that determine its quality.
        conclusions: Conclusions with proofs, the most important first.
    """

    process: str
    equipment: tuple[str, ...] = ()
    hazards: tuple[tuple[str, tuple[str, ...]], ...] = ()
    quality_points: tuple[str, ...] = ()
    conclusions: tuple[Conclusion, ...] = ()

    @classmethod
    def of(cls, process: str, conclusions: Iterable[Conclusion]) -> "ProcessRequirements":
        """Return the requirements from the conclusions about a process, in their order.

        Args:
            process: The name of the process.
            conclusions: Conclusions about this process.
        """
        kept = tuple(conclusions)
        equipment: dict[str, None] = {}
        hazards: dict[str, dict[str, None]] = {}
        quality_points: dict[str, None] = {}
        for names in map(_names, kept):
            if "equipment" in names:
                equipment[names["equipment"]] = None
            if "hazard" in names:
                measures = hazards.setdefault(names["hazard"], {})
                measures |= {names[key]: None for key in ("measure",) if key in names}
            if "quality_point" in names:
                quality_points[names["quality_point"]] = None
        return cls(
            process,
            tuple(equipment),
            tuple((hazard, tuple(measures)) for hazard, measures in hazards.items()),
            tuple(quality_points),
            kept,
        )

    @property
    def measures(self) -> tuple[str, ...]:
        """Every measure, once."""
        return tuple(dict.fromkeys(name for _, measures in self.hazards for name in measures))

    def to_dict(self) -> dict[str, object]:
        """Return the requirements as JSON."""
        return {
            "process": self.process,
            "equipment": list(self.equipment),
            "hazards": [
                {"hazard": hazard, "measures": list(measures)} for hazard, measures in self.hazards
            ],
            "quality_points": list(self.quality_points),
            "conclusions": [each.to_dict() for each in self.conclusions],
        }


def _names(conclusion: Conclusion) -> dict[str, str]:
    """Return the node name of each bound variable."""
    bound = {name: id_ for name, id_ in conclusion.bindings if id_ is not None}
    return {name: conclusion.name_of(id_) for name, id_ in bound.items()}
