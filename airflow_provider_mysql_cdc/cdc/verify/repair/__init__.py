"""Repair what a comparison has found, in windows over listed keys."""
