"""The READMEs keep their word: what they show is run, and what they link to is there."""

import re
import tomllib
import warnings
from pathlib import Path

import pytest

import llama_retrieval_ext
from llama_retrieval_ext import RRF, open_store
from llama_retrieval_ext.cli.quickstart import QUESTIONS, five_lines
from llama_retrieval_ext.stores.open import backend_for
from tests.cases import cases
from tests.knowledge_base.engines import ENGINES, place, start
from tests.readme import LLM_REPLIES, LLM_URL, blocks_of, comparable, run
from tests.servers.elasticsearch import elasticsearch_url
from tests.servers.openai import FakeOpenAI

__all__ = ["elasticsearch_url"]

ROOT = Path(llama_retrieval_ext.__file__).parents[1]
MAIN = ROOT / "README.md"
TEXT = MAIN.read_text(encoding="utf-8")
STORES = (ROOT / "llama_retrieval_ext/stores/README.md").read_text(encoding="utf-8")
PAGES = [
    MAIN,
    *sorted(p for d in ("llama_retrieval_ext", "tests") for p in (ROOT / d).rglob("*.md")),
]
PACKAGES = (
    "capabilities",
    "cli",
    "config",
    "display",
    "embeddings",
    "evaluation",
    "execution",
    "formulas",
    "graph",
    "knowledge_base",
    "llm",
    "pipeline",
    "retrievers",
    "samples",
    "serve",
    "services",
    "stages",
    "stores",
    "testing",
    "text",
)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=named)
def test_every_block_runs_from_top_to_bottom_and_prints_the_text_below_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with warnings.catch_warnings(), FakeOpenAI(LLM_REPLIES) as server:
        warnings.simplefilter("ignore")  # readers see warnings of other packages, and go on
        for block, printed in run(path, tmp_path, {LLM_URL: server.url}):
            shown = "" if block.prints is None else block.prints.code
            where = f"{named(path)}, line {block.line}"
            assert comparable(printed, block.mark) == comparable(shown, block.mark), where


def test_a_block_is_run_or_says_why_not(subtests: pytest.Subtests) -> None:
    for path in PAGES:
        with subtests.test(path=path):
            for block in blocks_of(path.read_text(encoding="utf-8")):
                assert block.language in {"python", "sh", "mermaid"}, block
                assert re.fullmatch(r"|ci:\w+|(compiled|varies): .+", block.mark), block
                assert ">>>" not in block.code


def test_a_newcomer_can_read_it_all() -> None:
    assert TEXT.count("\n") <= 180


@cases("name", ["quickstart", "test"])
def test_command_is_one_line_under_its_mark(name: str) -> None:
    (command,) = re.findall(
        rf"^<!-- ci:{name} -->\n```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL
    )
    assert command.count("\n") == 1
    assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -q ")


def test_first_program_is_the_one_the_quickstart_prints() -> None:
    first = next(block for block in blocks_of(TEXT) if block.language == "python")
    assert first.code.rstrip() == five_lines(QUESTIONS[0])


def test_the_five_lines_come_before_the_command_for_tests() -> None:
    assert TEXT.index("## Five lines") < TEXT.index("<!-- ci:test -->")


def test_a_page_has_no_marks_of_a_merge_conflict() -> None:
    for path in PAGES:
        assert not re.search("^(<{7}|>{7}) ", path.read_text(encoding="utf-8"), re.MULTILINE), path


def test_links_and_paths_lead_somewhere(subtests: pytest.Subtests) -> None:
    for path in PAGES:
        with subtests.test(path=path):
            text = path.read_text(encoding="utf-8")
            links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text)
            for target, anchor in links:
                linked = path.parent / target if target else path
                assert linked.exists(), target
                headings = (
                    re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
                    if anchor
                    else []
                )
                assert not anchor or anchor in {_anchor(heading) for heading in headings}, anchor
            for file in re.findall(r"`(llama_retrieval_ext/[\w/.]+)`", text):
                assert (ROOT / file).exists(), file


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_the_page_of_a_folder_lists_its_files(subtests: pytest.Subtests) -> None:
    for package in PACKAGES:
        with subtests.test(package=package):
            folder = ROOT / "llama_retrieval_ext" / package
            text = (folder / "README.md").read_text(encoding="utf-8")
            files = {p.name for p in folder.glob("*.py")} - {"__init__.py"}
            folders = {p.parent.name for p in folder.glob("*/__init__.py")}
            section = text.split("## Files", 1)[1].split("\n## ", 1)[0]
            listed = re.findall(r"`([\w]+)(\.py|/)`", section)
            assert {name + end for name, end in listed if end == ".py"} == files
            assert {name for name, end in listed if end == "/"} == folders


def test_the_layers_of_the_page_are_those_of_import_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [
        contract["layers"]
        for contract in contracts["contracts"]
        if contract.get("containers") == ["llama_retrieval_ext"]
    ]
    page = (ROOT / "llama_retrieval_ext/README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\d+\. (.*)$", page.split("## Layers", 1)[1], flags=re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", line)) for line in listed] == [
        set(re.findall(r"\w+", layer)) for layer in reversed(layers)
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_tables_of_engines_agree_with_the_features_of_the_backends(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    start(engine, request)
    with place(engine, tmp_path, request) as url, open_store(url) as store:
        has = backend_for(store).features
    declared = {
        "vector and keyword search in one request": has.one_round_trip,
        "MMR in the engine (LlamaIndex's mode `MMR`)": has.mmr,
        "`RRF(k)`, `k` a whole number, equal weights": any(
            fusion.kind is RRF for fusion in has.fusions
        ),
    }
    stated = {row: _cells_of_engines(row)[engine].startswith("yes") for row in declared}
    assert stated == declared


def _cells_of_engines(row: str) -> dict[str, str]:
    """The cells of a row, by engine; one column may stand for the first two."""
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", STORES, flags=re.MULTILINE)
    cells = [cell.strip() for cell in line.split("|")]
    return dict(
        zip(ENGINES, cells if len(cells) == len(ENGINES) else cells[:1] + cells, strict=True)
    )
