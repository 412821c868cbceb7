"""Gateways: read back, and set levels."""
