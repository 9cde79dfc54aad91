"""The site: `make site` builds it into build/site."""

project = "Shakedown"
html_title = "Shakedown"
html_theme = "furo"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
extensions = ["myst_parser"]
myst_heading_anchors = 4
exclude_patterns = ["schemas/*.md"]
nitpicky = True
