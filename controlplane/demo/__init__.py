"""The demonstration: starts real parts on loopback, tells a story, stops what it started."""
