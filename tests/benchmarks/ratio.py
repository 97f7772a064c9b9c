"""Times rivals in turns, so that what else the machine does hits all alike, and prints ratios."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One comparison: medians in milliseconds by rival, the first of them ours."""

    title: str
    medians_ms: dict[str, float]
    goal: str = ""

    def __str__(self) -> str:
        ours, *others = self.medians_ms
        told = [f"{name} {ms:.3f} ms" for name, ms in self.medians_ms.items()]
        ratios = [
            f"{ours}/{name} = {self.medians_ms[ours] / self.medians_ms[name]:.2f}"
            for name in others
        ]
        goal = f" (goal {self.goal})" if self.goal else ""
        return f"{self.title}: {', '.join(told)}; {', '.join(ratios)}{goal}"


def compare(
    title: str, rivals: Mapping[str, Callable[[int], object]], *, rounds: int = 100, goal: str = ""
) -> Row:
    """Medians of the rivals, run one after the other in every round; the first is ours.

    Args:
        title: What is compared.
        rivals: Each gets the number of the round, so that it can vary its query.
        rounds: How many times each is run.
        goal: What the issue asks for.
    """
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for rival in rivals.values():
        rival(0)  # warm-up
    gc.collect()
    gc.disable()
    try:
        for round_ in range(rounds):
            for name, rival in rivals.items():
                start = time.perf_counter()
                rival(round_)
                times[name].append(time.perf_counter() - start)
    finally:
        gc.enable()
    row = Row(title, {n: statistics.median(t) * 1e3 for n, t in times.items()}, goal)
    print(row, flush=True)
    return row
