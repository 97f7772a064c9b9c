"""The four kinds of stage, and the stages that are not retrievers over a store."""
