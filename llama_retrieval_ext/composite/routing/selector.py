"""`Selector`: says which routes a query takes, or that it cannot tell."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass

from llama_retrieval_ext.execution.effects import Call, Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.frame import current_frame
from llama_retrieval_ext.execution.steps import call
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.algebra.operand import undefined
from llama_retrieval_ext.stages.algebra.values import items_of, plan_of

# Of the query's time; the rest is for the routes.
_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Choice:
    """A route as a selector sees it.

    Attributes:
        name: Name of the route, unique among the routes.
        description: What is found there; selectors that read go by it.
    """

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Selection:
    """A route that a selector takes.

    Attributes:
        name: Name of the route.
        confidence: How sure the selector is, in ``(0, 1]``; it can weigh the route in the fusion.
        reason: Why, for people.
    """

    name: str
    confidence: float = 1.0
    reason: str = ""


class Selector(ABC):  # noqa: B024 - one of two methods is needed, which `undefined` says
    """Picks routes for a query.

    A subclass defines `select`, a plain function of the query and the routes. One that waits for
    something, such as a model, defines `select_plan` instead, a generator that yields its calls.

    Examples:
        >>> class Short(Selector):
        ...     def select(self, query, choices):
        ...         return [Selection("faq")] if len(query.query_str) < 20 else []

    """

    def check(self, choices: Sequence[Choice]) -> None:  # noqa: B027 - most can pick any
        """Nothing, if it can pick among these routes; asked once, when a router is made.

        Args:
            choices: The routes.

        Raises:
            ConfigurationError: It can not.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def select(
        self,
        query: Query,  # noqa: ARG002 - subclasses use it
        choices: Sequence[Choice],  # noqa: ARG002 - subclasses use it
    ) -> Sequence[Selection]:
        """Return the routes to take, best first; empty to abstain.

        Args:
            query: The query.
            choices: The routes there are.
        """
        raise undefined(self, Selector, "select(self, query, choices)")

    def select_plan(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """The plan for the routes to take; by default one call of `select`."""
        found = yield from call(Call(lambda: self.select(query, choices)))
        return _selections(found, f"{type(self).__name__}.select")


def selected(
    selector: Selector, query: Query, choices: Sequence[Choice], *, share: float = _SHARE
) -> Plan[list[Selection]]:
    """The plan for a checked selection that takes at most a share of the time that is left.

    Args:
        selector: Picks the routes.
        query: What to route.
        choices: The routes.
        share: Of what is left of the query's time; without a time limit there is none here.

    Raises:
        ConfigurationError: The selector returns something else than selections.
        DeadlineExceededError: The selector is late.
    """
    function = f"{type(selector).__name__}.select_plan"
    plan = plan_of(selector.select_plan(query, choices), function)
    frame = current_frame()
    left_s = None if frame is None else frame.remaining_s()
    limit_s = None if left_s is None else round(share * left_s, 3)
    outcomes: list[Outcome[list[Selection]]] = yield Together([Task(repr(selector), plan, limit_s)])
    return _selections(outcomes[0].result(), function)


def _selections(found: object, function: str) -> list[Selection]:
    return items_of(found, Selection, function, expected="Selection(name)")
