"""Alertmanager: what to tell it, and what it tells us."""
