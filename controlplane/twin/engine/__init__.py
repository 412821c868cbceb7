"""The engine model: continuous batching, pure; no clock, sockets or randomness of its own."""
