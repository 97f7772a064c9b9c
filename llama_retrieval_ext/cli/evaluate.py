"""`llama-retrieval eval`: quality of searches on judged questions."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.options import AsJson, KbOptions
from llama_retrieval_ext.cli.output import console, say, say_aside, say_json
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.evaluation.measures import MEASURES, parse_measures
from llama_retrieval_ext.knowledge_base.kinds import SearchKind
from llama_retrieval_ext.wording import path_tails

if TYPE_CHECKING:
    from llama_retrieval_ext.evaluation.gate import Gate
    from llama_retrieval_ext.evaluation.tuning import Tuning

_TOP_K = 100
_SHOWN: Final = 5


def eval_(  # noqa: PLR0913 - a command's options are its parameters
    questions: Annotated[
        str | None,
        typer.Argument(
            metavar="QUESTIONS",
            help="A CSV or JSONL file of questions with the right document, a BEIR folder, a JSON "
            "file of a LlamaIndex dataset, or ir_datasets:ID. None for questions made of titles "
            "and rare sentences of the knowledge base.",
            show_default=False,
        ),
    ] = None,
    *,
    modes: Annotated[
        list[str] | None,
        typer.Option(
            "--mode", help="How to search. May be repeated; all available modes unless given."
        ),
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option("--measure", metavar="MEASURE", help="Such as nDCG@10, R@100, RR, AP."),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="Number of hits per search.")] = _TOP_K,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="MODE|FILE",
            help="The mode that others are compared with, the first one unless given; or the "
            "folder of an earlier run, or its answers.jsonl: if a measure is significantly worse "
            "than there, the exit code is 1, and 3 if they cannot be compared.",
        ),
    ] = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEASURE=NUMBER",
            help="Exit with 1 if a measure is below; a number of 0 or less is a difference to the "
            "run in --baseline. May be repeated.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Where to write these checks: JUnit if it ends in .xml, or Markdown."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where to keep answers, so that a killed run can resume.")
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Also tune hybrid search on the questions.")
    ] = False,
    as_json: AsJson = False,
    options: KbOptions,
) -> None:
    """Measure searches of a knowledge base on judged questions."""
    parse_measures(measures or MEASURES)  # before slow work
    least = _numbers(fail_under or ())
    is_mode = baseline in get_args(SearchKind)
    if report is not None and not least and (baseline is None or is_mode):
        raise typer.BadParameter("nothing is checked; add --baseline or --fail-under")
    chosen: list[SearchKind] = [_kind(mode) for mode in modes or ()]
    show_progress = not as_json and console(stderr=True).is_terminal
    with options.open() as opened:
        judged = _judgements(questions, opened)
        _warn_of_ambiguous(judged, opened, options.scope)
        searches: list[SearchKind] = ["vector", "keyword", "hybrid", "graph"]
        kinds = chosen or searches[: -1 if opened.graph is None else None]
        retrievers: dict[str, ext.Retriever] = {
            kind: opened.retriever(kind, top_k=top_k, scope=options.scope) for kind in kinds
        }
        experiment = ext.Experiment(
            retrievers,
            judged,
            measures=measures or MEASURES,
            baseline=baseline if is_mode else None,
            folder=folder,
        ).run(progress=show_progress)
        gated = None
        if least or (baseline is not None and not is_mode):
            gated = ext.gate(experiment, baseline=None if is_mode else baseline, fail_under=least)
        tuning = None
        if tune:
            hybrid = opened.retriever("hybrid", scope=options.scope)
            legs = None if folder is None else folder / "legs"
            tuning = ext.tune(hybrid, judged, folder=legs, progress=show_progress)
    _show(experiment, tuning, gated, as_json=as_json)
    if gated is not None:
        if report is not None:
            text = gated.to_junit() if report.suffix == ".xml" else gated.to_markdown()
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(text, encoding="utf-8")
        raise typer.Exit(gated.exit_code)


def _numbers(texts: Sequence[str]) -> dict[str, float]:
    """Return the numbers by measure in ``MEASURE=NUMBER``."""
    numbers: dict[str, float] = {}
    for text in texts:
        measure, _, number = text.partition("=")
        try:
            numbers[str(parse_measures([measure])[0])] = float(number)
        except ValueError as error:
            hint = "'--fail-under'"
            raise typer.BadParameter(f"{text!r} is no MEASURE=NUMBER", param_hint=hint) from error
    return numbers


def _kind(mode: str) -> SearchKind:
    kinds: dict[str, SearchKind] = {argument: argument for argument in get_args(SearchKind)}
    if mode not in kinds:
        choices = ", ".join(map(repr, kinds))
        raise typer.BadParameter(f"{mode!r} is not one of {choices}", param_hint="'--mode'")
    return kinds[mode]


def _judgements(questions: str | None, kb: "ext.KnowledgeBase") -> "ext.Judgements":
    if questions is not None:
        return ext.load_judgements(questions)
    if kb.require_scope:
        raise ConfigurationError(
            "questions cannot be made of a knowledge base that requires a scope; pass a file"
        )
    say_aside("synthetic questions: they favour keyword search, and say little about real ones")
    return ext.known_item_questions(kb)


def _warn_of_ambiguous(
    judged: "ext.Judgements", kb: "ext.KnowledgeBase", scope: "ext.Scope | None"
) -> None:
    """Warn of names of relevant documents that several files have."""
    from llama_retrieval_ext.evaluation.judgements import Level  # noqa: PLC0415 - imports slowly

    if judged.level is not Level.DOCUMENT:
        return
    relevant = {
        id_ for grades in judged.relevant.values() for id_, grade in grades.items() if grade > 0
    }
    sources: defaultdict[str, set[str]] = defaultdict(set)  # by id, and by each end of a path
    for document in kb.documents(scope=scope):
        for name in (document.document_id, *path_tails(document.source)):
            sources[name].add(document.source)
    for name in sorted(relevant & sources.keys()):
        if len(sources[name]) > 1:
            named = ", ".join(sorted(sources[name]))
            say_aside(f"{name!r} names several files, which all count: {named}", style="yellow")


def _show(
    experiment: "ext.Experiment", tuning: "Tuning | None", gated: "Gate | None", *, as_json: bool
) -> None:
    if as_json:
        facts = {
            "results": experiment.results.to_dict("records"),
            "significance": experiment.significance.to_dict("records"),
            "hints": list(experiment.hints),
            **({} if tuning is None else {"tuning": tuning.verdict}),
            **({} if gated is None else {"gate": asdict(gated)}),
        }
        say_json(facts)
        return
    console().print(experiment)
    if tuning is not None:
        say()
        console().print(tuning)
    if gated is not None:
        say()
        say(gated.to_markdown())
