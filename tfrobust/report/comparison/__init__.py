"""Several reports side by side.

    files ──> reports.arrange ──> Comparison ──> verdict   which model is better, or why that is open
              order, groups,      columns,       views     console, Markdown, JSON, HTML
              reference           notes          gap       how much of a gap each model closes

Numbers are compared only under one protocol and on the same data; `protocol` writes the notes on all that differ.
"""
