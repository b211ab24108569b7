"""The evaluation checks: does the evaluation itself deserve trust?"""
