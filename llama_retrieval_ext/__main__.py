"""`python -m llama_retrieval_ext` is `llama-retrieval`."""

from llama_retrieval_ext.cli import main

if __name__ == "__main__":
    main()
