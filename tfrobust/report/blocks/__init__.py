"""What a section is made of: Markdown, HTML, plots and pictures."""
