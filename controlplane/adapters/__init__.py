"""The adapters: each folder knows one outside thing, and no folder knows another."""
