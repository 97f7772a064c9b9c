"""Rules over a published graph of supply chains reach the conclusions that its README describes.

The graph and what follows from it are those of OpenSPG/KAG's examples; it is next to the
repository, in ``../shared/data/kg_supplychain_rules``.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.rules.inference import Conclusion, infer
from llama_retrieval_ext.graph.rules.yaml import parse_rules

DATA = Path(__file__).parents[3] / "shared/data/kg_supplychain_rules"

RULES = parse_rules("""
rules:
  - id: cost-rises
    kind: event
    confidence: 0.9
    match:
      - {node: event, label: ProductChainEvent}
      - {follow: subject, node: product, label: Product}
      - {follow: hasSupplyChain, node: downstream, label: Product}
      - {follow: product, direction: in, node: company, label: Company}
    where:
      - {node: event, property: index, value: 价格}
      - {node: event, property: trend, value: 上涨}
    then: "{company}成本上升事件"
    concludes: {from: event, relation: raisesCostOf, to: company}
  - id: profit-falls
    kind: event
    confidence: 0.8
    match:
      - {node: event, label: ProductChainEvent}
      - {follow: raisesCostOf, node: company, label: Company}
    then: "{company}利润下跌事件"
  - id: industry
    match:
      - {node: company, label: Company}
      - {follow: product, node: product, label: Product}
      - {follow: belongToIndustry, node: industry, label: Industry}
    then: "{company}属于{industry}"
  - id: same-legal-representative
    match:
      - {node: company, label: Company}
      - {follow: legalRepresentative, direction: in, node: person, label: Person}
      - {follow: legalRepresentative, node: other, label: Company}
    then: "{company}与{other}同法人"
  - id: gambling-app
    match: [{node: app, label: App}]
    where: [{node: app, property: riskMark, operator: text_match, value: 赌博}]
    then: "{app.id}是赌博应用"
  - id: main-supply
    match:
      - {node: company, label: Company}
      - {follow: product, node: upstream, label: Product}
      - {follow: hasSupplyChain, node: downstream, label: Product}
      - {follow: product, direction: in, node: customer, label: Company}
      - {follow: fundTrans, node: company}
    then: "{customer}由{company}供货并付款"
""")


SUPPLY = {"三角***份限公司由传化****限公司供货并付款"}


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


@pytest.fixture(scope="module")
def graph() -> Iterator[EmbeddedGraph]:
    if not DATA.is_dir():
        pytest.skip(f"the graph is in {DATA}, which is not here: ../shared is not there")
    nodes, edges = supply_chain()
    with EmbeddedGraph(":memory:") as graph:
        graph.upsert([*nodes, *risky_apps()], edges)
        yield graph


def supply_chain() -> tuple[list[GraphNode], list[Edge]]:
    companies = rows("builder__data__Company")
    by_name = {row["name"]: row["id"] for row in companies}
    nodes = [GraphNode(row["id"], "Company", row["name"]) for row in companies]
    edges = [Edge(r["id"], "product", each) for r in companies for each in listed(r["product"])]
    for row in rows("builder__data__Product"):
        edges += [Edge(row["id"], "hasSupplyChain", e) for e in listed(row["hasSupplyChain"])]
        edges += [Edge(row["id"], "belongToIndustry", row["belongToIndustry"])]
    products = {edge.target for edge in edges if edge.type != "belongToIndustry"}
    products |= {row["id"] for row in rows("builder__data__Product")}
    nodes += [GraphNode(id_, "Product") for id_ in sorted(products)]
    nodes += [GraphNode(row["id"], "Industry") for row in rows("builder__data__Industry")]
    for row in rows("builder__data__Person"):
        nodes.append(GraphNode(f"person {row['id']}", "Person", row["name"]))
        named = [by_name[each] for each in listed(row["legalRepresentative"]) if each in by_name]
        edges += [Edge(f"person {row['id']}", "legalRepresentative", each) for each in named]
    for row in rows("builder__data__Company_fundTrans_Company"):
        edges.append(Edge(row["srcId"], "fundTrans", row["dstId"]))
    for row in rows("builder__data__ProductChainEvent"):
        own = {"index": row["index"], "trend": row["trend"]}
        nodes.append(GraphNode(f"event {row['id']}", "ProductChainEvent", row["name"], own))
        edges.append(Edge(f"event {row['id']}", "subject", row["subject"]))
    return nodes, edges


def risky_apps() -> list[GraphNode]:
    apps = rows("riskmining__builder__data__App")
    return [GraphNode(row["id"], "App", properties={"riskMark": row["riskMark"]}) for row in apps]


def concluded(graph: EmbeddedGraph, *seeds: str) -> dict[str, list[Conclusion]]:
    found: dict[str, list[Conclusion]] = {}
    for each in run(infer(graph, RULES, seeds=seeds or None)):
        found.setdefault(each.rule.id, []).append(each)
    return found


@pytest.mark.slow
def test_a_dearer_product_raises_the_cost_of_those_downstream_and_lowers_their_profit(
    graph: EmbeddedGraph,
) -> None:
    found = concluded(graph, "event 1")
    costs = {each.text for each in found["cost-rises"]}
    falls = {each.text for each in found["profit-falls"]}
    assert "三角***份限公司成本上升事件" in costs
    assert "三角***份限公司利润下跌事件" in falls
    assert {text.removesuffix("成本上升事件") for text in costs} == {
        text.removesuffix("利润下跌事件") for text in falls
    }
    paths = {tuple(map(str, each.proof)) for each in found["cost-rises"]}
    assert (
        "event 1 -subject-> 商品化工-橡胶-合成橡胶-顺丁橡胶",
        "商品化工-橡胶-合成橡胶-顺丁橡胶 -hasSupplyChain-> 轮胎与橡胶-轮胎-斜交轮胎",
        "CSF0000002238 -product-> 轮胎与橡胶-轮胎-斜交轮胎",
    ) in paths
    (chained, *_) = found["profit-falls"]
    assert chained.chain == ("profit-falls", "cost-rises")
    assert chained.confidence == pytest.approx(0.72)


@pytest.mark.slow
def test_only_companies_downstream_of_the_product_are_concluded(graph: EmbeddedGraph) -> None:
    downstream = {
        each
        for row in rows("builder__data__Product")
        if row["id"] == "商品化工-橡胶-合成橡胶-顺丁橡胶"
        for each in listed(row["hasSupplyChain"])
    }
    companies = rows("builder__data__Company")
    expected = {row["id"] for row in companies if set(listed(row["product"])) & downstream}
    found = concluded(graph, "event 1")["cost-rises"]
    assert {dict(each.bindings)["company"] for each in found} == expected


def test_rules_conclude_industry_legal_representative_and_supplies_of_a_company(
    graph: EmbeddedGraph,
) -> None:
    found = concluded(graph, "CSF0000002238")
    assert {each.text for each in found["industry"]} == {
        "三角***份限公司属于非日常生活消费品-汽车与汽车零部件-汽车零配件-轮胎与橡胶"
    }
    assert "三角***份限公司与传化****限公司同法人" in {
        each.text for each in found["same-legal-representative"]
    }
    supplied = concluded(graph, "CSF0000001579")["main-supply"]
    assert {each.text for each in supplied} >= SUPPLY


@pytest.mark.slow
def test_apps_that_are_marked_for_gambling(graph: EmbeddedGraph) -> None:
    marked = {r["id"] for r in rows("riskmining__builder__data__App") if "赌博" in r["riskMark"]}
    assert marked
    found = concluded(graph)["gambling-app"]
    assert {each.text for each in found} == {f"{id_}是赌博应用" for id_ in marked}
