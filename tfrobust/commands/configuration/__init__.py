"""gin for the commands: read (no code runs), resolve by name, check, and only then bind.

`files` reads the text into statements, `registry` finds objects by name, `parameters` checks values against
annotations, `binding` combines the three and binds. Only commands import this package.
"""
