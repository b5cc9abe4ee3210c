"""Results for people: tables, figures, sentences, and the HTML page.

`summary_tables` (in `summary`), `findings`, `make_tables` (in `tables`) with `render` (in `tables_text`), and
`write_report` (in `page`) take results and are for other rooms; the rest is their inner parts.
"""
