"""`Teachable`: the methods of a knowledge base that log what people ask, and learn from it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from llama_retrieval_ext.checks import checked_methods
from llama_retrieval_ext.embeddings.recorded import AdaptedEmbedding
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.knowledge_base.browsing import Browsable
from llama_retrieval_ext.knowledge_base.curating import Curating, Recorder
from llama_retrieval_ext.knowledge_base.editing import Editable
from llama_retrieval_ext.knowledge_base.learned import Learned
from llama_retrieval_ext.knowledge_base.ledger.config import KnowledgeBaseConfig
from llama_retrieval_ext.knowledge_base.rankings import scope_in
from llama_retrieval_ext.knowledge_base.searching import Searchable
from llama_retrieval_ext.schema import Schema
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stages.ranking import Ranking

if TYPE_CHECKING:
    from llama_retrieval_ext.evaluation.datasets import Source


@checked_methods
class Teachable(Searchable, Browsable, Editable):
    """A knowledge base that can have a log, and learn."""

    _curating: Curating

    @property
    def log(self) -> Recorder | None:
        """The log of its queries, such as a `QueryLog`; None, the default, records nothing.

        Reading the log needs the scope that the knowledge base requires, and ``clear(scope=...)``
        also deletes the rows of the scope. Queries to rules (``kg_rule``, ``knowledge``) and of an
        `Experiment` are not recorded.
        """
        return self._curating.log

    @log.setter
    def log(self, log: Recorder | None) -> None:
        if log is not None:
            log.require(scope=self.require_scope, principals=self.require_principals)
        self._curating.log = log

    def clear(self, *, scope: Scope | None = None) -> int:
        """Delete all documents of a scope, as `Editable.clear`, and its rows in the `log`."""
        gone = super().clear(scope=scope)
        if self.log is not None and scope is not None:
            self.log.delete(scope=scope)
        return gone

    def learn(
        self,
        judgements: "Source",
        *,
        scope: Scope | None = None,
        measure: str = "nDCG@10",
        seed: int = 0,
    ) -> Learned:
        """Learn from judged questions how to weigh fields, legs and boosts, and to move queries.

        Weights are those of a linear pairwise model with the declared weights as prior: of the
        fields of the `Schema`, of vector search in hybrid search, and of boosts, those recorded
        for the scope and one for each number of the schema, or, if it declares none, of metadata.
        The adapter of queries is a ridge regression towards the identity. Each is kept only if, on
        questions that did not teach it, the lead of relevant hits over others grows by more than
        1.25 standard errors, the margin of `tune`, and ``measure``, which is too coarse to tell on
        few questions, does not shrink by one. What was learned before is replaced. It
        holds from the next query on, in other processes once they open it again. Weights hold for
        all scopes, so that a scope teaches no adapter, which has vectors; boosts hold for the
        scope.

        Args:
            judgements: At least 20 questions with their relevant targets, better 50: any source of
                `load_judgements`, such as those of a `QueryLog`.
            scope: The scope of the searches.
            measure: Name in `ir-measures`.
            seed: Random seed for the parts of the cross-validation.

        Returns:
            What was learned, as `learned`; print it for the reasons.

        Raises:
            ConfigurationError: The judgements or the measure are invalid, or it was opened with
                ``read_only=True``.
            MissingDependencyError: The extra ``eval`` is not installed.
            ScopeRequiredError: The knowledge base requires a scope.
        """
        # What measures stands on knowledge bases; this is the one arrow back.
        from llama_retrieval_ext.evaluation.learning import learn  # noqa: PLC0415

        self._access.check_writable()
        self._access.check(scope)
        before = self.learned
        self.unlearn()
        try:
            learned = learn(self, judgements, scope=scope, measure=measure, seed=seed)
        except BaseException:
            self._record(before)
            raise
        self._record(learned)
        return learned

    def use_learned(self, learned: Learned | str) -> Learned:
        """Use settings that were learned before, such as those of an edited YAML, instead.

        Args:
            learned: The settings, or their YAML as of `Learned.to_yaml`.

        Raises:
            ConfigurationError: They are invalid, or were learned for other weights of the `Schema`,
                or the knowledge base was opened with ``read_only=True``.
        """
        self._access.check_writable()
        used = Learned.from_yaml(learned) if isinstance(learned, str) else learned
        config = self._ledger.config()
        declared = Schema.from_dict(json.loads((config and config.schema) or "{}")).text
        if used.fields and {**used.declared_fields} != {**declared}:
            raise ConfigurationError(
                f"the settings were learned for the fields {used.declared_fields}, and the schema "
                f"has {declared}; learn again, or set declared_fields to those"
            )
        self.unlearn()
        self._record(used)
        return used

    def unlearn(self) -> bool:
        """Return to the declared weights; return whether something had been learned."""
        self._access.check_writable()
        learned = self.learned
        if learned is None:
            return False
        if learned.fields:
            self._replace_boosts(learned, learned.rules, learned.declared_rules)
        self._record(None)
        return True

    @property
    def learned(self) -> Learned | None:
        """What `learn` has recorded; None for nothing. ``learned.to_yaml()`` is readable."""
        config = self._ledger.config()
        return Learned.from_yaml(config.learned) if config and config.learned else None

    def _record(self, learned: Learned | None) -> None:
        """Record and use what was learned."""
        if learned is not None and learned.fields:
            self._replace_boosts(learned, learned.declared_rules, learned.rules)
        text = learned.to_yaml() if learned is not None and learned.is_changed else ""
        self._use(
            self._ledger.update_config(lambda config: config and replace(config, learned=text))
        )

    def _replace_boosts(
        self,
        learned: Learned,
        before: Mapping[str, list[object]],
        after: Mapping[str, list[object]],
    ) -> None:
        """Replace boosts, unless somebody has set others."""
        scope = scope_in(learned.scope)
        rules = self.ranking(scope=scope)
        if rules.boosts == Ranking.from_dict(before).boosts:
            changed = replace(rules, boosts=Ranking.from_dict(after).boosts)
            self.set_ranking(changed, scope=scope)

    def _record_share(self, share: float) -> None:
        """Record the share of vector search, which replaces a learned one."""
        learned = self.learned
        text = "" if learned is None else replace(learned, vector_share=share).to_yaml()
        update = self._ledger.update_config
        self._use(
            update(lambda config: config and replace(config, vector_share=share, learned=text))
        )

    def _use(self, config: KnowledgeBaseConfig | None) -> None:
        """Search by what a configuration has learned."""
        if config is None:  # it was removed meanwhile
            return
        learned = Learned.from_yaml(config.learned) if config.learned else None
        schema, share = Schema.from_dict(json.loads(config.schema or "{}")), config.vector_share
        if learned is not None and learned.fields and learned.declared_fields == schema.text:
            schema, share = schema.weighed(learned.fields), learned.vector_share
        self._storage.store.use_schema(schema)
        vectors = None if learned is None else learned.vectors
        model = self.embed_model
        self._query_model = model if vectors is None else AdaptedEmbedding(model, vectors)
        self._weigh_vectors(share)
