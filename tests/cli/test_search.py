"""`llama-retrieval search`: hits, filters, hints, explanations; `ask`: an answer with citations."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import llama_retrieval_ext
from llama_retrieval_ext import LocalEmbedding
from llama_retrieval_ext.config import default_registry, pipeline_schema
from tests.cli.conftest import Run, best
from tests.servers.openai import FakeOpenAI

pytestmark = pytest.mark.slow

NOTHING = "nothing found; try other words, --mode keyword or vector, or fewer filters\n"


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
def test_ingested_files_are_found(run: Run, read_url: str, mode: str) -> None:
    for query, file in (("annual leave", "leave.md"), ("年假", "年假.txt"), ("lunch", "lunch.txt")):
        assert best(run, query, "--kb", read_url, "--mode", mode)[0] == file


def test_an_empty_query_is_refused_and_no_match_is_no_error(run: Run, read_url: str) -> None:
    for command in ("search", "ask"):
        refused = run(command, "  ", "--kb", read_url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "the query is empty" in refused.stderr
    finished = run("search", "zeppelin", "--kb", read_url, "--mode", "keyword")
    assert (finished.returncode, finished.stdout) == (0, NOTHING)


def test_filters_narrow_the_hits_and_a_bad_one_says_what_to_write(run: Run, read_url: str) -> None:
    search = ("--kb", read_url, "--mode", "vector")
    two = ("--filter", "file_name~TXT", "--filter", 'file_name!="lunch.txt"')
    assert best(run, "leave", *search, *two) == ["年假.txt"]
    either = "file_name=lunch.txt or not file_name in (leave.md, lunch.txt)"
    assert sorted(best(run, "leave", *search, "--filter", either)) == ["lunch.txt", "年假.txt"]
    unmatched = run("search", "leave", *search, "--filter", "file_name=x and not lang=zh")
    hint = "hint: no passage has 'x' as 'file_name'; there are "
    assert (unmatched.stdout, unmatched.stderr[: len(hint)]) == (NOTHING, hint)
    bad = run("search", "leave", *search, "--filter", "file_name")
    assert bad.returncode == 1
    assert "KEY=VALUE" in bad.stderr


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("file=leave.md", "no passage has the key 'file'; there are 'file_name', 'file_path', "),
        ("file_name=1", "'file_name' is a string here, and the filter has the number 1\n"),
        ("lang=zh or file_name>1", "has the key 'lang'"),
    ],
)
def test_filter_that_matches_nothing_is_explained(
    run: Run, read_url: str, option: str, hint: str
) -> None:
    finished = run("search", "leave", "--kb", read_url, "--filter", option)
    assert (finished.returncode, finished.stdout) == (0, NOTHING)
    assert finished.stderr.startswith("hint: ")
    assert hint in finished.stderr
    as_json = run("search", "leave", "--kb", read_url, "--filter", option, "--json")
    answer = json.loads(as_json.stdout)
    assert answer["hits"] == []
    assert f"hint: {answer['hints'][0]}" in finished.stderr


def test_typing_errors_are_corrected_visibly(run: Run, read_url: str) -> None:
    corrected = run("search", "anual", "--kb", read_url, "--mode", "keyword")
    assert corrected.stdout != NOTHING
    assert "hint: searched for 'annual' instead of 'anual'" in corrected.stderr
    as_typed = run("search", "anual", "--kb", read_url, "--mode", "keyword", "--no-correct")
    assert as_typed.stdout == NOTHING


def test_explain_shows_what_ran_and_the_account_of_each_hit(run: Run, read_url: str) -> None:
    shown = run("search", "annual leave", "--kb", read_url, "--explain").stdout
    assert "Explanation('annual leave'" in shown
    assert "hybrid: " in shown
    assert " ms" in shown
    assert "vector #1" in shown
    assert "keyword #1" in shown
    assert "adds " in shown


def test_why_not_names_the_stage_where_a_passage_fell_out(run: Run, read_url: str) -> None:
    search = ("search", "leave", "--kb", read_url, "--json")
    hits = json.loads(run(*search).stdout)["hits"]
    first, last = hits[0]["node_id"], hits[-1]["node_id"]
    options = ("--top-k", "1", "--why-not", last)
    said = run(*search[:-1], *options).stdout
    assert f"why not: '{last}' (" in said
    assert ") was left out by hybrid" in said
    answer = json.loads(run(*search, *options, "--why-not", first).stdout)
    assert [each["node_id"] for each in answer["why_not"]] == [last, first]
    assert answer["why_not"][1]["rank"] == 1


def test_json_has_query_contributions_and_trace(run: Run, read_url: str) -> None:
    result = json.loads(run("search", "年假", "--kb", read_url, "--json").stdout)
    assert result["query"] == "年假"
    legs = {part["leg"] for part in result["hits"][0]["contributions"]}
    assert legs == {"vector", "keyword"}
    assert result["trace"]["duration_ms"] > 0


def test_degraded_answer_says_what_is_missing(
    run: Run, read_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(_: LocalEmbedding, __: str) -> list[float]:
        raise ConnectionError("the model is down")

    monkeypatch.setattr(LocalEmbedding, "_get_query_embedding", down)
    finished = run("search", "annual leave", "--kb", read_url)
    assert finished.returncode == 0
    assert "leave.md" in finished.stdout
    assert finished.stderr == "degraded: vector: ConnectionError: the model is down\n"


def test_a_folder_that_is_open_elsewhere_is_searched_read_only(read_url: str) -> None:
    search = ["search", "annual leave", "--kb", read_url, "--read-only"]
    program = [sys.executable, "-m", "llama_retrieval_ext", *search]
    with llama_retrieval_ext.KnowledgeBase.open(read_url, embed_model=LocalEmbedding()):
        finished = subprocess.run(program, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "leave.md" in finished.stdout


PIPELINE = """\
version: 1
pipeline:
  type: Pipeline
  source: {type: hybrid, dense_weight: 0.6}
  refines:
    - {type: RuleRerank}
    - {type: Top, k: 1}
