"""`IntentRecognizer`: the kind of a question, by rules, then embedding, then an LLM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.schema import QueryBundle, QueryType
from llama_index.core.tools import ToolMetadata

from llama_retrieval_ext.capabilities.language_model import Caller, as_llm
from llama_retrieval_ext.checks import is_number, of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import degraded_count, degraded_since
from llama_retrieval_ext.execution.legs import or_degraded
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.execution.running import asynchronous, blocking
from llama_retrieval_ext.llm.client import LLM_TIMEOUT_S
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.retrievers.intent import (
    GENERAL,
    default_intent_profiles,
    default_intent_rules,
)
from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
from llama_retrieval_ext.retrievers.routing.rule_selector import RuleSelector
from llama_retrieval_ext.retrievers.routing.selectors import (
    Choice,
    EmbeddingSelector,
    Selection,
    Selector,
    selected,
)

# Confidence of the LLM step, because an LLM returns none.
_LLM_CONFIDENCE: Final = 0.8
_NAME_OF_EXAMPLE: Final = "{name}\0{number}"


@dataclass(frozen=True, slots=True)
class Intent:
    """A kind of question.

    Args:
        description: The kind, in words.
        examples: Questions of this kind, for the embedding step.

    Raises:
        ConfigurationError: There is no description, or the examples are not a list.
    """

    description: str
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.description, str) or not self.description:
            raise ConfigurationError(f"an intent needs a description, got {self.description!r}")
        of_type(self.examples, tuple, "examples", instead="write ('a question',)")


@dataclass(frozen=True, slots=True)
class RecognizedIntent:
    """The intent of a query.

    Attributes:
        name: Name of the intent; ``general`` if none was recognised.
        confidence: In [0, 1]; 0 if no intent was recognised.
        step: The step that recognised it: ``rules``, ``embedding``, ``llm``, or ``none``.
        reason: The reason, in words.
        degraded: Steps that failed and the reasons.
    """

    name: str
    confidence: float = 0.0
    step: str = "none"
    reason: str = ""
    degraded: tuple[str, ...] = ()


class IntentRecognizer(Selector):
    """Recogniser of query intents: rules first, then embeddings, then an LLM.

    If the confidence of a step is below ``min_confidence``, the next step runs; if all are below,
    the highest confidence wins. A step that fails is skipped. The recogniser is a selector:
    ``IntentAdaptive(profiles, selector=recognizer)`` and `IntentAdaptiveRetriever` accept it.

    Args:
        intents: Descriptions or `Intent`s by name; None for the intents of `default_intent_rules`.
        rules: None for the rules of `default_intent_rules` for these intents.
        embed_model: For the second step; None to skip it.
        llm: For the third step; a LlamaIndex LLM, or a function from prompt to text; None to skip
            it.
        min_confidence: Confidence from which the next step is not called, in (0, 1].
        timeout_s: Seconds that the LLM may take.

    Raises:
        ConfigurationError: There is no intent, a rule names an unknown one, or a value is invalid.

    Examples:
        >>> IntentRecognizer().recognize("What is the difference between RRF and MMR?").name
        'comparison'

    """

    def __init__(
        self,
        intents: Mapping[str, Intent | str] | None = None,
        *,
        rules: RuleSelector | None = None,
        embed_model: BaseEmbedding | None = None,
        llm: LLM | Caller | None = None,
        min_confidence: float = 0.75,
        timeout_s: float = LLM_TIMEOUT_S,
    ) -> None:
        if not is_number(min_confidence) or not 0 < min_confidence <= 1:
            raise ConfigurationError(f"min_confidence must be in (0, 1], got {min_confidence!r}")
        self.intents = _intents(intents)
        self.rules = _rules_for(self.intents) if rules is None else rules
        self.min_confidence = min_confidence
        self._choices = [Choice(name, each.description) for name, each in self.intents.items()]
        of_type(self.rules, RuleSelector, "rules").check(self._choices)
        self._steps: dict[str, Selector] = {"rules": self.rules}
        if embed_model is not None:
            self._steps["embedding"] = _ByExamples(embed_model, self.intents)
        if llm is not None:
            self._steps["llm"] = LLMSelector(as_llm(llm), timeout_s=timeout_s)

    @blocking
    def recognize(self, query: QueryType) -> Plan[RecognizedIntent]:
        """Return the intent of a query."""
        before = degraded_count()
        intent = yield from self._recognized(Query.of(query), self._choices)
        return replace(intent, degraded=tuple(map(str, degraded_since(before))))

    arecognize = asynchronous(recognize)

    def check(self, choices: Sequence[Choice]) -> None:
        """Check that at least one choice is an intent.

        Raises:
            ConfigurationError: No choice is an intent.
        """
        names = [choice.name for choice in choices]
        if not set(names) & {*self.intents, GENERAL}:
            raise ConfigurationError(
                f"the intents are {sorted(self.intents)}, and the choices {sorted(names)} have "
                "none of them"
            )

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the plan for the choice with the name of the intent; no choice if none matches."""
        known = [choice for choice in self._choices if choice.name in {c.name for c in choices}]
        intent = yield from self._recognized(query, known)
        if intent.confidence == 0:
            return []
        return [Selection(intent.name, intent.confidence, f"{intent.step}: {intent.reason}")]

    def as_llama_index_selector(self) -> BaseSelector:
        """Return a LlamaIndex selector by tool name, for ``RouterQueryEngine``."""
        return _LlamaIndexIntentSelector(self)

    def _recognized(self, query: Query, choices: Sequence[Choice]) -> Plan[RecognizedIntent]:
        best = RecognizedIntent(GENERAL, reason="no step recognised an intent")
        names = {choice.name for choice in choices}
        for number, (step, selector) in enumerate(self._steps.items()):
            share = 1 / (len(self._steps) - number)
            plan = selected(selector, query, choices, share=share)
            selections = yield from or_degraded(f"intent by {step}", plan, [])
            first = next((each for each in selections if each.name in names), None)
            if first is None:
                continue
            confidence = min(first.confidence, _LLM_CONFIDENCE if step == "llm" else 1.0)
            if confidence > best.confidence:
                best = RecognizedIntent(first.name, confidence, step, first.reason)
            if best.confidence >= self.min_confidence:
                break
        return best


