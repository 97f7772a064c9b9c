"""`MimicService`: replies in a person's style."""

from dataclasses import dataclass, replace
from typing import Final, Self

from llama_index.core.schema import QueryType

from llama_retrieval_ext.capabilities.factory import CapabilityFactory
from llama_retrieval_ext.capabilities.query_engine import GeneratedText, PassagesLike
from llama_retrieval_ext.capabilities.style import StyleGenerator
from llama_retrieval_ext.checks import checked_call, declared_arguments
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import asynchronous, blocking, called
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.llm.functions import takes_temperature
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.services.scoped import USER_KEY, ScopedService, by_metadata

CONVERSATION_KEY: Final = "conversation_id"
# Enough variation for a conversation; the specified default.
_TEMPERATURE: Final = 0.8


@declared_arguments
@dataclass(frozen=True)
class MimicService(ScopedService):
    """Replies in a person's style, from texts of that person.

    The texts are documents; their metadata needs ``user_id`` and ``conversation_id`` if calls
    filter by these.

    Args:
        style_generator: Writes replies; it needs a retriever for the history.
        scope: As for `ScopedService`.
        require_scope: As for `ScopedService`.

    Raises:
        ConfigurationError: An argument is of another type.

    Examples:
        >>> from llama_retrieval_ext.testing import FakeRetriever, ScriptedLLM
        >>> history = FakeRetriever([("m1", 0.9, "Cheers, works for me!")])
        >>> mimic = MimicService(StyleGenerator(history, llm=ScriptedLLM(["Cheers, at ten!"])))
        >>> mimic.generate_response("Confirm the meeting").text
        'Cheers, at ten!'

    """

    style_generator: StyleGenerator

    @classmethod
    @checked_call
    def of(cls, factory: CapabilityFactory, *, scope: Scope | None = None) -> Self:
        """Return the service over a factory's parts; ConfigurationError if one is missing."""
        required = factory.parts.requires_scope
        return cls(factory.create_style_generator(), scope=scope, require_scope=required)

    @blocking
    def generate_response(
        self,
        prompt: QueryType,
        temperature: float | None = None,
        use_history: bool = True,  # noqa: FBT001, FBT002 - the contract of the service
        *,
        user_id: str | None = None,
        conversation_id: str | None = None,
        scope: Scope | None = None,
    ) -> Plan[GeneratedText]:
        """Return a reply to a text.

        Args:
            prompt: The text to reply to; text, or a `Query` with filters and a time limit.
            temperature: Temperature; None for 0.8, or for a function that takes no temperature,
                its own.
            use_history: Whether to imitate earlier texts; False for the model's own style.
            user_id: Only texts of this person.
            conversation_id: Only texts of this conversation.
            scope: Narrows the service's scope.

        Raises:
            GenerationError: The model fails, times out, or returns nothing.
            ConfigurationError: ``use_history=False`` with a filter on the history, or True with a
                style generator without a retriever; or the model takes no temperature.
        """
        choice = {USER_KEY: user_id, CONVERSATION_KEY: conversation_id}
        chosen = {key: value for key, value in choice.items() if value is not None}
        query = Query.of(prompt).but(filters=by_metadata(chosen), scope=self._within(scope))
        if not use_history and query.filters is not None:
            raise ConfigurationError(
                "user_id, conversation_id and filters choose from the history, and "
                "use_history=False uses none; leave them out"
            )
        style = self.style_generator
        if use_history and style.retriever is None:
            raise ConfigurationError(
                "use_history=True needs a style generator with a retriever; pass one, or "
                "use_history=False"
            )
        examples: PassagesLike | None = None if use_history else []
        task = query if use_history else replace(query, scope=None)
        if temperature is None and takes_temperature(style.llm):
            temperature = _TEMPERATURE
        return called(style.generate, style.agenerate, task, examples, temperature)

    agenerate_response = asynchronous(generate_response)
