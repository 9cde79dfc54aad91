"""The report as one file without network or server; only links to whole logs lead into the run directory. Text of nodes
and logs is no markup: jinja2 escapes it, plots are images, and the page's policy runs only its own style and script."""
