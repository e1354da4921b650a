"""Shows jobs: as facts for a terminal, as plain text, as a card of HTML, and live in a notebook."""
