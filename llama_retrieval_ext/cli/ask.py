"""`llama-retrieval ask`: a question answered by a language model, with citations."""

from typing import Annotated

import typer

import llama_retrieval_ext as ext
from llama_retrieval_ext.cli.options import (
    DEFAULT_KB,
    AsJson,
    EmbedModel,
    KbId,
    KbOptions,
    LLMContext,
    LLMKeyEnv,
    LLMModel,
    LLMUrl,
    ReadOnly,
    Tenant,
    Timeout,
    Url,
    llm_of,
)
from llama_retrieval_ext.cli.output import say, say_aside, say_json
from llama_retrieval_ext.errors import ConfigurationError


def ask(  # noqa: PLR0913 - a command's options are its parameters
    words: Annotated[
        list[str], typer.Argument(metavar="QUESTION...", help="The question.", show_default=False)
    ],
    *,
    kb: Url = DEFAULT_KB,
    llm_url: LLMUrl = None,
    llm_model: LLMModel = None,
    llm_key_env: LLMKeyEnv = None,
    llm_context: LLMContext = 8192,
    tenant: Tenant = None,
    kb_id: KbId = None,
    embed_model: EmbedModel = None,
    read_only: ReadOnly = False,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Answer a question from the passages of a knowledge base, by a language model.

    Each citation names its document. Statements that the cited passages do not support are listed.
    """
    llm = llm_of(llm_url, llm_model, key_env=llm_key_env, context=llm_context, timeout_s=timeout)
    if llm is None:
        raise ConfigurationError("ask needs a language model: add --llm-url URL --llm-model NAME")
    # The import of LlamaIndex takes two seconds; --help does not need it.
    from llama_retrieval_ext.display.results import document_titles  # noqa: PLC0415

    options = KbOptions(kb, embed_model, tenant, kb_id, read_only=read_only)
    with options.reopen() as opened:
        generator = ext.CapabilityFactory.of(opened, llm=llm).create_rag_generator()
        answer = generator.generate(" ".join(words), scope=options.scope, timeout_s=timeout)
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
