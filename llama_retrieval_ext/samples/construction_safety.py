"""Sample graph of safety on building sites, in Chinese and English, with rules and texts."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml
from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.graph.elements import ALIASES_KEY, CHUNK_LABEL, Edge, GraphNode
from llama_retrieval_ext.graph.embedded import MEMORY, EmbeddedGraph
from llama_retrieval_ext.graph.rules.rule_set import RuleSet
from llama_retrieval_ext.graph.rules.yaml import parse_rules
from llama_retrieval_ext.samples.regulations import zh_safety_laws

RULES_FILE: Final = "construction_rules.yaml"
_FOLDER: Final = files("llama_retrieval_ext.samples")
_LABELS: Final = {
    "processes": "Process",
    "hazards": "Hazard",
    "equipment": "Equipment",
    "measures": "Measure",
    "emergency_measures": "EmergencyMeasure",
    "quality_points": "QualityPoint",
    "engineering_types": "EngineeringType",
}
_RELATIONS: Final = {
    "uses": "USES",
    "hazards": "HAS_HAZARD",
    "quality": "HAS_QUALITY_POINT",
    "follows": "FOLLOWS",
    "types": "APPLIES_TO",
    "causes": "CAUSES",
    "measures": "MITIGATED_BY",
    "emergency": "RESCUED_BY",
    "articles": "REGULATED_BY",
}


def construction_safety() -> tuple[list[GraphNode], list[Edge]]:
    """Return the nodes and edges of the sample graph.

    Processes use equipment, have hazards and quality points, and apply to engineering types (地铁,
    水利, 房建; without one, to all); equipment causes hazards; measures
    mitigate hazards; processes and measures are regulated by articles of `zh_safety_laws`, which
    are passages with the same ids. Names are Chinese; ``name_en`` and ``aliases`` are also in
    English.

    Examples:
        >>> nodes, edges = construction_safety()
        >>> next(node.names[:2] for node in nodes if node.id == "deep-pit")
        ('深基坑开挖', 'deep foundation pit excavation')

    """
    data = _data()
    rows = [(label, id_, row) for kind, label in _LABELS.items() for id_, row in data[kind].items()]
    nodes = [_node(label, id_, row) for label, id_, row in rows]
    edges = [
        Edge(id_, type_, data["articles"].get(target, target))
        for _, id_, row in rows
        for key, type_ in _RELATIONS.items()
        for target in row.get(key, ())
    ]
    cited = {edge.target for edge in edges if edge.type == _RELATIONS["articles"]}
    laws = [law for law in zh_safety_laws() if law.doc_id in cited]
    texts = [
        GraphNode(
            law.doc_id,
            CHUNK_LABEL,
            properties=dict(law.metadata),
            text=law.get_content(MetadataMode.NONE),
        )
        for law in laws
    ]
    return [*nodes, *texts], edges


@cache
def construction_rules() -> RuleSet:
    """Return the rules over the sample graph."""
    return parse_rules(_FOLDER.joinpath(RULES_FILE).read_text(encoding="utf-8"), file=RULES_FILE)


def open_construction_safety() -> tuple[EmbeddedGraph, RuleSet]:
    """Return the sample graph, in memory, and its rules; the caller closes the graph.

    Examples:
        >>> graph, rules = open_construction_safety()
        >>> len(rules)
        18
        >>> graph.close()

    """
    graph = EmbeddedGraph(MEMORY)
    graph.upsert(*construction_safety())
    return graph, construction_rules()


def _node(label: str, id_: str, row: Mapping[str, Any]) -> GraphNode:
    name, english, *further = row["names"]
    properties = {"name_en": english, ALIASES_KEY: [english, *further]}
    if "level" in row:
        properties["level"] = row["level"]
    return GraphNode(id_, label, name, properties)


@cache
def _data() -> dict[str, Any]:
    text = _FOLDER.joinpath("construction_safety.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.safe_load(text)
    return data
