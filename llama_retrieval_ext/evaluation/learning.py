"""`learn`: weights of fields, legs and boosts, and an adapter of queries, from judged questions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from llama_index.core.schema import BaseNode

from llama_retrieval_ext.evaluation.datasets import Source, load_judgements
from llama_retrieval_ext.evaluation.judgements import KNOWN_ITEMS, Judgements
from llama_retrieval_ext.evaluation.measures import measure_queries, parse_measures
from llama_retrieval_ext.evaluation.significance import standard_error
from llama_retrieval_ext.evaluation.trial import FOLDS, MARGIN, Values
from llama_retrieval_ext.evaluation.tuning import LEAST_LABELS
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.execution.retrieval import hits_of
from llama_retrieval_ext.formulas.fusion import keyword_trust
from llama_retrieval_ext.formulas.pairwise import pairwise_weights
from llama_retrieval_ext.formulas.query_adapter import adapted, query_adapter
from llama_retrieval_ext.hits import score_of
from llama_retrieval_ext.knowledge_base.learned import Learned, packed
from llama_retrieval_ext.knowledge_base.learning import Teachable
from llama_retrieval_ext.knowledge_base.rankings import scope_key
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.retrievers.hybrid import CANDIDATES
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.ranking import Boost
from llama_retrieval_ext.stages.rerank.mmr import MMR

# Hits of a search of one field. A candidate that is not among them counts as one without a match.
_DEPTH: Final = 300
# Documents that are not judged count as worse than relevant ones up to this rank.
_UNJUDGED: Final = 30
# Steepness of the pairwise loss, and strength of the prior; chosen on movies with 20 questions,
# where nDCG@10 gains .009 with half of the strength, too. Boosts change scores more than fields do.
_SCALE: Final = 5.0
_STRENGTH: Final = 4.0
_STRENGTH_OF_BOOSTS: Final = 1.2
_RIDGE: Final = 10.0
# A number is one that most candidates have, and that differs.
_MOST: Final = 0.9
_LEAST_SPREAD: Final = 0.05
# A smaller growth of the lead, a share of the best score, is not worth a change.
_LEAST_GROWTH: Final = 0.004
# Boosts of less are left out.
_LEAST: Final = 0.01


@dataclass(slots=True)
class _Question:
    """A question with its candidates, one a row."""

    names: list[list[str]]  # of each candidate, for judgements
    grades: Values  # (n,)
    pairs: list[tuple[int, int]]  # a relevant candidate, and one that is not
    keyword: Values  # (n, fields), the weighed scores, scaled as in hybrid search
    shift: float  # what the last keyword hit that is fused has of it
    vector: Values  # (n,), cosines
    boosts: Values  # (n, boosts)
    query: Values  # (dim,)
    embeddings: Values  # (n, dim), unit vectors

    def features(self, share: float, vector: Values | None = None) -> Values:
        """Return the addends of the score at the weights of the prior, ``(n, features)``."""
        cosines = self.vector if vector is None else vector
        last = np.sort(cosines)[-CANDIDATES:][0]
        scaled = np.maximum(0, cosines - last) / max(cosines.max() - last, 1e-9)
        legs = np.column_stack([(1 - share) * self.keyword, share * scaled])
        fused = np.maximum(0, legs.sum(axis=1) - (1 - share) * self.shift)
        return np.column_stack([legs, fused[:, None] * self.boosts])

    def margin(self, scores: Values) -> float:
        """Return the mean lead of the better of a pair, as a share of the best score."""
        if not self.pairs:
            return 0.0
        better, worse = np.array(self.pairs).T
        return float((scores[better] - scores[worse]).mean() / max(scores.max(), 1e-9))

    def adapted(self, adapter: tuple[Values, Values]) -> Values:
        """Return the cosines with the adapted query."""
        return self.embeddings @ adapted(self.query, *adapter)


def learn(
    kb: Teachable,
    judgements: Source,
    *,
    scope: Scope | None = None,
    measure: str = "nDCG@10",
    seed: int = 0,
) -> Learned:
    """Return what judged questions teach a knowledge base; nothing is recorded.

    See `KnowledgeBase.learn`, which records it.

    Args:
        kb: The knowledge base; its current weights are the prior.
        judgements: Questions with their relevant targets; any source of `load_judgements`.
        scope: The scope of the searches.
        measure: Name in `ir-measures`.
        seed: Random seed for the five parts of the cross-validation.

    Raises:
        ConfigurationError: The judgements cannot be read, or the measure is unknown.
    """
    judged = load_judgements(judgements)
    (name,) = map(str, parse_measures([measure]))
    if len(judged) < LEAST_LABELS or judged.origin == KNOWN_ITEMS:
        why = "known items favour keyword search" if len(judged) >= LEAST_LABELS else "too few"
        return Learned(
            verdict=f"Nothing learned from {len(judged)} questions ({judged.origin}): {why}; "
            f"label at least {LEAST_LABELS}, better 50."
        )
    return _Learning(kb, judged, scope, name, seed).learned()


class _Learning:
    """The questions of a call of `learn`, and its prior: 1 for legs and fields."""

    def __init__(
        self, kb: Teachable, judged: Judgements, scope: Scope | None, measure: str, seed: int
    ) -> None:
        self.kb, self.judged, self.scope, self.measure = kb, judged, scope, measure
        self.share = kb.vector_share
        unindexed = kb.info().unindexed
        self.fields = {f: w for f, w in kb.schema.weights().items() if f not in unindexed}
        hits = {id_: self._hits(text) for id_, text in judged.queries.items()}
        nodes = [hit.node for by_leg in hits.values() for hit in by_leg[""].values()]
        self.rules = kb.ranking(scope=scope and scope.for_everyone)
        self.boosts = [*self.rules.boosts, *self._numbers(nodes)]
        declared = [boost.weight for boost in self.rules.boosts]
        n_legs, n_new = len(self.fields) + 1, len(self.boosts) - len(declared)
        self.prior = np.array([*[1.0] * n_legs, *declared, *[0.0] * n_new])
        self.strength = np.full(len(self.prior), _STRENGTH)
        self.strength[n_legs:] = _STRENGTH_OF_BOOSTS
        self.least = np.where(self.prior < 0, -1.0, 0.0)
        self.questions = {id_: self._question(id_, hits[id_]) for id_ in judged.queries}
        order = np.random.default_rng(seed).permutation(len(judged))
        self.fold = dict(zip(judged.queries, (order % FOLDS).tolist(), strict=True))

    def learned(self) -> Learned:
        """Return the weights, and the adapter, as far as questions that were left out agree."""
        everything = [*self.questions]
        trained = {fold: self._weights(self._others(fold)) for fold in range(FOLDS)}
        gain = self._gain(
            dict.fromkeys(everything, self.prior),
            {id_: trained[self.fold[id_]] for id_ in everything},
        )
        weights = self._weights(everything) if _is_better(gain) else self.prior
        verdicts = [_verdict("Weights", gain, self.measure, len(everything))]
        adapter = ""
        if self.scope is None and next(iter(self.questions.values())).query.size:
            adapters = {fold: self._adapter(self._others(fold)) for fold in range(FOLDS)}
            moved = {
                id_: question.adapted(adapters[self.fold[id_]])
                for id_, question in self.questions.items()
            }
            same = dict.fromkeys(everything, weights)
            gain = self._gain(same, same, moved)
            verdicts.append(_verdict("Adapter of queries", gain, self.measure, len(everything)))
            adapter = packed(*self._adapter(everything)) if _is_better(gain) else ""
        return self._as_learned(weights, adapter, " ".join(verdicts))

    def _hits(self, text: str) -> dict[str, dict[str, Hit]]:
        """Return the hits by node id of each field and of vector search; ``""`` has all."""
        query = replace(Query.of(text), is_curated=True)  # as searches score them: without rules
        keyword = {
            field: self.kb.retriever("keyword", fields={field: weight}, scope=self.scope)
            for field, weight in self.fields.items()
        }
        retrievers = {**keyword, "": self.kb.retriever("vector", scope=self.scope)}
        return {
            name: {
                hit.node_id: hit
                for hit in run(hits_of(retriever, query, top_k=_DEPTH, source=name))
            }
            for name, retriever in retrievers.items()
        }

    def _numbers(self, nodes: Sequence[BaseNode]) -> list[Boost]:
        """Return boosts by the declared numbers, else by those that most candidates have."""
        boosted = {boost.number for boost in self.rules.boosts}
        keys = self.kb.schema.numbers or sorted({key for node in nodes for key in node.metadata})
        boosts: list[Boost] = []
        for key in keys:
            values = [
                float(value)
                for node in nodes
                if is_number(value := node.metadata.get(key)) and value is not None
            ]
            top = float(np.percentile(values, 90)) if len(values) > _MOST * len(nodes) else 0.0
            if key in boosted or top <= 0:
                continue
            boost = Boost(number=key, scale=top, weight=1.0)
            spread = np.std([boost.value({key: value}) for value in values])
            boosts += [boost] if spread > _LEAST_SPREAD else []
        return boosts

    def _question(self, id_: str, rankings: Mapping[str, Mapping[str, Hit]]) -> _Question:
        """Return the features of the candidates of a question."""
        hits = {node_id: hit for by_id in rankings.values() for node_id, hit in by_id.items()}
        judged = self.judged.relevant[id_]
        names = {node_id: self.judged.names_of(hit.node, id_) for node_id, hit in hits.items()}
        total = {
            node_id: math.fsum(
                score_of(rankings[f][node_id]) for f in self.fields if node_id in rankings[f]
            )
            for node_id in hits
        }
        best = sorted(total, key=lambda node_id: -total[node_id])[:CANDIDATES]
        fused = {*best, *[*rankings[""]][:CANDIDATES]}
        ids = [i for i in sorted(hits) if i in fused or not judged.keys().isdisjoint(names[i])]
        last = total[best[-1]] if len(best) == CANDIDATES else 0.0
        span = max(total[best[0]] - last, 1e-9) if best else 1.0
        if last:
            span /= keyword_trust([total[node_id] for node_id in best])
        keyword = [
            [score_of(rankings[f][i]) / span if i in rankings[f] else 0.0 for f in self.fields]
            for i in ids
        ]
        boosts = [[boost.value(hits[i].node.metadata) for boost in self.boosts] for i in ids]
        query, embeddings = run(
            MMR().vectors_plan(Query.of(self.judged.queries[id_]), [hits[i] for i in ids])
        )
        rows = np.array(embeddings, np.float64)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        unit = np.array(query) / max(float(np.linalg.norm(query)), 1e-12)
        grades = [max((judged.get(name, 0) for name in names[i]), default=0) for i in ids]
        question = _Question(
            names=[names[i] for i in ids],
            grades=np.array(grades),
            pairs=[],
            keyword=np.array(keyword).reshape(len(ids), -1),
            shift=last / span,
            vector=rows @ unit,
            boosts=np.array(boosts).reshape(len(ids), -1),
            query=unit,
            embeddings=rows,
        )
        order = np.argsort(-(question.features(self.share) @ self.prior), kind="stable")
        is_judged = [not judged.keys().isdisjoint(names[i]) for i in ids]
        compared = {*order[:_UNJUDGED].tolist(), *np.flatnonzero(is_judged).tolist()}
        question.pairs = [
            (better, worse)
            for better in np.flatnonzero(grades).tolist()
            for worse in compared
            if grades[worse] < grades[better]
        ]
        return question

    def _others(self, fold: int) -> list[str]:
        return [id_ for id_ in self.questions if self.fold[id_] != fold]

    def _weights(self, ids: Sequence[str]) -> Values:
        """Return the weights that questions teach."""
        differences, shares = [np.zeros((0, len(self.prior)))], [np.zeros(0)]
        for question in (self.questions[id_] for id_ in ids):
            if question.pairs:
                features = question.features(self.share)
                better, worse = np.array(question.pairs).T
                differences.append(_SCALE * (features[better] - features[worse]))
                shares.append(np.full(len(better), 1 / len(better)))
        return pairwise_weights(
            np.vstack(differences),
            np.concatenate(shares),
            self.prior,
            strength=self.strength,
            least=self.least,
        )

    def _adapter(self, ids: Sequence[str]) -> tuple[Values, Values]:
        """Return the adapter that questions with relevant candidates teach."""
        taught = [q for q in map(self.questions.__getitem__, ids) if q.grades.any()]
        queries = np.array([question.query for question in taught])
        targets = [question.embeddings[question.grades > 0].mean(axis=0) for question in taught]
        return queries, query_adapter(queries, np.array(targets), ridge=_RIDGE)

    def _gain(
        self,
        before: Mapping[str, Values],
        after: Mapping[str, Values],
        moved: Mapping[str, Values] | None = None,
    ) -> tuple[list[float], list[float]]:
        """Return the gain of each question: the lead of relevant hits, and the measure."""
        margins, runs = [], []
        for weights, vectors in ((before, {}), (after, moved or {})):
            scores = {
                id_: question.features(self.share, vectors.get(id_)) @ weights[id_]
                for id_, question in self.questions.items()
            }
            margins.append([self.questions[id_].margin(scores[id_]) for id_ in scores])
            run_of = {
                id_: self.judged.run_of(
                    id_,
                    [
                        self.questions[id_].names[at]
                        for at in np.argsort(-of, kind="stable").tolist()
                    ],
                )
                for id_, of in scores.items()
            }
            measured = measure_queries([self.measure], self.judged.relevant, run_of)
            runs.append([*measured[self.measure].values()])
        return (
            np.subtract(margins[1], margins[0]).tolist(),
            np.subtract(runs[1], runs[0]).tolist(),
        )

    def _as_learned(self, weights: Values, adapter: str, verdict: str) -> Learned:
        if weights is self.prior:
            return Learned(verdict=verdict, adapter=adapter)
        n_fields = len(self.fields)
        of_fields, of_vector, of_boosts = np.split(weights, [n_fields, n_fields + 1])
        # The scale of keyword scores is that of the best one, whatever the weights are.
        scale = np.mean(
            [
                (question.keyword @ of_fields).max() / max(question.keyword.sum(axis=1).max(), 1e-9)
                for question in self.questions.values()
                if question.keyword.any()
            ]
        )
        vector = self.share * float(of_vector[0])
        boosts = zip(self.boosts, of_boosts.tolist(), strict=True)
        learned = np.array([*self.fields.values()]) * of_fields
        learned *= sum(self.fields.values()) / learned.sum()
        weighed = [replace(boost, weight=round(w, 4)) for boost, w in boosts if abs(w) >= _LEAST]
        return Learned(
            verdict=verdict,
            fields={f: round(w, 4) for f, w in zip(self.fields, learned.tolist(), strict=True)},
            declared_fields=dict(self.kb.schema.text),
            vector_share=round(vector / (vector + (1 - self.share) * float(scale)), 4),
            rules=replace(self.rules, boosts=weighed).to_dict(),
            declared_rules=self.rules.to_dict(),
            scope=scope_key(self.scope and self.scope.for_everyone),
            adapter=adapter,
        )


def _is_better(gain: tuple[list[float], list[float]]) -> bool:
    """Return whether the lead grows beyond the noise, and the measure stays."""
    pairs, measure = gain
    is_ordered = np.mean(pairs) > max(MARGIN * standard_error(pairs), _LEAST_GROWTH)
    return bool(is_ordered and np.mean(measure) > -standard_error(measure))


def _verdict(what: str, gain: tuple[list[float], list[float]], measure: str, count: int) -> str:
    pairs, measured = ((np.mean(values), standard_error(values)) for values in gain)
    return (
        f"{what}: {'learned' if _is_better(gain) else 'kept'}. On {count} questions, those of each "
        f"fifth by what the others teach: lead of relevant hits {pairs[0]:+.4f} ± {pairs[1]:.4f}, "
        f"{measure} {measured[0]:+.4f} ± {measured[1]:.4f}."
    )
