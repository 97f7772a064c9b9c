"""Example answers of the services, for the documentation of the routes."""

from typing import Any, Final

LLM_FAILURES: Final[dict[int | str, dict[str, Any]]] = {  # Any: FastAPI's
    501: {"description": "The server has no LLM."},
    502: {"description": "The LLM fails, or gives no usable answer."},
}
_HIT: Final = {
    "chunk_id": "5e1c",
    "text": "Annual leave is 25 days.",
    "score": 0.0328,
    "metadata": {"file_path": "handbook.md", "year": 2025},
    "knowledge_base_id": None,
    "document_id": "leave",
    "source": "hybrid",
    "contributions": [],
}
DOCUMENTS: Final = {
    "documents": [
        {
            "doc_id": "leave",
            "content": "Annual leave is 25 days.",
            "score": 0.0328,
            "source": "hybrid",
            "metadata": {"file_path": "handbook.md", "year": 2025},
        }
    ]
}
REPLY: Final = {
    "text": "Cheers, at ten then!",
    "examples": [{**_HIT, "chunk_id": "77aa", "text": "Cheers, works for me!"}],
    "degraded": [],
}
WORK_LOG: Final = {
    "id": "0b6f",
    "user_id": "anna",
    "text": "The crane came two days late.",
    "timestamp": "2026-05-06T09:00:00+00:00",
}
REPORT: Final = {
    "user_id": "anna",
    "start_date": "2026-05-04",
    "end_date": "2026-05-10",
    "style": "professional",
    "overview": "The week went well, but the crane was late [1].",
    "sections": {
        "key_tasks": [],
        "achievements": [],
        "challenges": [
            {"metric": "challenges", "text": "The crane was late.", "sources": ["0b6f"]}
        ],
    },
    "comparison": "",
    "work_logs": [
        {
            "id": "0b6f",
            "timestamp": "2026-05-06T09:00:00Z",
            "text": "The crane came two days late.",
        }
    ],
    "problems": [],
    "degraded": [],
}
ANSWER: Final = {
    "answer": "You have 25 days [1].",
    "is_answered": True,
    "is_supported": True,
    "citations": [{"number": 1, "statement": "You have 25 days [1].", **_HIT}],
    "problems": [],
    "degraded": [],
}
EVENTS: Final = 'event: partial\ndata: {"answer": "You have"}\n\nevent: result\ndata: {…}\n\n'
INSIGHTS: Final = {
    "insights": [
        {
            "title": "Deliveries are late",
            "explanation": "Both cranes came after the day that was agreed.",
            "evidence": ["5e1c", "77aa"],
            "confidence": 0.8,
        }
    ],
    "degraded": [],
}
RELATED: Final = {
    "entities": [{"name": "North Quay", "hops": None, "path": "", "passages": ["5e1c"]}]
}
TIMELINE: Final = {
    "events": [
        {
            "timestamp": "2026-05-04T00:00:00+00:00",
            "text": "Ada Stone checked the Tower Crane at North Quay.",
            "node_id": "5e1c",
            "source": "document",
        }
    ]
}
