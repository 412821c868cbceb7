"""HAProxy: its configuration, rendered; its runtime API, spoken; and the gateway port on top."""
