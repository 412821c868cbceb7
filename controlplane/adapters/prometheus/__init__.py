"""Prometheus: HTTP answers in, Known or Missing out."""
