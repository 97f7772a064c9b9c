"""The kinds of stage, the operators that join them, and the pipelines they make."""
