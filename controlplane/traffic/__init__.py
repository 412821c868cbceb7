"""Traces as real streamed HTTP requests: reading, scaling, playing and summing up.

A process of its own. It knows nothing of the control plane and meets it only at the gateway.
"""
