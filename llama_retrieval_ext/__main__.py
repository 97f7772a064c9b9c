"""Run the `llama-retrieval` command by `python -m llama_retrieval_ext`."""

from llama_retrieval_ext.cli import main

if __name__ == "__main__":
    main()
