"""Benchmarks: ratios against a raw baseline taken in the same run. Nothing here is a test."""
