"""The writers of a report: HTML, Markdown, console."""
