"""Pairs: rules that select the positives and negatives of contrastive anchors."""
