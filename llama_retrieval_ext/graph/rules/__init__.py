"""Rules: path patterns over a graph, declared as data, with a conclusion and a proof."""
