"""LlamaIndex's query and chat engines over a retriever, with LlamaIndex's arguments."""

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final

from llama_index.core.base.base_retriever import BaseRetriever

from llama_retrieval_ext.checks import nearest, one_of
from llama_retrieval_ext.errors import ArgumentError, ConfigurationError

if TYPE_CHECKING:
    from llama_index.core.chat_engine.types import BaseChatEngine
    from llama_index.core.llms import LLM
    from llama_index.core.query_engine import RetrieverQueryEngine

_OURS: Final = ("llm", "similarity_top_k", "mode", "filters", "scope", "fields")
# LlamaIndex's ``best`` is the second; its ``simple`` reads no documents.
_CHAT_ENGINES: Final = {
    "condense_plus_context": "CondensePlusContextChatEngine",
    "best": "CondensePlusContextChatEngine",
    "context": "ContextChatEngine",
    "condense_question": "CondenseQuestionChatEngine",
}


def query_engine(
    retriever: BaseRetriever, llm: object, arguments: Mapping[str, Any]
) -> "RetrieverQueryEngine":
    """Return LlamaIndex's query engine with the arguments of its ``from_args``."""
    from llama_index.core.query_engine import RetrieverQueryEngine  # noqa: PLC0415
    from llama_index.core.response_synthesizers import ResponseMode  # noqa: PLC0415
    from llama_index.core.response_synthesizers.context_only import ContextOnly  # noqa: PLC0415
    from llama_index.core.response_synthesizers.no_text import NoText  # noqa: PLC0415

    make = RetrieverQueryEngine.from_args
    _check("as_query_engine", arguments, _parameters(make))
    model = _checked_llm(llm, "as_query_engine")
    mode = arguments.get("response_mode", "compact")
    one_of(mode, [mode.value for mode in ResponseMode], "response_mode")
    kind = {"no_text": NoText, "context_only": ContextOnly}.get(mode)
    if kind is not None and arguments.get("response_synthesizer") is None:
        # LlamaIndex would give it the LLM of its Settings.
        synthesizer = kind(llm=model, streaming=arguments.get("streaming", False))
        arguments = {**arguments, "response_synthesizer": synthesizer}
    return make(retriever, llm=model, **arguments)


def chat_engine(
    retriever: BaseRetriever, llm: object, chat_mode: str, arguments: Mapping[str, Any]
) -> "BaseChatEngine":
    """Return LlamaIndex's chat engine of a mode with the arguments of its ``from_defaults``."""
    from llama_index.core import chat_engine as engines  # noqa: PLC0415
    from llama_index.core.memory import ChatMemoryBuffer  # noqa: PLC0415
    from llama_index.core.query_engine import RetrieverQueryEngine  # noqa: PLC0415

    if isinstance(chat_mode, str) and chat_mode in _OTHER_MODES:
        modes = ", ".join(map(repr, _CHAT_ENGINES))
        raise ConfigurationError(f"{_OTHER_MODES[chat_mode]}; as chat_mode pass one of {modes}")
    one_of(chat_mode, _CHAT_ENGINES, "chat_mode")
    make = getattr(engines, _CHAT_ENGINES[chat_mode]).from_defaults
    names, of_query_engine = _parameters(make), _parameters(RetrieverQueryEngine.from_args)
    answers = "query_engine" in names
    of_both = ["chat_mode", *names, *(of_query_engine if answers else ())]
    _check("as_chat_engine", arguments, of_both)
    model = _checked_llm(llm, "as_chat_engine")
    ours = {name: value for name, value in arguments.items() if name in names}
    if ours.get("memory") is None:
        # LlamaIndex's default opens a database per engine and never closes it.
        ours["memory"] = ChatMemoryBuffer.from_defaults(ours.get("chat_history"), llm=model)
    if not answers:
        return make(retriever=retriever, llm=model, **ours)  # type: ignore[no-any-return]  # of Any
    others = {name: value for name, value in arguments.items() if name in of_query_engine}
    answering = query_engine(retriever, model, others)
    return make(query_engine=answering, llm=model, **ours)  # type: ignore[no-any-return]  # as above


def _parameters(function: Callable[..., object]) -> list[str]:
    return [
        name
        for name, parameter in signature(function).parameters.items()
        if parameter.kind is not Parameter.VAR_KEYWORD
    ]


def _check(method: str, arguments: Iterable[str], parameters: Iterable[str]) -> None:
    """Raise if a method has no argument of a name."""
    names = [*_OURS, *(name for name in parameters if name not in (*_OURS, *_GIVEN))]
    for name in arguments:
        if name not in names:
            near = nearest(name, names)
            instead = f"it takes {', '.join(names)}" if near is None else f"write {near}=..."
            raise ArgumentError(f"{method}() has no argument {name!r}; {instead}")


# Modes of LlamaIndex that are no chat engine over a retriever.
_OTHER_MODES: Final = {
    "react": "an agent is ReActAgent(tools=[retrieval_tool(kb.retriever())], llm=llm)",
    "openai": "an agent is FunctionAgent(tools=[retrieval_tool(kb.retriever())], llm=llm)",
    "simple": "chat without search is SimpleChatEngine.from_defaults(llm=llm)",
}
# Arguments of LlamaIndex that the knowledge base passes.
_GIVEN: Final = ("retriever", "query_engine")


def _checked_llm(llm: object, method: str) -> "LLM":
    from llama_index.core.llms import LLM  # noqa: PLC0415

    # Untyped callers may pass the name of a model.
    if isinstance(llm, LLM):
        return llm
    raise ConfigurationError(
        f"{method} needs llm=, a LlamaIndex LLM, got {llm!r}; there is no default, and "
        "LlamaIndex's Settings are not used. For any server with OpenAI's API write "
        'llm=OpenAILike(model="qwen3", api_base="http://localhost:8000/v1", is_chat_model=True), '
        "from the package llama-index-llms-openai-like"
    )
