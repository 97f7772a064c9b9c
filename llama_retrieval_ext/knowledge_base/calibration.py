"""Calibration of a knowledge base by questions generated from its own sentences."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from random import Random
from typing import Final

from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.checks import check_count
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.ledger.ledger import KnowledgeBaseConfig, Ledger
from llama_retrieval_ext.knowledge_base.storage import Storage
from llama_retrieval_ext.query import Query, Scope
from llama_retrieval_ext.retrievers.confidence import DEPTH, Calibration, LegScores, n_terms
from llama_retrieval_ext.retrievers.hybrid import HybridRetriever
from llama_retrieval_ext.text.normalization import UNSPACED

# Half as many change the ranking of real questions by .002 at most, but worsen probabilities.
QUESTIONS: Final = 250
# One more hit than a calibration reads, to have enough without the answer.
CANDIDATES: Final = DEPTH + 1
_FEWEST: Final = 20
# Texts that supply the wrong words of a question.
_OTHERS: Final = 500
_AT_ONCE: Final = 25

_SENTENCE: Final = re.compile(r"[^.!?\u3002\uff01\uff1f\n]+")
# Pairs of characters without spaces (about as long as a word), and words of other scripts.
_WORD: Final = re.compile(rf"[{UNSPACED}]{{1,2}}|(?:(?![{UNSPACED}])\w)+")
_UNSPACED: Final = re.compile(f"[{UNSPACED}]")
# A sentence with fewer words is a heading or a fragment; questions are rarely longer.
_FEWEST_WORDS, _MOST_WORDS = 5, 12
_SHORTEST: Final = 3
# Share of the sentence that is kept, and share of that which is replaced. Without wrong words the
# questions are too easy, and calibration by them does not order real questions.
_REMEMBERED: Final = (0.3, 0.9)
_WRONG: Final = (0.2, 0.8)

# Returns the texts of nodes by their ids.
Texts = Callable[[Sequence[str]], Mapping[str, str]]


class Calibrations(dict[str, Calibration]):
    """The calibrations of a knowledge base by scope, stored in its ledger; estimates confidence."""

    def __init__(self, storage: Storage, ledger: Ledger) -> None:
        super().__init__(_calibrations_in(ledger.config()))
        self._storage = storage
        self._ledger = ledger

    def __call__(self, query: Query, legs: LegScores) -> float | None:
        """Return the confidence of an answer; None where the query's scope is not calibrated."""
        calibration = self.get(_key(query.scope))
        return None if calibration is None else calibration.estimate(query, legs)

    def read(self) -> None:
        """Read them from the ledger; queries may run meanwhile."""
        self._replace(_calibrations_in(self._ledger.config()))

    def calibrate(self, retriever: HybridRetriever, count: int, seed: int) -> Calibration:
        """Calibrate the scope of a retriever with questions from the nodes that it sees.

        The retriever, which returns `CANDIDATES` hits per leg, is used up.
        """
        scope = retriever.scope
        ids = self._ledger.visible_ids(scope)
        found = examples(ids, self._texts, retriever, count=count, seed=seed)
        return self._keep(Calibration.fitted(found, nodes=len(ids)), scope)

    def _texts(self, ids: Sequence[str]) -> dict[str, str]:
        found = self._storage.nodes(ids)
        return {node.node_id: node.get_content(MetadataMode.NONE) for node in found}

    def _keep(self, calibration: Calibration, scope: Scope | None) -> Calibration:
        """Record and return the calibration of a scope, replacing an earlier one."""

        def changed(config: KnowledgeBaseConfig | None) -> KnowledgeBaseConfig | None:
            if config is None:  # the knowledge base was removed meanwhile
                return None
            known = {**_calibrations_in(config), _key(scope): calibration}
            text = json.dumps({key: each.to_dict() for key, each in known.items()})
            return replace(config, calibrations=text)

        self._replace(_calibrations_in(self._ledger.update_config(changed)))
        return calibration

    def _replace(self, known: Mapping[str, Calibration]) -> None:
        self.update(known)
        for key in self.keys() - known.keys():
            self.pop(key, None)


