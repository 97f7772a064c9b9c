"""Services for applications: search, mimic, weekly reports, knowledge."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.services.knowledge import KnowledgeService, TimelineEvent
    from llama_retrieval_ext.services.mimic import MimicService
    from llama_retrieval_ext.services.related import RelatedEntity
    from llama_retrieval_ext.services.report import ReportService, WeeklyReport, WorkLog
    from llama_retrieval_ext.services.search import DocumentResult, SearchService


__all__ = [
    "DocumentResult",
    "KnowledgeService",
    "MimicService",
    "RelatedEntity",
    "ReportService",
    "SearchService",
    "TimelineEvent",
    "WeeklyReport",
    "WorkLog",
]

# Hidden from type checkers: they would accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.services.knowledge": ("KnowledgeService", "TimelineEvent"),
        "llama_retrieval_ext.services.mimic": ("MimicService",),
        "llama_retrieval_ext.services.related": ("RelatedEntity",),
        "llama_retrieval_ext.services.report": ("ReportService", "WeeklyReport", "WorkLog"),
        "llama_retrieval_ext.services.search": ("DocumentResult", "SearchService"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