"""


def test_a_file_is_valid_or_each_problem_is_a_line(run: Run, tmp_path: Path) -> None:
    assert json.loads(run("schema").stdout) == pipeline_schema(default_registry())
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    assert run("validate", file).stdout == f"{file} is valid\n"
    file.write_text(PIPELINE.replace("dense_weight", "dense_wieght").replace("k: 1", "k: no"))
    bad = run("validate", file)
    assert bad.returncode == 1
    first, second = bad.stderr.splitlines()
    assert f"{file}, line 4, column 26, pipeline.source.dense_wieght: " in first
    assert first.endswith("did you mean 'dense_weight'?")
    assert f"{file}, line 7, column 22, pipeline.refines.1.k: " in second
    assert run("validate", tmp_path / "none.yaml").returncode == 1


def test_search_by_a_file(run: Run, read_url: str, tmp_path: Path) -> None:
    file, kb = tmp_path / "p.yaml", read_url
    file.write_text(PIPELINE)
    found = run("search", "annual leave", "--kb", kb, "--pipeline", file, "--json")
    (hit,) = json.loads(found.stdout)["hits"]
    assert "25 days" in hit["text"]
    collapsed = run("search", "leave", "--kb", kb, "--pipeline", file, "--per-document", "1")
    assert collapsed.returncode == 0
    both = run("search", "leave", "--kb", kb, "--pipeline", file, "--mode", "vector")
    assert both.returncode == 1
    assert "--mode and --pipeline" in both.stderr
    file.write_text(PIPELINE.replace("hybrid", "hyde"))
    without = run("search", "leave", "--kb", kb, "--pipeline", file)
    assert without.returncode == 1
    assert "pipeline.source" in without.stderr


def test_search_by_a_file_shows_as_many_hits_as_the_file_says(
    run: Run, read_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("version: 1\npipeline: {type: vector, top_k: 2}\n")
    command = ("search", "leave", "--kb", read_url, "--pipeline", file, "--json")
    counts = [len(json.loads(run(*command, *more).stdout)["hits"]) for more in ((), ("--top-k", 1))]
    assert counts == [2, 1]


def test_pages_and_facets_are_printed(run: Run, read_url: str) -> None:
    command = ("search", "leave", "--kb", read_url, "--mode", "vector", "--top-k", "2", "--json")
    first = json.loads(run(*command, "--cursor", "first").stdout)
    second = json.loads(run(*command, "--cursor", first["cursor"]).stdout)
    assert not {hit["node_id"] for hit in second["hits"]} & {h["node_id"] for h in first["hits"]}
    shown = run(*command[:-1], "--cursor", "first")
    assert "more: --cursor " in shown.stderr
    assert run(*command, "--sort", "year", "--explain").returncode == 1
    counted = run("facets", "file_name", "year:1990,2000.5", "--kb", read_url)
    assert counted.returncode == 0, counted.stderr
    assert "file_name: leave.md 1" in counted.stdout
    assert "hint: no passage has the key 'year'" in counted.stdout


def test_ask_prints_the_answer_with_the_documents_that_it_cites(run: Run, read_url: str) -> None:
    with FakeOpenAI(["You have 25 days of annual leave [1]."]) as server:
        options = ("--kb", read_url, "--llm-url", server.url, "--llm-model", "any")
        finished = run("ask", "How", "many", "days", "of", "annual", "leave?", *options)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == ["You have 25 days of annual leave [1].", "[1] leave.md"]


def test_ask_without_a_model_names_the_options(run: Run, read_url: str) -> None:
    finished = run("ask", "How many?", "--kb", read_url)
    assert finished.returncode == 1
    assert "--llm-url URL --llm-model NAME" in finished.stderr
