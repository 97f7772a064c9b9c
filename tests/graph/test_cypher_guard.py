"""Statements of a language model that only read, and only one scope."""

import pytest

from llama_retrieval_ext import Scope
from llama_retrieval_ext.graph.cypher_guard import StatementRefusedError, guarded

REFUSED = [
    "CREATE (n:X) RETURN n",
    "MATCH (n) DETACH DELETE n",
    "MATCH (n) SET n.tenant_id = 'acme' RETURN n.name",
    "MATCH (n) CALL { MATCH (m) RETURN m } RETURN m.name",
    "CALL db.labels() YIELD label RETURN label",
    "LOAD CSV FROM 'http://127.0.0.1/' AS row RETURN row",
    "MATCH (n) WHERE EXISTS { (n)--(m) } RETURN n.name",
    "MATCH (n) WHERE (n)-->() RETURN n.name",
    "MATCH (n) WHERE (n)--() RETURN n.name",
    "MATCH (n) RETURN [(n)--(m) | m.name]",
    "MATCH (n) RETURN count { MATCH (m) }",
    "MATCH (n) RETURN *",
    "MATCH (n) RETURN apoc.cypher.runFirstColumnSingle('MATCH (m) RETURN m.name', {})",
    "MATCH (n) RETURN `apoc.load.json`('http://127.0.0.1/')",
    "MATCH (n) RETURN properties(n)",
    "MATCH p_0 = (n) RETURN n.name",
    "MATCH (n)-[*]-(m) RETURN m.name",
    "MATCH (n)-[*1..9]-(m) RETURN m.name",
    "MATCH shortestPath((n)-[*..3]-(m)) RETURN m.name",
    "MATCH ((n)-[]-(m)){1,3} RETURN m.name",
    "MATCH (n {name: [(a)--(b) | a.name][0]}) RETURN n.name",
    "MATCH (n WHERE (n)--(m)) RETURN n.name",
    "MATCH (n) RETURN n.name UNION MATCH (m) RETURN m.name",
    "MATCH (n) WITH n MATCH (m) RETURN m.name",
    "MATCH (n) WHERE n.name = $scope_tenant RETURN n.name",
    "MATCH (n) // x\nRETURN n.name",
    "MATCH (n) /* x */ RETURN n.name",
    "MATCH (n) WHERE n.name = 'a\\u0027' OR true RETURN n.name",
    "MATCH (n) WHERE true) OR (true RETURN n.name",
    "MATCH (n) RETURN n.name LIMIT 1 + 1",
    "RETURN 1",
    "",
    # Internal properties, by their names or computed.
    "MATCH (n) RETURN n._sources",
    "MATCH (n) RETURN n.`_json`",
    "MATCH (n {_key: 'x'}) RETURN n.name",
    "MATCH (n) WHERE n.allowed IS NULL RETURN n.name",
    "MATCH (in) RETURN in['_sources']",
    "MATCH (n) RETURN n['_sou' + 'rces']",
    "MATCH (n) RETURN n[n.name]",
    "MATCH way = (n) RETURN [x IN nodes(way) | x[head(labels(x))]]",
    "MATCH way = (n) RETURN [in IN nodes(way) | in['_sources']]",
    "MATCH (n) RETURN n AS in ORDER BY in['_sources']",
    "MATCH in = (n) RETURN nodes(in)[0]['_sources']",
    "MATCH (a), or = (n) RETURN n.name",
    "MATCH (n) RETURN n {.*}",
    "MATCH (n) RETURN keys(n)",
    "MATCH (n) RETURN n.`call`()",
    "MATCH (n) WHERE true CALL db.labels() RETURN n.name",
    "USE other MATCH (n) RETURN n.name",
    "MATCH (n) WHERE n.x = 1 DELETE n RETURN n.name",
    "MATCH (n:$(n.name)) RETURN n.name",
    "MATCH (n {name: 'x', `_key`: 'y'}) RETURN n.name",
]


def test_a_statement_that_does_more_than_read_patterns_is_refused(
    subtests: pytest.Subtests,
) -> None:
    for statement in REFUSED:
        with subtests.test(statement=statement), pytest.raises(StatementRefusedError):
            guarded(statement, scope=ACME, limit=5)


def test_every_pattern_gets_the_conditions_of_the_scope() -> None:
    written = guarded(
        "MATCH (a:Hazard {name: 'x, y'})-[:HAS*1..3]->(b), way = (b)--(c) "
        "WHERE a.level >= 3 OR true OPTIONAL MATCH (c)<-[:USES]-(d) "
        "RETURN a.name AS n, count(*) ORDER BY n LIMIT 500",
        scope=ACME,
        limit=5,
    )
    assert written.count("nodes(") == written.count("relationships(") == 3
    assert written.count("$scope_tenant") == 6
    assert "WITH * LIMIT 9223372036854775807 WHERE a.level>=3 OR true" in written
    assert "{name:'x, y'}" in written
    assert written.endswith("ORDER BY n LIMIT 5")


ACME = Scope("acme")


@pytest.mark.parametrize("limit", ["9" * 5000, "9" * 19, "7"])
def test_a_limit_above_the_maximum_is_the_maximum(limit: str) -> None:
    statement = f"MATCH (a:Hazard) RETURN a.name LIMIT {limit}"
    assert guarded(statement, scope=None, limit=5).endswith(" LIMIT 5")


@pytest.mark.parametrize(
    "rest",
    [
        "WHERE a.state IN ['open', 'allowed'] RETURN a.name",
        "WHERE a.name IN [b.name, 'x'] RETURN a.name",
        "WHERE a.name = '_key' AND 'allowed' IN labels(a) RETURN ['allowed', a.name]",
        "RETURN CASE WHEN a.x THEN [a.name] ELSE ['allowed'] END",
        "RETURN a.name AS allowed ORDER BY a.name, allowed",
        "RETURN left(a.p_value, 2), [a, b][0]['name']",
    ],
)
def test_strings_and_names_that_are_internal_elsewhere_are_let_through(rest: str) -> None:
    statement = guarded(f"MATCH (a)-[:USES]->(b) {rest}", scope=None, limit=5)
    assert all("".join(part.split()) in "".join(statement.split()) for part in rest.split("RETURN"))


def test_a_keyword_as_the_name_of_a_label_a_type_or_a_property_is_quoted() -> None:
    statement = guarded(
        "MATCH (start:Match)-[:USE|:SET]->(stop) RETURN stop.limit, 1. DELETE n LIMIT 3",
        scope=None,
        limit=5,
    )
    assert "(start:`Match`)-[:`USE`|:`SET`]->(stop)" in statement
    assert statement.endswith("RETURN stop.`limit`,1.`DELETE` n LIMIT 3")


def test_lists_and_their_items_are_let_through() -> None:
    returned = "[x IN nodes(way)|x.name]AS names,labels(a)[0],collect(a.name)[..2],a.tags[-1]"
    statement = f"MATCH way = (a)--(b) WHERE a.name IN ['x', 'y'] OR a.of IN [] RETURN {returned}"
    assert guarded(statement, scope=None, limit=5).endswith(f"RETURN {returned} LIMIT 5")
