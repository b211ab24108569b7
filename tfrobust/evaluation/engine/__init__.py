"""The parts that every evaluator uses: predictors, chunks, statistics, published data sets."""