class _ByExamples(Selector):
    """`EmbeddingSelector` over descriptions and examples."""

    def __init__(self, embed_model: BaseEmbedding, intents: Mapping[str, Intent]) -> None:
        self._selector = EmbeddingSelector(embed_model)
        self._intents = intents

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """Return the plan for the intent with the nearest text; its confidence is the cosine."""
        texts = [
            Choice(_NAME_OF_EXAMPLE.format(name=choice.name, number=number), text)
            for choice in choices
            for number, text in enumerate((choice.description, *self._examples(choice.name)))
        ]
        if not texts:
            return []
        selections = yield from self._selector.select_plan(query, texts)
        return [
            # `EmbeddingSelector` maps cosines to (0, 1], where unrelated texts get 0.5.
            replace(each, name=each.name.partition("\0")[0], confidence=2 * each.confidence - 1)
            for each in selections
            if each.confidence > 0.5  # noqa: PLR2004 - the cosine is above 0
        ]

    def _examples(self, name: str) -> tuple[str, ...]:
        return self._intents[name].examples if name in self._intents else ()


class _LlamaIndexIntentSelector(BaseSelector):
    """A recogniser as a LlamaIndex selector."""

    def __init__(self, recognizer: IntentRecognizer) -> None:
        self._recognizer = recognizer

    @blocking
    def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> Plan[SelectorResult]:
        named = [Choice(each.name or "", each.description) for each in choices]
        self._recognizer.check(named)
        selections = yield from self._recognizer.select_plan(Query.of(query), named)
        return _result(choices, selections)

    _aselect = asynchronous(_select)  # type: ignore[arg-type]  # its self is this class

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        """No-op: there are no prompts."""


def _result(choices: Sequence[ToolMetadata], selections: Sequence[Selection]) -> SelectorResult:
    """Return the tool of the intent, else the tool ``general``, else the first."""
    names = [each.name for each in choices]
    name = selections[0].name if selections else GENERAL
    index = names.index(name) if name in names else 0
    reason = selections[0].reason if selections else "no intent was recognised"
    return SelectorResult(selections=[SingleSelection(index=index, reason=reason)])


def _intents(intents: Mapping[str, Intent | str] | None) -> dict[str, Intent]:
    if intents is None:
        profiles = default_intent_profiles()
        return {
            name: Intent(each.description) for name, each in profiles.items() if name != GENERAL
        }
    if not isinstance(intents, Mapping) or not intents:
        raise ConfigurationError(
            f"intents must be a mapping of names to descriptions, got {intents!r}"
        )
    return {
        name: Intent(each) if isinstance(each, str) else of_type(each, Intent, f"intent {name!r}")
        for name, each in intents.items()
    }


def _rules_for(intents: Mapping[str, Intent]) -> RuleSelector:
    return RuleSelector([rule for rule in default_intent_rules().rules if rule.route in intents])
