"""Alerts by concern; each module has a tuple `ALERTS`."""
