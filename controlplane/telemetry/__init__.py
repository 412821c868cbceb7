"""What the controller says of itself: metrics, logs, health."""
