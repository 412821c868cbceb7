"""Alerts and recording rules as code. Reads the engine templates, and nothing else of the control plane."""
