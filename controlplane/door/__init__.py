"""Latency as the caller saw it: reads a gateway's log and says what waited, answered, and was lost.

One small process beside each gateway. It knows nothing of the controller; both meet in Prometheus.
"""
