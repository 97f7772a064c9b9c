"""Ten tasks for one who has read `SKILL.md` alone, each with a check that the page does not show.

A solution may use no name that is not on the page: see `test_solutions_use_names_of_the_page_only`.
"""

import ast
import builtins
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.vector_stores import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext import (
    MMR,
    RRF,
    KGRuleRetriever,
    KnowledgeBase,
    RuleRerank,
    Schema,
    Scope,
    Top,
    open_graph,
    read_documents,
    serve,
)
from llama_retrieval_ext.capabilities import retrieval_tool
from llama_retrieval_ext.cli import main
from llama_retrieval_ext.graph import Edge, GraphNode
from llama_retrieval_ext.samples.pages import SKILL, package_pages
from llama_retrieval_ext.testing.fakes import FakeEmbedding

Check = Callable[[Any], None]
TASKS: dict[str, tuple[Callable[[Path], Any], Check]] = {}
HANDBOOK = {
    "leave.md": "Annual leave: 25 days.",
    "pay.md": "Salaries: 900 a day.",
    "old.md": "Fax.",
}
ACME, GLOBEX = Scope("acme"), Scope("globex")


def task(check: Check) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Register a solution, whose docstring is the task, with its check."""

    def registered(solve: Callable[[Path], Any]) -> Callable[[Path], Any]:
        TASKS[solve.__name__] = (solve, check)
        return solve

    return registered


def opened(url: str = "embedded::memory:", **options: Any) -> KnowledgeBase:
    return KnowledgeBase.open(url, embed_model=FakeEmbedding(), **options)


def files(kb: KnowledgeBase, text: str, scope: Scope | None) -> set[str]:
    return {str(hit.node.ref_doc_id)[-8:] for hit in kb.search(text, "keyword", scope=scope)}


def check_sharing(kb: KnowledgeBase) -> None:
    ann = Scope("acme", principals=["user:ann", "group:hr"])
    bob = Scope("acme", principals=["user:bob"])
    assert [len(files(kb, "salaries", user)) for user in (ann, bob, GLOBEX)] == [1, 0, 0]
    assert [len(files(kb, "leave", user)) for user in (ann, bob, GLOBEX)] == [1, 1, 1]
    assert kb.require_scope


@task(check_sharing)
def share(folder: Path) -> object:
    """A search over this folder for acme and globex; only acme's group hr sees pay.md."""
    kb = opened(require_scope=True)
    for tenant in (ACME, GLOBEX):
        kb.add(read_documents(folder, include=["leave.md"]), scope=tenant, show_progress=False)
    pay = read_documents(folder / "pay.md")
    kb.add(pay, scope=ACME, allowed=["group:hr"], show_progress=False)
    return kb


def check_revoked(kb: KnowledgeBase) -> None:
    assert files(kb, "salaries", Scope(principals=["group:hr"])) == set()
    assert files(kb, "salaries", Scope(principals=["group:board"])) != set()


@task(check_revoked)
def revoke(folder: Path) -> object:
    """The group hr must not see pay.md any longer, but the group board."""
    kb = opened()
    kb.add(read_documents(folder), allowed=["group:hr"], show_progress=False)
    kb.share(str(folder / "pay.md"), allowed=["group:board"])
    return kb


def check_synced(kb: KnowledgeBase) -> None:
    assert (kb.count(), files(kb, "fax", None)) == (2, set())


@task(check_synced)
def sync(folder: Path) -> object:
    """Keep the index equal to the folder, from which old.md is deleted later."""
    kb = opened()
    kb.sync(folder, show_progress=False)
    (folder / "old.md").unlink()
    kb.sync(folder, max_deletions=1, show_progress=False)
    return kb


def years() -> list[Document]:
    return [Document(id_=f"rule{y}", text=f"Travel {y}", metadata={"year": y}) for y in range(5)]


def check_narrow(found: object) -> None:
    assert found == {"rule3", "rule4"}


