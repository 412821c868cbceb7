"""Traces as real streamed HTTP requests."""
