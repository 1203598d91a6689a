"""Commands that hold the cost model against measurements: accuracy, speed, fit, cases."""
