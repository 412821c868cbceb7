"""The loop: observe, decide, record, look again, act, settle."""
