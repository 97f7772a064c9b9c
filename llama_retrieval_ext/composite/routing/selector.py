"""`Selector`: says which routes a query takes, or that it cannot tell."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from llama_retrieval_ext.execution.effects import Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.frame import current_frame
from llama_retrieval_ext.query import Query

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


class Selector(ABC):
    """Picks routes for a query."""

    def check(self, choices: Sequence[Choice]) -> None:  # noqa: B027 - most can pick any
        """Nothing, if it can pick among these routes; asked once, when a router is made.

        Args:
            choices: The routes.

        Raises:
            ConfigurationError: It can not.
        """

    @abstractmethod
    def select(self, query: Query, choices: Sequence[Choice]) -> Plan[list[Selection]]:
        """The plan for the routes to take, best first; empty to abstain."""


def selected(
    selector: Selector, query: Query, choices: Sequence[Choice], *, share: float = _SHARE
) -> Plan[list[Selection]]:
    """The plan for a selection that takes at most a share of the time that is left.

    Args:
        selector: Picks the routes.
        query: What to route.
        choices: The routes.
        share: Of what is left of the query's time; without a time limit there is none here.

    Raises:
        DeadlineExceededError: The selector is late.
    """
    frame = current_frame()
    left_s = None if frame is None else frame.remaining_s()
    limit_s = None if left_s is None else round(share * left_s, 3)
    task = Task(repr(selector), selector.select(query, choices), limit_s)
    outcomes: list[Outcome[list[Selection]]] = yield Together([task])
    return outcomes[0].result()
