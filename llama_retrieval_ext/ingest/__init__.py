"""Documents in, every index kept in step: `KnowledgeBase` and what it is made of."""
