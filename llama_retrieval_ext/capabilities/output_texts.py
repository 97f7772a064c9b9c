"""`OutputTexts`: the sentences that this package itself writes for readers, by language."""
# ruff: noqa: RUF001, RUF002 - Chinese punctuation on purpose

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, TypeAlias

from llama_retrieval_ext.checks import of_type
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.parameters import Check
from llama_retrieval_ext.text.normalization import language_of


@dataclass(frozen=True, kw_only=True)
class OutputTexts:
    """Sentences of answers and reports in one language; the defaults are English.

    ``OutputTexts.languages`` has the texts by language: ``en`` and ``zh``. Add to it for another
    language, and name that language in a call: ``language="de"``. Without ``language=`` a Chinese
    question, or Chinese work logs, give Chinese texts, and all others English ones.

    Examples:
        >>> OutputTexts.languages["de"] = OutputTexts(no_answer="Dazu steht nichts im Text.")
        >>> OutputTexts.of("de").no_answer, OutputTexts.of(None, "年假几天？").none
        ('Dazu steht nichts im Text.', '无。')
        >>> del OutputTexts.languages["de"]

    """

    languages: ClassVar[dict[str, "OutputTexts"]] = {}

    no_answer: str = "The documents do not answer this question."
    no_citation: str = "the answer cites no passage"
    unknown_passage: str = "{statement!r}: there is no passage [{number}]"
    missing_numbers: str = "{statement!r}: {numbers} is not in {passages}"
    nothing_in_common: str = "{statement!r}: it has no word in common with {passages}"
    weekly_report: str = "Weekly report: {user_id}, {start} to {end}"
    sections: Mapping[str, str] = field(default_factory=dict)
    none: str = "None."
    comparison: str = "Compared with earlier material"
    work_logs: str = "Work logs"
    no_work_logs: str = "There are no work logs from {start} to {end}."
    notes: str = "Notes"
    unsupported: str = "Not supported by the work logs: {statement}"
    incomplete: str = "Incomplete: {part}"
    # A server shows only what stands before the first colon, as a reason can name hosts.
    no_overview: str = "overview: the summary of the analysis, not in the style: {reason}"
    nothing_to_write: str = "the model found nothing to write about"

    @classmethod
    def of(cls, language: str | None, *texts: str) -> "OutputTexts":
        """Return the texts in a language; None for the language of the given texts.

        Raises:
            ConfigurationError: There are no texts in this language.
        """
        chosen = language_of(*texts) if language is None else of_type(language, str, "language")
        if chosen not in cls.languages:
            raise ConfigurationError(
                f"there are no texts in the language {chosen!r}, but in {', '.join(cls.languages)};"
                f" add some: OutputTexts.languages[{chosen!r}] = OutputTexts(no_answer=...)"
            )
        return cls.languages[chosen]

    def section(self, metric: str) -> str:
        """Return the title of a metric: its text here, or else its name in words."""
        name = metric.replace("_", " ").strip()
        return self.sections.get(metric, name[:1].upper() + name[1:])


def check_language(language: str | None) -> str | None:
    """Return the language if it is None or has texts, else raise `ConfigurationError`."""
    if language is not None:
        OutputTexts.of(language)
    return language


# A language that has texts; None for that of the question.
Language: TypeAlias = Annotated[str | None, Check(check_language)]


_CHINESE: Final = OutputTexts(
    no_answer="现有文档无法回答这个问题。",
    no_citation="回答没有引用任何段落",
    unknown_passage="“{statement}”：没有段落 [{number}]",
    missing_numbers="“{statement}”：{passages} 中没有 {numbers}",
    nothing_in_common="“{statement}”：与 {passages} 没有相同的词",
    weekly_report="周报：{user_id}，{start} 至 {end}",
    sections=MappingProxyType(
        {"key_tasks": "重点工作", "achievements": "工作成果", "challenges": "问题与挑战"}
    ),
    none="无。",
    comparison="与以往材料对比",
    work_logs="工作日志",
    no_work_logs="{start} 至 {end} 没有工作日志。",
    notes="说明",
    unsupported="工作日志不支持：{statement}",
    incomplete="不完整：{part}",
    no_overview="概述: 采用分析摘要，未按要求的风格撰写：{reason}",
    nothing_to_write="模型没有找到可写的内容",
)
OutputTexts.languages.update(en=OutputTexts(), zh=_CHINESE)
