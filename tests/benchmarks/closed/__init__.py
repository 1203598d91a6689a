"""The closed loop on this machine: plans, measuring, predicting."""
