"""The fleet twin: an inference fleet to steer where there is none."""