def examples(
    node_ids: Sequence[str], texts: Texts, retriever: HybridRetriever, *, count: int, seed: int
) -> Iterator[tuple[LegScores, int, bool]]:
    """Yield the rankings of the legs for known-item questions, with the answer and without."""
    check_count(count, "questions", least=_FEWEST)
    random = Random(seed)  # noqa: S311 - no secret
    questions = list(islice(_questions(node_ids, texts, random), count))
    if len(questions) < _FEWEST:
        raise ConfigurationError(
            f"only {len(questions)} of {len(node_ids)} nodes have a sentence of five different "
            f"words, and calibration needs {_FEWEST}; add more documents"
        )
    found: dict[str, LegScores] = {}

    def record(query: Query, legs: LegScores) -> None:
        found[query.query_str] = legs

    retriever.confidence, retriever.needs_ids = record, True
    retriever.retrieve_many(list(dict.fromkeys(text for text, _ in questions)), at_once=_AT_ONCE)
    for text, node_id in questions:
        legs, terms = found.get(text, {}), n_terms(text)
        if len(legs) > 1:  # both legs returned hits
            yield legs, terms, True
            yield _without(node_id, legs), terms, False


def _questions(node_ids: Sequence[str], texts: Texts, random: Random) -> Iterator[tuple[str, str]]:
    """Yield questions, each with the id of its node."""
    shuffled = random.sample(node_ids, len(node_ids))
    for start in range(0, len(shuffled), _OTHERS):
        known = texts(shuffled[start : start + _OTHERS])
        others = list(known.values())
        for node_id, text in known.items():
            question = known_item_question(text, others, random)
            if question is not None:
                yield question, node_id


def _without(node_id: str, legs: LegScores) -> LegScores:
    """Return the rankings of the legs without a node."""
    return {
        name: [each for each in ranking if each[0] != node_id][:DEPTH]
        for name, ranking in legs.items()
    }


def _calibrations_in(config: KnowledgeBaseConfig | None) -> dict[str, Calibration]:
    recorded = json.loads(config.calibrations or "{}") if config is not None else {}
    return {key: Calibration.from_dict(each) for key, each in recorded.items()}


def _key(scope: Scope | None) -> str:
    """Return the key of a scope in the ledger, a digest."""
    if scope is None:
        return ""
    principals = [] if scope.principals is None else [scope.principals]
    named = json.dumps([scope.tenant_id, sorted(scope.kb_ids or ()), *principals])
    return blake2b(named.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def known_item_question(text: str, others: Sequence[str], random: Random) -> str | None:
    """Return a question made of the words of one sentence of a text.

    Three to twelve words of a random sentence stay, in their order; a fifth to four fifths of these
    are replaced by words of other texts. So the overlap between question and answer varies, as it
    does for real questions.

    Examples:
        >>> text = "Employees have 25 days of paid annual leave."
        >>> known_item_question(text, ["Lunch is at noon."], Random(1))
        'is have 25 Lunch of'
        >>> known_item_question("Contents", [text], Random(1)) is None
        True

    """
    sentences = [_WORD.findall(sentence) for sentence in _SENTENCE.findall(text)]
    usable = [words for words in sentences if len(set(words)) >= _FEWEST_WORDS]
    if not usable:
        return None
    words = random.choice(usable)
    share = round(len(words) * random.uniform(*_REMEMBERED))
    kept = min(max(share, _SHORTEST), _MOST_WORDS, len(words))
    question = [words[at] for at in sorted(random.sample(range(len(words)), kept))]
    for _ in range(round(kept * random.uniform(*_WRONG))):
        wrong = _WORD.findall(random.choice(others)) if others else []
        if wrong:
            question[random.randrange(kept)] = random.choice(wrong)
    return ("" if any(map(_UNSPACED.match, question)) else " ").join(question)
