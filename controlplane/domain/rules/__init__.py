"""The rules: one a file, each with its reason codes and its `propose`."""
