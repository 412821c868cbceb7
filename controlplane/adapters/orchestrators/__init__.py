"""Orchestrators: who exists."""
