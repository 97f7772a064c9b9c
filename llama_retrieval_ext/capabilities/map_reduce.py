"""Map-reduce with a language model: findings with evidence, from items of any length."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeAlias, TypeVar

from llama_index.core.node_parser import SentenceSplitter
from pydantic import BaseModel

from llama_retrieval_ext.errors import GenerationError
from llama_retrieval_ext.execution.context import note_degraded
from llama_retrieval_ext.execution.legs import MISTAKES
from llama_retrieval_ext.execution.plan import Outcome, Plan, Task, Together
from llama_retrieval_ext.execution.running import Report
from llama_retrieval_ext.knowledge_base.passages import split_by
from llama_retrieval_ext.llm.model import LanguageModel, count_tokens, shortened, structured_prompt

M = TypeVar("M", bound=BaseModel)
# Maximum number of concurrent prompts.
_AT_ONCE: Final = 4
# Minimum number of tokens for items in a prompt.
_LEAST_ROOM: Final = 64


@dataclass(frozen=True, slots=True)
class Item:
    """A text to read, or a finding from one, with the ids of its sources."""

    text: str
    sources: tuple[str, ...]
    kind: str = ""
    confidence: float = 1.0
    title: str = ""


# The findings of one prompt, or the reason why there are none.
_Result: TypeAlias = list[Item] | GenerationError
# Item numbers to source ids; numbers out of range give none.
SourcesOf: TypeAlias = Callable[[Sequence[int]], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class MapReduce(Generic[M]):
    """Findings from items: read in several prompts, then merged until they fit one prompt.

    If a prompt fails, its items are skipped and the answer is marked degraded; if merging fails, or
    gives nothing, the findings stay unmerged.
    """

    model: LanguageModel
    name: str
    output_cls: type[M]
    prompt: Callable[[str, bool], str]
    findings: Callable[[M, SourcesOf], list[Item]]

    def plan(
        self, items: Sequence[Item], report: Report[list[Item]] | None = None
    ) -> Plan[list[Item]]:
        """Return the plan for the findings."""
        chunks = self._chunks(items, merging=False)
        results = yield from self._answers(chunks, merging=False, report=report)
        failures = [result for result in results if isinstance(result, GenerationError)]
        if chunks and len(failures) == len(chunks):
            raise GenerationError(
                f"{self.name}: no usable answer to any of {len(chunks)} prompts; {failures[-1]}"
            )
        findings = _findings(results)
        while len(chunks) > 1 and findings:
            following = self._chunks(findings, merging=True)
            if len(following) >= len(chunks):
                note_degraded(self.name, "the findings are too many to be merged")
                break
            chunks = following
            results = yield from self._answers(chunks, merging=True, report=None)
            findings = [
                finding
                for chunk, result in zip(chunks, results, strict=True)
                for finding in (chunk if isinstance(result, GenerationError) else result)
            ]
        return findings

    def _chunks(self, items: Sequence[Item], *, merging: bool) -> list[list[Item]]:
        """Split the items into lists that each fit into a prompt; long items are split too."""
        room = self.model.room(structured_prompt(self.prompt("", merging), self.output_cls))
        if room < _LEAST_ROOM:
            raise GenerationError(
                f"{self.name}: the prompt leaves {max(room, 0)} tokens of the context window for "
                "what is to be read; use a model with a longer context"
            )
        chunks: list[list[Item]] = [[]]
        left = room
        for part in (part for item in items for part in self._parts(item, room)):
            cost = count_tokens(_numbered(len(chunks[-1]) + 1, part)) + 2
            if cost > left and chunks[-1]:
                chunks.append([])
                left = room
            chunks[-1].append(part)
            left -= cost
        return [chunk for chunk in chunks if chunk]

    def _parts(self, item: Item, room: int) -> Iterator[Item]:
        most = room - count_tokens(_numbered(1000, Item("", item.sources, item.kind))) - 4
        if count_tokens(item.text) <= most:
            if item.text.strip():
                yield item
            return
        splitter = SentenceSplitter(
            chunk_size=most, chunk_overlap=0, tokenizer=lambda text: list(range(count_tokens(text)))
        )
        for text in split_by(splitter.split_text, item.text):
            yield replace(item, text=shortened(text, most))

    def _answers(
        self, chunks: Sequence[list[Item]], *, merging: bool, report: Report[list[Item]] | None
    ) -> Plan[list[_Result]]:
        """Return the plan for the findings of each chunk, or its error."""
        results: list[_Result] = []
        for start in range(0, len(chunks), _AT_ONCE):
            batch = chunks[start : start + _AT_ONCE]
            outcomes: list[Outcome[list[Item]]] = yield Together(
                [Task(self.name, self._answer(chunk, merging=merging)) for chunk in batch]
            )
            for chunk, outcome in zip(batch, outcomes, strict=True):
                results.append(self._settled(chunk, outcome, merging=merging))
            if report is not None:
                report(_findings(results))
        return results

    def _answer(self, chunk: Sequence[Item], *, merging: bool) -> Plan[list[Item]]:
        text = "\n\n".join(_numbered(number, item) for number, item in enumerate(chunk, start=1))
        answer = yield from self.model.structured(
            self.name, self.prompt(text, merging), self.output_cls
        )

        def sources_of(numbers: Sequence[int]) -> tuple[str, ...]:
            cited = (chunk[number - 1] for number in numbers if 1 <= number <= len(chunk))
            return tuple(dict.fromkeys(source for item in cited for source in item.sources))

        findings = self.findings(answer, sources_of)
        is_lost = not any(finding.sources for finding in findings) and any(
            item.sources for item in chunk
        )
        if merging and is_lost:
            raise GenerationError(f"{self.name}: the LLM gave no findings")
        return findings

    def _settled(
        self, chunk: Sequence[Item], outcome: Outcome[list[Item]], *, merging: bool
    ) -> _Result:
        if outcome.error is None:
            return outcome.result()
        if isinstance(outcome.error, MISTAKES) or not isinstance(outcome.error, GenerationError):
            raise outcome.error
        ids = list(dict.fromkeys(source for item in chunk for source in item.sources))
        what = "merging the findings" if merging else f"reading {', '.join(ids[:5])}"
        note_degraded(self.name, f"{what} failed: {outcome.error}")
        return outcome.error


def _findings(results: Sequence[_Result]) -> list[Item]:
    return [finding for result in results if isinstance(result, list) for finding in result]


def _numbered(number: int, item: Item) -> str:
    kind = f" {item.kind}:" if item.kind else ""
    return f"[{number}]{kind} {item.text}"
