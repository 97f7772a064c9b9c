"""`llama-retrieval ask`: a question answered by a language model, with citations."""

from typing import Annotated

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.options import AsJson, LLMOptions, ReaderOptions
from llama_retrieval_ext.cli.output import say, say_aside, say_json
from llama_retrieval_ext.errors import ConfigurationError


def ask(
    words: Annotated[
        list[str], typer.Argument(metavar="QUESTION", help="The question.", show_default=False)
    ],
    *,
    model: LLMOptions,
    as_json: AsJson = False,
    options: ReaderOptions,
) -> None:
    """Answer a question by a language model, with citations.

    Each citation names its document. Statements that the cited passages do not support are listed.
    """
    llm = model.llm()
    if llm is None:
        raise ConfigurationError("ask needs a language model: add --llm-url URL --llm-model NAME")
    # The import of LlamaIndex takes two seconds; --help does not need it.
    from llama_retrieval_ext.display.results import document_titles  # noqa: PLC0415

    with options.open() as opened:
        generator = ext.CapabilityFactory.of(opened, llm=llm).create_rag_generator()
        answer = generator.generate(" ".join(words), scope=options.scope, timeout_s=model.timeout_s)
    if as_json:
        say_json(answer.to_dict())
        return
    say(answer.text)
    titles = document_titles([each.hit for each in answer.citations])
    for each in answer.citations:
        say(f"[{each.number}] {titles[each.hit.node_id]}", style="dim")
    for problem in answer.problems:
        say_aside(f"not supported: {problem}", style="yellow")
    for part in answer.degraded:
        say_aside(f"degraded: {part}", style="yellow")
