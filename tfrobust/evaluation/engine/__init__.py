"""What every evaluator uses: predictors, chunks, statistics, published data sets."""
