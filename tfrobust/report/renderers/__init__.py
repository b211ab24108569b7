"""How a report is written: HTML, Markdown, console."""
