"""The four kinds of stage and the operators that compose them."""