@task(check_narrow)
def narrow(folder: Path) -> object:
    """Which travel rules are of year 3 or later?"""
    kb = opened()
    kb.add(years(), show_progress=False)
    since = MetadataFilter(key="year", value=3, operator=FilterOperator.GTE)
    result = kb.search("travel", filters=MetadataFilters(filters=[since]))
    return {hit.node.ref_doc_id for hit in result}


def check_reasons(reasons: tuple[str, str]) -> None:
    assert reasons[0] == "CUT"
    assert "year" in reasons[1]


@task(check_reasons)
def diagnose(folder: Path) -> object:
    """Why is a passage missing among two, and why does a filter by yaer find nothing?"""
    kb = opened()
    kb.add(years(), show_progress=False)
    explanation = (kb.retriever("keyword", top_k=10) >> Top(2)).explain("travel")
    missing = {kb.get(f"rule{year}")[0].node_id for year in range(5)}
    missing -= {hit.node_id for hit in explanation.hits}
    misspelt = MetadataFilters(filters=[MetadataFilter(key="yaer", value=3)])
    hints = kb.search("travel", filters=misspelt).hints
    return explanation.why_not(missing.pop()).reason.name, str(hints)


def check_copied(kb: KnowledgeBase) -> None:
    assert (kb.count(scope=ACME), kb.count(scope=GLOBEX)) == (3, 0)
    assert kb.url.startswith("qdrant:")
    kb.close()


@task(check_copied)
def switch(folder: Path) -> object:
    """Move to Qdrant without embedding anything again."""
    from llama_retrieval_ext.knowledge_base import copy_knowledge_base  # noqa: PLC0415 - a client

    with opened(f"embedded:{folder}/kb") as kb:
        kb.add(read_documents(folder, include=["*.md"]), scope=ACME, show_progress=False)
    copy_knowledge_base(f"embedded:{folder}/kb", f"qdrant:{folder}/copy", show_progress=False)
    return KnowledgeBase.open(f"qdrant:{folder}/copy", must_exist=True)


def check_weights(found: object) -> None:
    assert found == ["island", "crusoe"]


@task(check_weights)
def weigh(folder: Path) -> object:
    """A word in a title must count more than one in the text."""
    kb = opened(schema=Schema(text={"title": 4, "text": 1}))
    films = {"island": ("The Island", "Clones."), "crusoe": ("Crusoe", "An island, an island.")}
    documents = [Document(id_=k, text=x, metadata={"title": t}) for k, (t, x) in films.items()]
    kb.add(documents, show_progress=False)
    return [hit.node.ref_doc_id for hit in kb.search("island", "keyword")]


def check_compared(results: Any) -> None:
    rows = dict(zip(results["retriever"], results["nDCG@10"], strict=True))
    assert set(rows) == {"mine", "hybrid"}
    assert min(rows.values()) > 0.9


@task(check_compared)
def compose(folder: Path) -> object:
    """Compose four parts, and compare them with the default on judged questions."""
    from llama_retrieval_ext.evaluation import Experiment  # noqa: PLC0415 - an extra

    kb = opened()
    kb.add(read_documents(folder), show_progress=False)
    both = kb.retriever("vector") | kb.retriever("keyword")
    pipeline = both >> RRF() >> RuleRerank() >> MMR(0.7) >> Top(2)
    judged = folder / "questions.csv"
    judged.write_text("question,document\nannual leave,leave.md\nsalaries,pay.md\n")
    pipelines = {"mine": pipeline, "hybrid": kb.retriever("hybrid")}
    return Experiment(pipelines, str(judged), measures=["nDCG@10"]).run(progress=False).results


def check_proof(hit: Any) -> None:
    assert hit.text == "bread contains gluten"
    assert [edge.type for edge in hit.proof] == ["MADE_OF", "HAS"]


