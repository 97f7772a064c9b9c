"""`llama-retrieval graph` and `rules`: look at a graph, find paths, check and run rules."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.options import AsJson, GraphOptions, key_values, with_groups
from llama_retrieval_ext.cli.output import say, say_aside, say_json, say_table, three_digits
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.wording import counted

if TYPE_CHECKING:
    from llama_retrieval_ext.graph.backend import GraphBackend
    from llama_retrieval_ext.graph.entity_linking import LinkedEntity

SAMPLE: Final = "sample"
_MAX_HOPS: Final = 8

graph_app = typer.Typer(
    help="Look at a graph: what it has, and what joins two entities.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
rules_app = typer.Typer(
    help="Check rules, and run them over a graph.", rich_markup_mode=None, no_args_is_help=True
)

GraphUrl = Annotated[
    str,
    typer.Option(
        "--graph",
        metavar="URL",
        help="The graph: graph:DIRECTORY, neo4j://HOST:7687/DATABASE, neo4js:// for TLS, "
        "bolt://HOST:7687, or sample for the graph of construction safety that is shipped.",
    ),
]


@graph_app.command()
@with_groups
def info(
    graph: Annotated[str, typer.Argument(metavar="URL", help="As for --graph.")] = SAMPLE,
    *,
    as_json: AsJson = False,
    options: GraphOptions,
) -> None:
    """Count a graph's nodes and edges.

    By label of the nodes, and by relation with the labels at its ends.
    """
    from llama_retrieval_ext.execution.drivers import run  # noqa: PLC0415 - imports LlamaIndex
    from llama_retrieval_ext.graph.backend import summary  # noqa: PLC0415 - likewise

    with _opened(graph) as opened:
        totals = run(summary(opened, scope=options.scope))
    header = ("from", "relation", "to", "edges")
    relations = [(*ends, n) for ends, n in totals.relations.items()]
    if graph == SAMPLE:
        say_aside("the sample of construction safety that is shipped; for a graph of yours add URL")
    if as_json:
        shown = [dict(zip(header, relation, strict=True)) for relation in relations]
        say(json.dumps({"labels": dict(totals.labels), "relations": shown}, ensure_ascii=False))
        return
    say(f"{counted(totals.nodes, 'node')}, {counted(totals.edges, 'edge')}")
    say_table(("label", "nodes"), [(label, str(n)) for label, n in totals.labels.items()])
    if relations:
        say()
        say_table(header, [tuple(map(str, relation)) for relation in relations])


@graph_app.command()
@with_groups
def path(
    start: Annotated[str, typer.Argument(metavar="A", help="Name or id of an entity.")],
    end: Annotated[str, typer.Argument(metavar="B", help="Name or id of another.")],
    *,
    graph: GraphUrl = SAMPLE,
    max_hops: Annotated[int, typer.Option(min=1, max=_MAX_HOPS, help="Longest path.")] = 4,
    options: GraphOptions,
) -> None:
    """Show a shortest path between two entities.

    Edges count in both directions.
    """
    from llama_retrieval_ext.graph.expansion import expand  # noqa: PLC0415 - imports LlamaIndex

    scope = options.scope
    with _opened(graph) as opened:
        first, last = (_entity(opened, name, scope) for name in (start, end))
        reached = expand(opened, [first], max_hops=max_hops, scope=scope)
        if last not in reached:
            raise ConfigurationError(
                f"no path of at most {max_hops} edges joins {start!r} and {end!r}; add --max-hops"
            )
        way = reached.path(last)
        nodes = opened.nodes(way.nodes, scope=scope)
    names = {id_: node.name for id_, node in nodes.items()}
    say(counted(len(way.edges), "hop"))
    for edge in way.edges:
        ends = names.get(edge.source, edge.source), names.get(edge.target, edge.target)
        say(f"  {ends[0]} -{edge.type}-> {ends[1]}")


@rules_app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file of rules.")],
) -> None:
    """Check a file of rules.

    Errors have their line, column and the closest valid name.
    """
    rules = ext.load_rules(file)
    say(f"{file}: {counted(len(rules), 'rule')}, no errors")
    say_table(
        ("rule", "kind", "priority", "confidence"),
        [(r.id, r.kind, str(r.priority), three_digits(r.confidence)) for r in rules],
    )


@rules_app.command("run")
@with_groups
def run_rules(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A YAML file of rules, or sample for the shipped.")
    ],
    *,
    process: Annotated[str, typer.Option(help="Name or id of a process, or a question with it.")],
    graph: GraphUrl = SAMPLE,
    context: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="For conditions of rules, as chapter=safety, or language=zh. May be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
    options: GraphOptions,
) -> None:
    """Show what rules conclude for a process.

    Each sentence has its proof.
    """
    from llama_retrieval_ext.samples.construction_safety import construction_rules  # noqa: PLC0415 - LlamaIndex

    rules = construction_rules() if file == SAMPLE else ext.load_rules(file)
    values, scope = key_values(context or [], "--context"), options.scope
    with _opened(graph) as opened:
        retriever = ext.KGRuleRetriever(opened, rules)
        requirements = retriever.requirements(process, context=values, scope=scope)
        if not opened.nodes([process], scope=scope):
            _say_guess(process, retriever.linker.link(process, scope=scope, limit=1))
    if as_json:
        say_json(requirements.to_dict())
        return
    for conclusion in requirements.conclusions:
        priority, confidence = conclusion.rule.priority, three_digits(conclusion.confidence)
        say(f"{conclusion.text}  ({conclusion.rule.id}, priority {priority}, {confidence})")
        for edge in conclusion.proof_in_words():
            say(f"    {edge}", style="dim")
    if not requirements.conclusions:
        say(f"no rule concludes anything for {requirements.process}")


def _opened(url: str) -> "closing[GraphBackend]":
    if url == SAMPLE:
        from llama_retrieval_ext.samples.construction_safety import open_construction_safety  # noqa: PLC0415 - LlamaIndex

        return closing(open_construction_safety()[0])
    scheme, _, folder = url.partition(":")
    if scheme == "graph" and folder and folder != ":memory:" and not Path(folder).is_dir():
        # A typing error must not create an empty graph.
        raise ConfigurationError(f"there is no graph in the folder {folder}")
    return closing(ext.open_graph(url))


def _entity(graph: "GraphBackend", name: str, scope: "ext.Scope | None") -> str:
    """Return the id of an entity by its id or name."""
    if graph.nodes([name], scope=scope):
        return name
    linker = ext.EntityLinker(graph)
    linked = linker.link(name, scope=scope, limit=1)
    if not linked:
        raise ConfigurationError(linker.unknown("entity", name, scope=scope))
    _say_guess(name, linked)
    return linked[0].node_id


def _say_guess(name: str, linked: "Sequence[LinkedEntity]") -> None:
    """Say which entity was taken for a name that is spelled differently."""
    for entity in linked:
        if entity.score < 1:
            say_aside(f"took {name!r} for {entity.name!r}", style="yellow")
