"""`IntentRecognizer`: the kind of a question, by rules, then embedding, then an LLM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import QueryBundle, QueryType
from llama_index.core.tools import ToolMetadata

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import degraded_count, degraded_since
from llama_retrieval_ext.execution.drivers import asynchronous, blocking
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.llm.functions import AnyLLM
from llama_retrieval_ext.llm.model import SEARCH_TIMEOUT_S
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.intent import GENERAL, INTENTS, rules_for
from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
from llama_retrieval_ext.retrievers.routing.selectors import (
    CascadeSelector,
    Choice,
    EmbeddingSelector,
    RuleSelector,
    Selection,
    Selector,
)

# Cosine below which a question is no nearer to an intent than any two texts.
_LEAST_SIMILARITY = 0.1


@dataclass(frozen=True, slots=True)
class RecognizedIntent(Selection):
    """The intent of a query; ``general`` with confidence 0 if no step recognised one.

    Attributes:
        degraded: Steps that failed and the reasons.
    """

    degraded: tuple[str, ...] = ()


class IntentRecognizer(CascadeSelector):
    """A `CascadeSelector` of rules, embedding and LLM, whose choices are intents.

    A step that is less sure than ``min_confidence`` leaves the question to the next; if all are,
    the surest counts. ``IntentAdaptive(profiles, selector=recognizer)`` and
    `IntentAdaptiveRetriever` accept it.

    Args:
        intents: Description of each intent by name, or a list of the description and example
            questions, which the embedding compares as well; None for those of
            `default_intent_rules`.
        rules: None for the `default_intent_rules` of these intents.
        embed_model: For the second step; None to skip it.
        llm: For the third step; a LlamaIndex LLM, or a function from prompt to text; None to skip
            it.
        min_confidence: Confidence from which the next step is not called, in (0, 1]; that of an
            embedding is ``(1 + cosine) / 2``.
        timeout_s: Seconds that the LLM may take.

    Raises:
        ConfigurationError: There is no intent, a rule names an unknown one, or a value is invalid.

    Examples:
        >>> IntentRecognizer().recognize("What is the difference between RRF and MMR?").name
        'comparison'

    """

    def __init__(
        self,
        intents: Mapping[str, str | Sequence[str]] | None = None,
        *,
        rules: RuleSelector | None = None,
        embed_model: BaseEmbedding | None = None,
        llm: AnyLLM | None = None,
        min_confidence: float = 0.85,
        timeout_s: float = SEARCH_TIMEOUT_S,
    ) -> None:
        self.intents = _choices(INTENTS if intents is None else intents)
        names = [intent.name for intent in self.intents]
        steps: list[Selector] = [
            rules_for(names) if rules is None else of_type(rules, RuleSelector, "rules")
        ]
        steps[0].check(self.intents)
        if embed_model is not None:
            steps.append(EmbeddingSelector(embed_model, min_similarity=_LEAST_SIMILARITY))
        if llm is not None:
            steps.append(LLMSelector(llm, timeout_s=timeout_s))
        super().__init__(*steps, min_confidence=min_confidence)

    @blocking
    def recognize(self, query: QueryType) -> Plan[RecognizedIntent]:
        """Return the intent of a query."""
        before = degraded_count()
        chosen = yield from self.select_plan(Query.of(query), self.intents)
        best = chosen[0] if chosen else Selection(GENERAL, 0.0, "no step recognised an intent")
        degraded = tuple(map(str, degraded_since(before)))
        return RecognizedIntent(best.name, best.confidence, best.reason, degraded)

    arecognize = asynchronous(recognize)

    def check(self, choices: Sequence[Choice]) -> None:
        """Check that at least one choice is an intent.

        Raises:
            ConfigurationError: No choice is an intent.
        """
        names = sorted(choice.name for choice in choices)
        intents = sorted(intent.name for intent in self.intents)
        if not {*intents, GENERAL}.intersection(names):
            raise ConfigurationError(
                f"the intents are {intents}, and the choices {names} have none of them"
            )

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the plan for the choice with the name of the intent; no choice if none matches."""
        names = {choice.name for choice in choices}
        candidates = [intent for intent in self.intents if intent.name in names]
        return (yield from super().select_plan(query, candidates))

    def as_llama_index_selector(self) -> BaseSelector:
        """Return a LlamaIndex selector by tool name, for ``RouterQueryEngine``.

        It selects the tool of the intent, else the tool ``general``, else the first.
        """
        return _LlamaIndexIntentSelector(self)


class _LlamaIndexIntentSelector(BaseSelector):
    def __init__(self, recognizer: IntentRecognizer) -> None:
        self._recognizer = recognizer

    @blocking
    def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> Plan[SelectorResult]:
        named = [Choice(choice.name or "", choice.description) for choice in choices]
        self._recognizer.check(named)
        chosen = yield from self._recognizer.select_plan(Query.of(query), named)
        best = chosen[0] if chosen else Selection(GENERAL, reason="no intent was recognised")
        names = [choice.name for choice in named]
        index = names.index(best.name) if best.name in names else 0
        return SelectorResult(selections=[SingleSelection(index=index, reason=best.reason)])

    _aselect = asynchronous(_select)  # type: ignore[arg-type]  # its self is this class

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        """No-op: there are no prompts."""


def _choices(intents: Mapping[str, str | Sequence[str]]) -> list[Choice]:
    if not isinstance(intents, Mapping) or not intents:
        raise ConfigurationError(
            f"intents must be a mapping of names to descriptions, got {intents!r}"
        )
    choices: list[Choice] = []
    for name, described in intents.items():
        texts = [described] if isinstance(described, str) else list(described)
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise ConfigurationError(
                f"the intent {name!r} needs a description, or a list of it and of example "
                f"questions, got {described!r}"
            )
        choices.append(Choice(name, texts[0], tuple(texts[1:])))
    return choices
