"""Engine and exporter dialects: plain data, from a Signal to a PromQL template."""
