from llama_retrieval_ext.serve.entry import create_app as create_app
from llama_retrieval_ext.serve.entry import create_mcp_server as create_mcp_server
from llama_retrieval_ext.serve.entry import serve_http as serve_http
from llama_retrieval_ext.serve.entry import serve_mcp as serve_mcp
from llama_retrieval_ext.serve.guard import ServeLimits as ServeLimits
from llama_retrieval_ext.serve.keys import ApiKeys as ApiKeys
