from llama_retrieval_ext.pipeline.explanation import Explanation as Explanation
from llama_retrieval_ext.pipeline.fusion import Fusion as Fusion
from llama_retrieval_ext.pipeline.postprocessor import Postprocessed as Postprocessed
from llama_retrieval_ext.pipeline.retriever import Retriever as Retriever
from llama_retrieval_ext.pipeline.stages import FanOut as FanOut
from llama_retrieval_ext.pipeline.stages import Refine as Refine
from llama_retrieval_ext.pipeline.stages import Rewrite as Rewrite
