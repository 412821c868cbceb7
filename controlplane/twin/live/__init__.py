"""The live face: real sockets, OpenAI-style streams, vLLM's and DCGM's metrics."""
