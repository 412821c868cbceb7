"""The record: tables, codec, ledger."""