@task(check_proof)
def prove(folder: Path) -> object:
    """Bread is made of flour, flour has gluten: conclude what bread contains, with a proof."""
    graph = open_graph("graph::memory:")
    nodes = [GraphNode(name, "thing", name) for name in ("bread", "flour", "gluten")]
    graph.upsert(nodes, [Edge.of("bread", "MADE_OF", "flour"), Edge.of("flour", "HAS", "gluten")])
    rules = folder / "rules.yaml"
    rules.write_text(
        "rules:\n  - id: contains\n    match:\n      - {node: food}\n"
        "      - {follow: MADE_OF, node: part}\n      - {follow: HAS, node: what}\n"
        '    then: "{food} contains {what}"\n'
    )
    return KGRuleRetriever(graph, str(rules)).search("What does bread contain?")[0]


def check_tool(made: Any) -> None:
    tool, engine = made
    assert "900" not in str(tool.call("salaries"))
    assert "25 days" in str(tool.call("annual leave"))
    assert isinstance(engine, RetrieverQueryEngine)


@task(check_tool)
def serve_agents(folder: Path) -> object:
    """A tool for an agent that sees acme's documents alone, and LlamaIndex's engine over them."""
    kb = opened(require_scope=True)
    kb.add(read_documents(folder, include=["leave.md"]), scope=ACME, show_progress=False)
    kb.add(read_documents(folder, include=["pay.md"]), scope=GLOBEX, show_progress=False)
    tool = retrieval_tool(kb.as_retriever(scope=ACME), "handbook", "Rules of acme")
    from llama_index.core.llms import MockLLM  # noqa: PLC0415 - whichever LLM there is

    return tool, kb.as_query_engine(llm=MockLLM(), scope=ACME)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_solved_by_what_the_page_says(name: str, tmp_path: Path) -> None:
    for file, text in HANDBOOK.items():
        (tmp_path / file).write_text(text)
    solve, check = TASKS[name]
    check(solve(tmp_path))


def test_solutions_use_names_of_the_page_only() -> None:
    words = {*re.findall(r"\w+", SKILL.read_text(encoding="utf-8"))}
    ours = {"opened", "years", "folder", "HANDBOOK", "ACME", "GLOBEX", "MockLLM", "llms"}
    of_python = {name for kind in (str, dict, list, Path) for name in dir(kind)} | {*dir(builtins)}
    for name, (solve, _) in TASKS.items():
        tree = ast.parse(inspect.getsource(solve))
        tree.body[0].decorator_list = []  # type: ignore[attr-defined]  # it is a function
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        used |= {n.arg or "" for n in ast.walk(tree) if isinstance(n, ast.keyword)}
        used |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id[0].isupper()}
        assert used - words - ours - of_python == set(), name


@pytest.mark.slow
def test_the_page_is_installed_and_the_index_lists_every_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for args in (["skill", "--install", str(tmp_path)], ["docs", "--to", str(tmp_path)]):
        with pytest.raises(SystemExit, match="0"):
            main(args)
    assert (tmp_path / "llama-retrieval-ext/SKILL.md").read_text() == SKILL.read_text()
    index = (tmp_path / "llms.txt").read_text()
    for path, text in package_pages().items():
        assert f"]({path}): " in index, path
        assert text.strip() in (tmp_path / "llms-full.txt").read_text(), path
    assert "wrote" in capsys.readouterr().out


@pytest.mark.slow
def test_agents_search_the_pages_of_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[str] = []

    def searched(kb: KnowledgeBase, **_: object) -> None:
        questions = ("revoke access of a group to a document", "what does ScoreDecay do")
        found.extend(kb.search(text, top_k=1)[0].metadata["file_path"] for text in questions)

    monkeypatch.setattr(serve, "serve_mcp", searched)
    with pytest.raises(SystemExit, match="0"):
        main(["mcp", "--docs"])
    assert found[1].startswith("stages/")
    with pytest.raises(SystemExit, match="1"):
        main(["mcp", "--docs", "--tenant", "acme"])
    assert "--docs has no graph and no tenants" in " ".join(capsys.readouterr().err.split())
